"""Measure a model from Python, without pytest: a checkpoint, or a model that is in memory."""

# Every module of the wheel imports this one first, so it imports what it needs when it measures.
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.fixtures.records.report import JsonReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a measurement."""

    document: Mapping[str, Any]
    """The report, as --report-json writes it."""
    samples: tuple[Mapping[str, Any], ...]
    """All measured samples, as --samples-jsonl writes them."""
    passed: bool
    """True if no gate, no floor and no error fails the run."""

    @property
    def scores(self) -> dict[str, float | None]:
        """The scores of the cases by id, 0 to 100; None for a case that was not measured."""
        return {case["id"]: case["score"] for case in self.document["cases"]}

    @property
    def effective_length(self) -> int | None:
        """RULER's effective length in tokens; None if no tested length reaches the threshold, or it is not known."""
        length: int | None = self.document["ruler"]["effective_length"]
        return length

    @property
    def metrics(self) -> dict[str, float]:
        """All measured numbers by the names that dashboards get, such as `task/niah_single_2/4k`."""
        import msgspec

        from longctx.fixtures.records.report import JsonReport
        from longctx.plugins.report.scalars import scalars

        return scalars(msgspec.convert(self.document, JsonReport))

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def measure(
    model: Any,
    tokenizer: Any = None,
    *,
    task_names: Collection[str] | None = None,
    name: str = "in memory",
    **options: Any,
) -> Report:
    """Measure a model and evaluate its gates.

    `model` is what --model takes, or a causal language model of transformers with its `tokenizer`. `task_names` selects
    some of the tasks. `options` are those of the command line, with underscores: `lengths="4k,8k"`, `samples=50`,
    `suite="ruler"`, `full=True`, `thresholds=...`. Without `journal`, nothing is kept of a model in memory.

    A model in memory is in evaluation mode meanwhile, and has its mode again afterwards. It must be whole in this
    process. Raises ValueError or RuntimeError with one line, as the command line prints it, for a model or an option
    that cannot be used, and TypeError for an option that is unknown or has no meaning here.
    """
    from longctx.measurement import measure_model

    return Report(**measure_model(model, tokenizer, name=name, tasks=task_names, options=options))


def compare_results(
    base: str | Path | Sequence[Mapping[str, object]],
    candidate: str | Path | Sequence[Mapping[str, object]],
    policy: str | Path | None = None,
    *,
    metrics: Sequence[str] = (),
    scale: float | None = None,
    lower_is_better: bool = False,
) -> "JsonReport":
    """Gate the finished results of a candidate against those of a base, as `longctx gate` does, and return the report.

    Each is a file, a folder or a glob, or rows with `id`, `score` and more, as a CSV file has them. `policy` is a TOML
    file. `report.verdict.word` is pass, fail, undecided or not measured. Raises ValueError with one line for results
    and policies that cannot be used.
    """
    from longctx.ci.gate.comparison import compare
    from longctx.ci.gate.load import Reading
    from longctx.plugins.report.document import document

    reading = Reading(metrics=tuple(metrics), scale=scale, lower_is_better=lower_is_better)
    return document(compare(base, candidate, policy, reading, {}))
