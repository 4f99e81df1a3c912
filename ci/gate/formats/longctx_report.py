"""A report of this suite (--report-json), whose samples are in the journal of its run."""

from __future__ import annotations

from pathlib import Path

from longctx.ci.gate.records import SCORE, Content, ResultFile, ResultsError, ScoredSample, text_hash
from longctx.fixtures.records import Case
from longctx.fixtures.records.report import REPORT_SCHEMA, RESULT_FILES, JsonReport, ReportCase, parse_report
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.lines import Subject, sample_key
from longctx.plugins.journal.reading import SubjectReader

SAMPLES = "give the file of --samples-jsonl"


def matches(content: Content) -> bool:
    """Return True for a report of any version, but not for one about other files, which has no samples of its own."""
    if content.lines or not content.keys:
        return False
    model = content.value.get("model")
    is_about_files = isinstance(model, dict) and model.get("engine") == RESULT_FILES
    return str(content.value.get("schema")).startswith("longctx-report/") and not is_about_files


def read(content: Content) -> ResultFile:
    """Read the samples of all cases of a report."""
    try:
        report = parse_report(content.data)
    except ValueError as error:
        raise ResultsError(f"{content.path}: is not a {REPORT_SCHEMA} ({error}); {SAMPLES}") from error
    model, folder = report.model, Path(report.run.journal)
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=model.execution or {})
    reader = SubjectReader(folder / subject.key)
    try:
        reader.refresh()
    except JournalError as error:
        raise ResultsError(f"{content.path}: its journal cannot be read ({error}); {SAMPLES}") from error
    samples = [sample for case in report.cases for sample in _samples(report, case, reader)]
    if not samples:
        raise ResultsError(f"{content.path}: its journal {folder} has none of its samples; {SAMPLES}")
    return ResultFile(path=content.path, samples=tuple(samples), notes=tuple(reader.damage))


def _samples(report: JsonReport, case: ReportCase, reader: SubjectReader) -> list[ScoredSample]:
    """Return the samples of one case that its journal has, of the same version and seed."""
    seed = report.run.seed
    known = []
    for entry in reader.entries.values():
        if entry.case == case.id:
            key = sample_key(report.run.samples, case.version, seed, case.task, case.length, entry.index)
            known += [entry] if entry.key == key else []
    if not known:
        return []
    is_shared = isinstance(case.haystacks, int) and case.haystacks < case.samples // case.group
    described = Case(
        id=case.id, suite=case.suite, category=case.category, task=case.task, length=case.length,
        samples=max(case.planned, 1 + max(entry.index for entry in known)), source=case.source, generation_tokens=1,
        group=case.group, shares_haystacks=is_shared, version=case.version,
    )  # fmt: skip
    return [
        ScoredSample(
            task=case.task,
            id=str(entry.index),
            scores={SCORE: entry.score},
            length=case.length,
            prompt=text_hash([case.version, seed, entry.outcome.references]),
            unit="known",
            answer=entry.outcome.generation.text,
            expected=entry.outcome.references,
            case=described,
            seed=seed,
        )
        for entry in sorted(known, key=lambda entry: entry.index)
    ]
