"""Write a diagnosis down: lines for the terminal, `diagnosis.json` with everything, and `diagnosis.html`."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from longctx.ci.bisect.journal_stats import Flip
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.diagnosis.cause import Candidate, Cause, Share
from longctx.fixtures.diagnosis.local_error import OUTLIER_Z as OUTLIER_Z_OF_LAYERS
from longctx.fixtures.diagnosis.static import StaticComparison
from longctx.fixtures.diagnosis.tensors import OUTLIER_Z, TensorChange
from longctx.fixtures.shown_text import visible
from longctx.plugins.report.html.page import render
from longctx.plugins.report.tables import Cell, Row, Table, plural

SCHEMA = "longctx-diagnosis/1"
MOST_TENSORS, TERMINAL_TENSORS, MOST_FORMS = 30, 12, 2
TEXT_PARTS = ("chat template", "tokenizer")
# Forms that differ in such numbers alone, as by layer, are one line.
NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")
# The robust z at which a colour begins.
Z_STEPS = (3, 5, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings of a diagnosis so far."""

    good: str
    bad: str
    case: str | None
    command: str
    """The command that repeats it."""
    static: StaticComparison
    flips: tuple[Flip, ...] = ()
    """The samples of a report that GOOD answers better."""
    cause: Cause | None = None
    """None until parts were exchanged."""

    @property
    def conclusion(self) -> str:
        """The finding in one line."""
        return static_conclusion(self.static) if self.cause is None else conclusion(self.cause, self.static)

    def write(self, folder: Path) -> None:
        """Write both files; raises OSError."""
        write_file(folder / "diagnosis.json", self.document())
        write_file(folder / "diagnosis.html", self.page().encode())

    def document(self) -> bytes:
        static, tensors = self.static, []
        for change in msgspec.to_builtins(static.tensors):
            tensors.append({key: value for key, value in change.items() if value not in ("", None, [], 0)})
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "good": self.good,
            "bad": self.bad,
            "case": self.case,
            "command": self.command,
            "conclusion": self.conclusion,
            "settings": msgspec.to_builtins(static.settings),
            "tensors": tensors,
            "layers": msgspec.to_builtins(static.layers),
        }
        if self.cause is not None:
            content["cause"] = msgspec.to_builtins(self.cause)
        return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"

    def page(self) -> str:
        static, cause = self.static, self.cause
        verdict, _, detail = self.conclusion.partition(": ")
        others = [f"{change.name} {_change_text(change)} %" for change in static.changed if change.layer is None]
        return render(
            "diagnosis.html.j2",
            title=f"Diagnosis: {Path(self.bad).name}",
            diagnosis=self,
            static=static,
            cause=cause,
            headline=_headline(cause, static),
            verdict=verdict,
            detail=detail,
            notes=not_exchanged(cause, static) if cause else [],
            answers={flip.index: flip for flip in self.flips},
            tensors=static.conspicuous,
            most_tensors=MOST_TENSORS,
            table=_table(static),
            others=", ".join(others),
            outlier=f"{OUTLIER_Z_OF_LAYERS:g}",
            visible=visible,
            share=share,
            description=description,
        )


def _headline(cause: Cause | None, static: StaticComparison) -> str:
    if cause is None:
        return "Where two checkpoints differ"
    if not cause.culprits:
        return "No place can be named"
    return "; ".join(culprit_name(candidate, static) for candidate in cause.culprits)


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
            # GOOD may have fewer layers.
            local = errors.get(layer)
            cells.append(Cell(text=f"{100 * local.error:.2g}", style=_style(local.z)) if local else Cell())
        rows.append(Row(name=str(layer), cells=tuple(cells)))
    names = [kind.rpartition("*.")[2].removesuffix(".weight").rpartition("self_attn.")[2] for kind in kinds]
    return Table(name="", columns=(*names, *["local error"] * bool(errors)), rows=tuple(rows), corner="layer")


def _cell(change: TensorChange | None) -> Cell:
    if change is None:
        return Cell()
    title = change.name if not change.is_conspicuous else f"{change.name}: {description(change)}"
    style = _style(change.z)
    return Cell(text=_change_text(change), style="w5" if change.is_conspicuous and style < "w4" else style, title=title)


def _change_text(change: TensorChange) -> str:
    if change.problem or change.not_finite or change.relative_change is None:
        return "!"
    amount = 100 * change.relative_change
    return f"{amount:.2g}" if amount < 100 else f"{amount:.0f}"


def _style(z: float | None) -> str:
    """Return the style class of a robust z: `d0`, or `w1` to `w5`."""
    step = sum((z or 0.0) >= bound for bound in Z_STEPS)
    return f"w{step}" if step else "d0"


