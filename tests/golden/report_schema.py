"""The JSON schema of reports: `python -m tests.golden.report_schema` writes it from the records."""

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from longctx.fixtures.records import FailureKind, report, report_parts, results
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport
from tests.helpers.paths import REPOSITORY

SCHEMA_FILE = REPOSITORY / "plugins" / "report" / "schema.json"


def schema_text() -> str:
    """Return the content of schema.json, with one line for every field of a record.

    The docstrings below the fields are its descriptions.
    """
    definitions = msgspec.json.schema(JsonReport)["$defs"]
    records = vars(results) | vars(report_parts) | vars(report)
    for name, definition in definitions.items():
        definition["additionalProperties"] = False
        for field, description in _field_docs(records[name]):
            definition["properties"][field]["description"] = description
    failures = definitions["ReportCase"]["properties"]["failures"]
    failures["propertyNames"] = {"enum": [*get_args(FailureKind)]}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": REPORT_SCHEMA,
        **definitions.pop(JsonReport.__name__),
        "title": "Long-context report",
        "$defs": definitions,
    }
    return _text(schema, indent=0) + "\n"


def _text(value: Any, indent: int) -> str:
    if not isinstance(value, dict) or indent > 3:
        return json.dumps(value)
    margin, lines = " " * indent, []
    for key, entry in value.items():
        shown = _text(entry, indent + 1)
        lines.append(f"{margin} {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"


def _field_docs(record: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record that have a docstring, with this text on one line; those of its bases come first."""
    for base in record.__bases__:
        if base not in (msgspec.Struct, object):
            yield from _field_docs(base)
    body = ast.parse(inspect.getsource(record)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            yield field.target.id, " ".join(str(after.value.value).split())


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="ascii")
