"""The words of a diagnosis for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from longctx.fixtures.diagnosis.cause import Candidate, Cause, Share
from longctx.fixtures.diagnosis.static import StaticComparison
from longctx.fixtures.diagnosis.tensors import OUTLIER_Z, TensorChange

SHOWN_TENSORS = 12
TEXT_PARTS = ("chat template", "tokenizer", "special tokens")


def static_lines(static: StaticComparison) -> list[str]:
    """Return the lines about the files: settings that differ, and tensors that stand out."""
    lines = [f"{change.part:<19}{change.name}: {change.good} -> {change.bad}" for change in static.settings]
    changed, conspicuous = static.changed, static.conspicuous
    middle = static.median_change
    amount = "" if middle is None or not len(changed) else f", by {percent(middle)} in the middle"
    lines.append(f"{'tensors':<19}{len(changed)} of {len(static.tensors)} differ{amount}")
    if static.rounded:
        lines.append(f"{'rounded':<19}{static.rounded} tensors lie on the grid of 4-bit or 8-bit weights in BAD only")
    for change in conspicuous[:SHOWN_TENSORS]:
        lines.append(f"{'stands out':<19}{change.name}: {description(change)}")
    if len(conspicuous) > SHOWN_TENSORS:
        lines.append(f"{'':<19}and {len(conspicuous) - SHOWN_TENSORS} more")
    for layer in static.layers:
        if layer.is_outlier:
            lines.append(f"{'local error':<19}layer {layer.layer}: {layer.error:.2g} of what it adds, z {layer.z:.0f}")
    if static.unmeasured:
        lines.append(f"{'local error':<19}not measured: {static.unmeasured}")
    return lines


def static_conclusion(static: StaticComparison) -> str:
    """Return one line that says where the files differ, which is not yet a cause."""
    if not static.settings and not static.changed:
        return "the files do not differ; look at the engine, its settings and the machine"
    places = []
    if static.settings:
        places.append(_count(len(static.settings), "setting"))
    if static.conspicuous:
        places.append(_count(len(static.conspicuous), "tensor") + " out of the ordinary")
    elif static.changed:
        places.append(_count(len(static.changed), "tensor") + " of which none stands out")
    return f"differs: {', '.join(places)}"


def candidate_line(candidate: Candidate) -> str:
    """Return both shares of one exchanged part."""
    return f"{'held out' if candidate.is_held_out else 'exchanged':<19}{candidate.name}: {shares(candidate)}"


def shares(candidate: Candidate) -> str:
    """Return both shares of a part in words."""
    reproduces = f"reproduces {share(candidate.reproduces)}"
    return reproduces if candidate.restores is None else f"restores {share(candidate.restores)}, {reproduces}"


def cause_lines(cause: Cause, static: StaticComparison, computed_tokens: int) -> list[str]:
    """Return the lines behind those of the candidates: samples, cost, what was not measured, and conclusion."""
    samples = (
        f"{len(cause.samples)} that GOOD answers and BAD misses; gold answers have {cause.good_nats:.2f} nats with "
        f"GOOD, {cause.bad_nats:.2f} with BAD; {computed_tokens:,} tokens computed"
    )
    lines = [f"{'samples':<19}{samples}"]
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
        return f"cause: spread over {_count(len(static.changed), 'tensor')}; no place can be named"
    return "cause: no part carries the loss alone; settings and weights act together"


def culprit_name(candidate: Candidate, static: StaticComparison) -> str:
    """Return the name of a culprit, with the form of a single tensor."""
    if candidate.kind == "tensors" and len(candidate.members) == 1:
        (change,) = (change for change in static.tensors if change.name == candidate.members[0])
        return f"{candidate.name} ({description(change)})"
    if candidate.kind == "tokenizer":
        parts = dict.fromkeys(change.part for change in static.settings if change.part in TEXT_PARTS)
        return f"{candidate.name} ({', '.join(parts)} differ{'s' * (len(parts) == 1)})"
    return f"config {candidate.name}" if candidate.kind == "config" else candidate.name


def _amount(candidate: Candidate, changed: int) -> str:
    if candidate.carries == "all":
        return f"the whole loss ({shares(candidate)})"
    rest = changed - len(candidate.members)
    spread = f"; the rest is spread over {_count(rest, 'tensor')}" if candidate.kind == "tensors" and rest > 0 else ""
    return f"a part of the loss ({shares(candidate)}){spread}"


def share(of_loss: Share) -> str:
    """Return a share with its interval."""
    return f"{of_loss.value:.2f} [{of_loss.low:.2f}, {of_loss.high:.2f}]"


def description(change: TensorChange) -> str:
    """Return what is wrong with one tensor."""
    if change.problem:
        return change.problem
    parts = []
    if change.not_finite:
        parts.append(f"{change.not_finite:,} values NaN or infinite")
    if change.form:
        parts.append(change.form)
    if change.changed_row_count:
        parts.append(f"{change.changed_row_count} of {change.rows:,} rows changed most ({_few(change.changed_rows)})")
    if change.relative_change is not None and not change.not_finite:
        parts.append(f"changed by {percent(change.relative_change)}")
    if change.z is not None and change.z >= OUTLIER_Z:
        parts.append(f"z {change.z:.0f} among its kind")
    return ", ".join(parts)


def percent(share: float) -> str:
    """Return a share in percent with as many digits as it needs."""
    return f"{100 * share:.{0 if share >= 0.1 else 1 if share >= 0.01 else 3}f} %"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", …" if len(numbers) > 4 else "")
