"""Write a diagnosis down: `diagnosis.json` with everything that was found, and `diagnosis.html`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from longctx.ci.bisect.journal_stats import Flip
from longctx.ci.diagnose.telling import Alarm
from longctx.ci.diagnose.words import conclusion, culprit_name, description, not_exchanged, share, static_conclusion
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.diagnosis.cause import Candidate, Cause, TellingSample
from longctx.fixtures.diagnosis.local_error import OUTLIER_Z
from longctx.fixtures.diagnosis.static import StaticComparison
from longctx.fixtures.diagnosis.tensors import TensorChange
from longctx.fixtures.shown_text import visible_data
from longctx.plugins.report.html.page import render
from longctx.plugins.report.tables import Cell, Row, Table

SCHEMA = "longctx-diagnosis/1"
MOST_TENSORS = 30
# The robust z at which a colour begins.
Z_STEPS = (3, 5, 8, 16, 32)


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
        write_file(folder / "diagnosis.html", self.page().encode())

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

    def page(self) -> str:
        """Return the page."""
        static, cause = self.static, self.cause
        conspicuous = static.conspicuous
        words = dict(zip(("verdict", "detail"), self.conclusion.partition(": ")[::2], strict=True))
        answers = {flip.index: flip for flip in self.alarm.flips} if self.alarm else {}
        content = {
            "case": self.case,
            "headline": _headline(cause, static),
            "is_named": cause is not None and bool(cause.culprits),
            **words,
            "exchanges": [_exchange(candidate, cause) for candidate in cause.candidates] if cause else [],
            "notes": not_exchanged(cause, static) if cause else [],
            "samples": [_sample(sample, answers.get(sample.index)) for sample in cause.samples] if cause else [],
            "has_answers": bool(answers),
            "settings": [msgspec.to_builtins(change) for change in static.settings],
            "tensors": [
                {"name": change.name, "words": description(change)} for change in conspicuous[:MOST_TENSORS]
            ],
            "more_tensors": max(0, len(conspicuous) - MOST_TENSORS),
            "unmeasured": static.unmeasured,
            "good": self.good,
            "bad": self.bad,
            "command": self.command,
            "computed_tokens": self.computed_tokens,
        }  # fmt: skip
        table = _table(static)
        others = [f"{change.name} {_change_text(change)} %" for change in static.changed if change.layer is None]
        return render(
            "diagnosis.html.j2",
            title=f"Diagnosis: {Path(self.bad).name}",
            table=table,
            others=", ".join(others),
            outlier=f"{OUTLIER_Z:g}",
            **visible_data(content),
        )


def _headline(cause: Cause | None, static: StaticComparison) -> str:
    if cause is None:
        return "Where two checkpoints differ"
    if not cause.culprits:
        return "No place can be named"
    return "; ".join(culprit_name(candidate, static) for candidate in cause.culprits)


def _exchange(candidate: Candidate, cause: Cause) -> dict[str, Any]:
    """Return one row of the table of exchanged parts."""
    held_out = ", held out" if candidate.is_held_out else ""
    return {
        "name": candidate.name,
        "restores": "-" if candidate.restores is None else share(candidate.restores),
        "reproduces": share(candidate.reproduces),
        "carries": {"all": "the whole loss", "a part": "a part of the loss"}.get(candidate.carries, "-"),
        "samples": f"{len(candidate.samples)}{held_out}",
        "is_named": candidate in cause.culprits,
    }


def _sample(sample: TellingSample, flip: Flip | None) -> dict[str, Any]:
    return {
        "index": sample.index,
        "gold": sample.gold,
        "good": f"{sample.good_nats:.2f}",
        "bad": f"{sample.bad_nats:.2f}",
        "good_answer": flip.answer_before if flip else "",
        "bad_answer": flip.answer_after if flip else "",
    }


def _table(static: StaticComparison) -> Table | None:
    """Return the relative changes of all tensors by layer and kind; None if no layer changed."""
    in_layers = [change for change in static.tensors if change.layer is not None]
    if not any(change in in_layers for change in static.changed):
        return None
    by_place = {(change.layer, change.kind): change for change in in_layers}
    kinds = list(dict.fromkeys(change.kind for change in in_layers))
    errors = {error.layer: error for error in static.layers}
    rows = []
    for layer in sorted({change.layer for change in in_layers if change.layer is not None}):
        cells = [_cell(by_place.get((layer, kind))) for kind in kinds]
        if errors:
            found = errors[layer]
            cells.append(Cell(text=f"{100 * found.error:.2g}", style=_style(found.z)))
        rows.append(Row(name=str(layer), cells=tuple(cells)))
    names = [kind.rpartition("*.")[2].removesuffix(".weight").rpartition("self_attn.")[2] for kind in kinds]
    return Table(name="", columns=(*names, *["local error"] * bool(errors)), rows=tuple(rows))


def _cell(change: TensorChange | None) -> Cell:
    if change is None:
        return Cell()
    title = change.name if not change.is_conspicuous else f"{change.name}: {description(change)}"
    style = _style(change.z)
    return Cell(text=_change_text(change), style="w5" if change.is_conspicuous and style < "w4" else style, title=title)


def _change_text(change: TensorChange) -> str:
    if change.problem or change.not_finite or change.relative_change is None:
        return "!"
    return (
        f"{100 * change.relative_change:.2g}" if change.relative_change < 1 else f"{100 * change.relative_change:.0f}"
    )


def _style(z: float | None) -> str:
    """Return the style class of a robust z: `d0`, or `w1` to `w5`."""
    step = sum((z or 0.0) >= bound for bound in Z_STEPS)
    return f"w{step}" if step else "d0"
