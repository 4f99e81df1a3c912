"""The report's numbers for training dashboards: TensorBoard event files and Weights & Biases runs.

Both packages are optional.
"""

import importlib.util
import sys
from pathlib import Path

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.records.report_parts import MeanEstimate
from longctx.plugins.report.sections.suites import means

MARKUP = str.maketrans("<>&", "\u2039\u203a+")
SCALAR_NAMES = {name: name for name in ("nll", "gain", "recovery", "evidence", "greedy")} | {"margin": "gold_less_foil"}
"""The names of the likelihood measures in curves, by their key in the document."""


class ScalarsError(RuntimeError):
    """A dashboard that cannot be written; the message is one line."""


def check_extra(name: str) -> None:
    """Raise ScalarsError if the package of a dashboard's option, which has the same name, is not installed."""
    if importlib.util.find_spec(name) is None:
        raise ScalarsError(f"--{name}: {name} is not installed; {sys.executable} -m pip install {name}")


def scalars(document: JsonReport) -> dict[str, float]:
    """Return all measured numbers by name: scores from 0 to 100, lengths in tokens, gates as 1 (pass) or 0 (fail)."""
    ruler = document.ruler
    values: dict[str, float | None] = {
        "ruler/effective_length": ruler.effective_length,
        "ruler/wavg_inc": ruler.wavg_inc,
        "ruler/wavg_dec": ruler.wavg_dec,
        "run/tokens_computed": document.run.tokens.computed,
    }
    if ruler.effective_length is None and ruler.effective_length_label is not None:
        # Below the shortest tested length. A curve over steps should start at 0 there rather than have a gap.
        values["ruler/effective_length"] = 0
    for mean in means(document):
        for length, score in mean.scores.items():
            values[f"{mean.suite}/{mean.name}/{format_length(int(length))}".replace(" ", "/")] = score
    for case in document.cases:
        values[f"task/{case.task}/{format_length(case.length)}"] = case.score
    for panel in document.likelihood.panels if document.likelihood else ():
        for key, name in SCALAR_NAMES.items():
            estimate: MeanEstimate | None = getattr(panel, key)
            place = f"likelihood/{panel.family}/{name}/{format_length(panel.length)}"
            values[place] = None if estimate is None else estimate.mean
    for gate in document.gates:
        if gate.verdict in ("pass", "fail"):
            values[f"gate/{gate.name}"] = float(gate.verdict == "pass")
    # Dashboards show the names of gates, some of them as markup.
    return {name.translate(MARKUP): float(value) for name, value in values.items() if value is not None}


def write_tensorboard(folder: Path, document: JsonReport) -> None:
    """Add an event file to the folder, at the document's training step (0 if it has none)."""
    from tensorboard.summary import Writer

    writer = Writer(str(folder))
    for name, value in scalars(document).items():
        writer.add_scalar(name, value, step=document.run.step or 0)
    writer.close()


def write_wandb(project: str, document: JsonReport) -> None:
    """Log the document as one run of the project, at its training step (0 if it has none).

    W&B's own settings, such as WANDB_MODE, decide where it goes. Raises ScalarsError with W&B's reason.
    """
    import wandb

    model, run = document.model, document.run
    config = {"model": model.name, "fingerprint": model.fingerprint, "seed": run.seed, "step": run.step}
    try:
        settings = wandb.Settings(silent=True)
        with wandb.init(
            project=project, name=Path(model.path).name, job_type="longctx", config=config, settings=settings
        ) as wandb_run:
            wandb_run.log(scalars(document), step=run.step or 0)
    except wandb.Error as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise ScalarsError(
            f"--wandb: {project} cannot be written ({reason}); log in, or set WANDB_MODE=offline"
        ) from error