def static_lines(static: StaticComparison) -> list[str]:
    """Return the lines about the files: settings that differ, and tensors that stand out."""
    lines = [f"{change.part:<19}{change.name}: {change.good} -> {change.bad}" for change in static.settings]
    changed, conspicuous = static.changed, static.conspicuous
    amounts = [change.relative_change for change in changed if change.relative_change is not None]
    amount = f", by {percent(median(amounts))} in the middle" if amounts else ""
    lines.append(f"{'tensors':<19}{len(changed)} of {len(static.tensors)} differ{amount}")
    if count := sum(change.is_rounded for change in static.tensors):
        rounded = plural(count, "tensor lies", "tensors lie")
        lines.append(f"{'rounded':<19}{rounded} on the grid of 4-bit or 8-bit weights in BAD only")
    if static.moved_layers:
        lines.append(f"{'layers':<19}{_moved(static)}")
    groups = _groups([change for change in conspicuous if change.layer not in static.moved_layers or not change.form])
    for name, text in groups[:TERMINAL_TENSORS]:
        lines.append(f"{'stands out':<19}{name}: {text}")
    if len(groups) > TERMINAL_TENSORS:
        lines.append(f"{'':<19}and {len(groups) - TERMINAL_TENSORS} more")
    for change in static.tensors:
        if change.more_rows:
            amount = "more" if change.more_rows > 0 else "fewer"
            lines.append(f"{'rows':<19}{change.name}: {abs(change.more_rows)} {amount} in BAD")
    for layer in static.layers:
        if layer.is_outlier:
            lines.append(f"{'local error':<19}layer {layer.layer}: {layer.error:.2g} of what it adds, z {layer.z:.0f}")
    if static.unmeasured:
        lines.append(f"{'local error':<19}not measured: {static.unmeasured}")
    return lines


def _groups(changes: Sequence[TensorChange]) -> list[tuple[str, str]]:
    """Return names and faults; tensors of one kind that have the same form in several layers are one line."""
    alike: dict[tuple[str, str], list[TensorChange]] = {}
    for change in changes:
        form = NUMBER.sub("*", change.problem or change.form)
        kind = "" if form.startswith("missing") else change.kind if form else change.name
        alike.setdefault((kind, form), []).append(change)
    groups = []
    for (name, form), members in alike.items():
        if len(members) == 1:
            groups.append((members[0].name, description(members[0])))
            continue
        amounts = [change.relative_change for change in members if change.relative_change is not None]
        changed = f", changed by {percent(min(amounts))} to {percent(max(amounts))}" if amounts else ""
        place = f"{name} of {len(members)} layers" if name else f"{len(members)} tensors such as {members[0].name}"
        forms = {change.problem or change.form for change in members}
        groups.append((place, (forms.pop() if len(forms) == 1 else form) + changed))
    return groups


def _moved(static: StaticComparison) -> str:
    """Return which layers hold another layer of GOOD, and which layers of GOOD are gone."""
    runs: list[list[int]] = []
    for layer, source in static.moved_layers.items():
        if runs and layer == runs[-1][1] + 1 and source - layer == runs[-1][2]:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer, source - layer])
    texts = []
    for first, last, shift in runs[:TERMINAL_TENSORS]:
        if first == last:
            texts.append(f"{first} holds GOOD's {first + shift}")
        else:
            texts.append(f"{first} to {last} hold GOOD's {first + shift} to {last + shift}")
    lost = f"; GOOD's {_few(static.lost_layers)} missing" if static.lost_layers else ""
    return ", ".join(texts) + lost


def static_conclusion(static: StaticComparison) -> str:
    """Return one line that says where the files differ, which is not yet a cause."""
    if not static.settings and not static.changed and not static.conspicuous:
        formats = dict.fromkeys(change.dtype for change in static.tensors if change.dtype)
        if formats:
            return f"differs: stored in another number format ({', '.join(formats)}), with the same values"
        return "no difference was found that changes an answer; look at the engine, its settings and the machine"
    places = []
    if static.settings:
        places.append(plural(len(static.settings), "setting", "settings"))
    if static.conspicuous:
        places.append(plural(len(static.conspicuous), "tensor", "tensors") + " out of the ordinary")
    elif static.changed:
        places.append(
            plural(len(static.changed), "tensor", "tensors") + f" of which none stands out{_only_kinds(static)}"
        )
    return f"differs: {', '.join(places)}"


def candidate_line(candidate: Candidate) -> str:
    """Return both shares of one exchanged part."""
    return f"{'held out' if candidate.is_held_out else 'exchanged':<19}{candidate.name}: {shares(candidate)}"


def shares(candidate: Candidate) -> str:
    """Return both shares of a part in words."""
    reproduces = f"reproduces {share(candidate.reproduces)}"
    return reproduces if candidate.restores is None else f"restores {share(candidate.restores)}, {reproduces}"


