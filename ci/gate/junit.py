"""The comparison as a JUnit file: a test for every gate and for every case, as a run writes it."""

from __future__ import annotations

from xml.etree import ElementTree

from msgspec import structs

from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate

FAULTS = {"fail": "failure", "error": "error"}


def junit(document: JsonReport) -> bytes:
    """Return the file. All texts of the document must be visible."""
    verdict = document.verdict
    suite = ElementTree.Element("testsuite", name="longctx gate", time=f"{document.run.seconds:.3f}")
    facts = {} if verdict is None else {"run.verdict": verdict.word, "run.exit_code": verdict.exit_code}
    _add_properties(suite, {"model.name": document.model.name, **facts})
    for gate in document.gates:
        word = gate.verdict if gate.fails or gate.verdict in ("pass", "error") else "not failed"
        _add_test(suite, f"gate[{gate.name}]", "fail" if gate.fails and word != "error" else word, gate.reason, gate)
    for case in document.cases:
        word = case.verdict if case.fails else "pass"
        _add_test(suite, case.id, word, case.error or case.decided_by or "", case)
    for kind, names in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(kind, str(len(suite.findall(names))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _add_test(suite: ElementTree.Element, name: str, word: str, reason: str, facts: ReportGate | ReportCase) -> None:
    test = ElementTree.SubElement(suite, "testcase", classname="longctx.gate", name=name)
    values = structs.asdict(facts).items()
    _add_properties(test, {key: value for key, value in values if isinstance(value, str | int | float)})
    if word in FAULTS:
        ElementTree.SubElement(test, FAULTS[word], message=reason)
    elif word != "pass":
        ElementTree.SubElement(test, "skipped", message=reason)


def _add_properties(element: ElementTree.Element, values: dict[str, object]) -> None:
    properties = ElementTree.SubElement(element, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
