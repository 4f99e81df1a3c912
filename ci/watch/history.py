"""What a watch has done, one line of JSON each, synced: a restart goes on from it and loses nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fixtures.records import from_json

Word = Literal["pass", "fail", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A checkpoint that the gates were run on.

    `code` is pytest's, `failed` names what failed, or gives the one line why nothing was measured. `baseline` is
    the step it was compared with, None for the first. `gpu_seconds`: seconds times GPUs.
    """

    step: int
    checkpoint: str
    fingerprint: str
    word: Word
    code: int
    failed: tuple[str, ...]
    report: str
    baseline: int | None
    effective_length: str | None
    gpu_seconds: float
    ended: str


class History:
    """`history.jsonl` in a folder; a torn last line is one that was never written.

    `measured` has the last word on each checkpoint, `told` those whose last word was heard, `gpu_seconds` the sum
    of all attempts, seconds times GPUs.
    """

    def __init__(self, folder: Path):
        self.path = folder / "history.jsonl"
        self.measured: dict[tuple[str, str], Measured] = {}
        self.told: set[tuple[str, str]] = set()
        self.gpu_seconds = 0.0
        self._settled: set[tuple[str, str]] = set()
        folder.mkdir(parents=True, exist_ok=True)
        text = self.path.read_bytes() if self.path.exists() else b""
        for line in text.split(b"\n"):
            self._take_in(line)
        # What comes next must not be glued to a torn line.
        self._torn = bool(text) and not text.endswith(b"\n")

    def add(self, measured: Measured) -> None:
        self._append({"event": "measured", **asdict(measured)})
        self._know(measured)
        self._settled.add((measured.checkpoint, measured.fingerprint))

    def note_told(self, measured: Measured) -> None:
        """Its failure has reached whoever was to hear of it."""
        self._append({"event": "told", "checkpoint": measured.checkpoint, "fingerprint": measured.fingerprint})
        self.told.add((measured.checkpoint, measured.fingerprint))

    def knows(self, checkpoint: Path, fingerprint: str) -> bool:
        """Whether it need not be measured: an error is tried again, once after each start."""
        return (str(checkpoint), fingerprint) in self._settled

    def last_good(self, before: int) -> Measured | None:
        """The nearest step before this one that passed and whose report is still there."""
        passed = [
            each
            for each in self.measured.values()
            if each.word == "pass" and each.step < before and Path(each.report).is_file()
        ]
        return max(passed, key=lambda each: each.step, default=None)

    @property
    def untold(self) -> list[Measured]:
        """Failures that nobody has heard of yet."""
        return [each for name, each in self.measured.items() if each.word != "pass" and name not in self.told]

    def _append(self, line: Mapping[str, Any]) -> None:
        data = b"\n" * self._torn + json.dumps(line).encode("ascii") + b"\n"
        with self.path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._torn = False

    def _take_in(self, line: bytes) -> None:
        try:
            data = json.loads(line)
            event = data.pop("event")
            if event == "measured":
                measured = from_json(Measured, data)
                self._know(measured)
                if measured.word != "error":
                    self._settled.add((measured.checkpoint, measured.fingerprint))
            elif event == "told":
                self.told.add((data["checkpoint"], data["fingerprint"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return

    def _know(self, measured: Measured) -> None:
        name = (measured.checkpoint, measured.fingerprint)
        last = self.measured.get(name)
        if last is not None and last.word != measured.word:
            # Who heard of an error has not heard of the failure.
            self.told.discard(name)
        self.measured[name] = measured
        self.gpu_seconds += measured.gpu_seconds