def cause_lines(cause: Cause, static: StaticComparison) -> list[str]:
    """Return the lines behind those of the candidates: samples, what was not measured, and conclusion."""
    lines = [f"{'samples':<19}{len(cause.samples)} that GOOD answers and BAD misses"]
    for line in not_exchanged(cause, static):
        lines.append(f"{'not exchanged':<19}{line}")
    lines.append(conclusion(cause, static))
    return lines


def not_exchanged(cause: Cause, static: StaticComparison) -> list[str]:
    """Return a line for every difference that the probability of a gold answer cannot show."""
    lines = []
    if generation := [change.name for change in static.settings if change.part == "generation config"]:
        lines.append(f"generation config ({', '.join(generation)}): it shows in generated answers only")
    if cause.same_prompts and any(change.part in TEXT_PARTS for change in static.settings):
        lines.append("tokenizer and chat template: both make the same token ids of these samples")
    return lines


def conclusion(cause: Cause, static: StaticComparison) -> str:
    """Return one line that names the cause, or says that none can be named."""
    if cause.culprits:
        changed = len(static.changed)
        named = "; ".join(f"{culprit_name(culprit, static)}: {_amount(culprit, changed)}" for culprit in cause.culprits)
        return f"cause: {named}"
    weights = [candidate for candidate in cause.candidates if candidate.kind == "weights"]
    if not weights or weights[0].carries != "nothing":
        spread = f"{plural(len(static.changed), 'tensor', 'tensors')}{_only_kinds(static)}"
        return f"cause: spread over {spread}; no place can be named"
    return "cause: no part carries the loss alone; settings and weights act together"


def _only_kinds(static: StaticComparison) -> str:
    kinds = [kind.rpartition("*.")[2].removesuffix(".weight") for kind in static.only_kinds]
    return f" (of the layers only {', '.join(kinds)})" if kinds else ""


def culprit_name(candidate: Candidate, static: StaticComparison) -> str:
    """Return the name of a culprit, with the form that most of its tensors have."""
    name = f"config {candidate.name}" if candidate.kind == "config" else candidate.name
    if candidate.kind == "tokenizer":
        parts = dict.fromkeys(change.part for change in static.settings if change.part in TEXT_PARTS)
        return f"{name} ({', '.join(parts)} differ{'s' * (len(parts) == 1)})"
    members = [change for change in static.tensors if change.name in candidate.members]
    if len(members) == 1:
        return f"{name} ({description(members[0])})"
    layers, moved = {change.layer for change in members if not change.problem}, static.moved_layers
    if layers and layers <= moved.keys():
        return f"{name} (layer {_moved(static)})"
    forms, half = Counter(change.problem or change.form for change in members), len(members) / 2
    if not members or forms.pop("", 0) > half:
        return name
    if len(forms) > MOST_FORMS and max(forms.values()) <= half:
        forms = Counter(NUMBER.sub("*", form) for form in forms.elements())
    shown = [form for form, _ in forms.most_common(MOST_FORMS)]
    if len(forms) > MOST_FORMS:
        shown.append("…")
    return f"{name} ({'; '.join(shown)})"


def _amount(candidate: Candidate, changed: int) -> str:
    if candidate.carries == "all":
        return f"the whole loss ({shares(candidate)})"
    rest, text = changed - len(candidate.members), f"a part of the loss ({shares(candidate)})"
    if candidate.kind != "tensors" or rest <= 0:
        return text
    return f"{text}; the rest is spread over {plural(rest, 'tensor', 'tensors')}"


def share(of_loss: Share) -> str:
    return f"{of_loss.value:.2f} [{of_loss.low:.2f}, {of_loss.high:.2f}]"


def description(change: TensorChange) -> str:
    """Return the faults of one tensor."""
    if change.problem:
        return "; ".join(filter(None, (change.problem, change.form)))
    parts = []
    if change.not_finite:
        parts.append(f"{change.not_finite:,} values NaN or infinite")
    if change.form:
        parts.append(change.form)
    if change.changed_row_count:
        parts.append(f"{change.changed_row_count} of {change.rows:,} rows changed most ({_few(change.changed_rows)})")
    if change.relative_change is not None and change.relative_change < math.inf and not change.not_finite:
        parts.append(f"changed by {percent(change.relative_change)}")
    if change.z is not None and change.z >= OUTLIER_Z:
        parts.append(f"z {change.z:.0f} among its kind")
    return ", ".join(parts)


def percent(share: float) -> str:
    """Return a share in percent with as many digits as it needs."""
    return f"{100 * share:.{0 if share >= 0.1 else 1 if share >= 0.01 else 3}f} %"


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", …" if len(numbers) > 4 else "")
