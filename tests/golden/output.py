"""The type of a golden output, and its comparison with the recorded output."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output that may change only together with its version."""

    name: str
    """Unique within its file, such as "niah_single_1 4096/0/0"."""
    version_name: str
    """The entry of `longctx.fixtures.versions` that changes with it, such as 'TASKS["niah_single_1"]'."""
    version: int
    value: Any
    """JSON: the output itself if it is short, otherwise a digest."""


def digest(text: str) -> str:
    """Return 32 hex digits of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def content(value: Any) -> Any:
    """Return a value as JSON without names of classes or fields, which may change while the content stays."""
    if is_dataclass(value):
        return [content(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [[content(key), content(inner)] for key, inner in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted((content(inner) for inner in value), key=json.dumps)
    if isinstance(value, (tuple, list)):
        return [content(inner) for inner in value]
    return value


def rounded(value: Any) -> Any:
    """Return JSON with its numbers rounded to twelve places: sums of floats differ by platform beyond them."""
    if isinstance(value, float):
        return round(value, 12)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def read_recorded(kind: str) -> dict[str, dict[str, Any]]:
    """Return the content of `recorded/KIND.json`: version and value by name."""
    path = RECORDED / f"{kind}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def difference(output: Output, recorded: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return one line with the problem of an output and a remedy; None if it is as recorded."""
    known = recorded.get(output.name)
    if known is None:
        return f"{output.name}: not recorded; run python -m tests.golden.record"
    if known["version"] != output.version:
        return (
            f"{output.name}: recorded for version {known['version']} of {output.version_name}, which is "
            f"{output.version}; run python -m tests.golden.record"
        )
    if known["value"] != json.loads(json.dumps(output.value)):
        return (
            f"{output.name}: the output changed; bump the version: raise {output.version_name} in "
            "fixtures/versions.py, then run python -m tests.golden.record"
        )
    return None
