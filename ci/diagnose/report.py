"""Write a diagnosis down: `diagnosis.json` with everything that was found, and `diagnosis.html`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from longctx.ci.diagnose.telling import Alarm
from longctx.ci.diagnose.words import conclusion, static_conclusion
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.diagnosis.cause import Cause
from longctx.fixtures.diagnosis.static import StaticComparison

SCHEMA = "longctx-diagnosis/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that a diagnosis found so far."""

    good: str
    bad: str
    case: str | None
    command: str
    """The command that repeats it."""
    static: StaticComparison
    alarm: Alarm | None
    cause: Cause | None = None
    """None until parts were exchanged."""
    computed_tokens: int | None = None

    @property
    def conclusion(self) -> str:
        """The finding in one line."""
        return static_conclusion(self.static) if self.cause is None else conclusion(self.cause, self.static)

    def write(self, folder: Path) -> None:
        """Write both files; raises OSError."""
        write_file(folder / "diagnosis.json", self.document())

    def document(self) -> bytes:
        """Return the JSON document."""
        static = self.static
        tensors = [msgspec.to_builtins(change) for change in static.tensors]
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "good": self.good,
            "bad": self.bad,
            "case": self.case,
            "command": self.command,
            "conclusion": self.conclusion,
            "settings": [msgspec.to_builtins(change) for change in static.settings],
            "tensors": [
                {key: value for key, value in tensor.items() if value not in ("", None, [], 0)} for tensor in tensors
            ],
            "layers": [msgspec.to_builtins(layer) for layer in static.layers],
        }
        if self.cause is not None:
            content["cause"] = msgspec.to_builtins(self.cause)
            content["computed_tokens"] = self.computed_tokens
        return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
