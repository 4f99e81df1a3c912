"""The report's numbers for training dashboards: TensorBoard event files, a Weights & Biases run. Both are extras."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fixtures.lengths import format_length

EXTRAS = {"tensorboard": "tensorboard", "wandb": "wandb"}


class ScalarsError(RuntimeError):
    """A dashboard that cannot be written to; one line."""


def check_extra(name: str) -> None:
    """Raises ScalarsError where the option's package is not installed."""
    if importlib.util.find_spec(EXTRAS[name]) is None:
        raise ScalarsError(f"--{name}: {EXTRAS[name]} is not installed; pip install 'longctx-gates[{name}]'")


def scalars(document: Mapping[str, Any]) -> dict[str, float]:
    """What was measured, by name: scores and differences of 0 to 100, lengths in tokens, gates as 1 (pass) or 0."""
    ruler, helmet = document["ruler"], document["helmet"]
    found: dict[str, float | None] = {
        "ruler/effective_length": ruler["effective_length"],
        "ruler/wavg_inc": ruler["wavg_inc"],
        "ruler/wavg_dec": ruler["wavg_dec"],
        "run/tokens_computed": document["run"]["tokens"]["computed"],
    }
    if ruler["effective_length"] is None and ruler["effective_length_label"] is not None:
        # Below the shortest length: a curve over steps should start at the bottom and not be missing.
        found["ruler/effective_length"] = 0
    series = {"ruler/mean": ruler["scores"]} | {f"ruler/{name}": scores for name, scores in ruler["aspects"].items()}
    if helmet is not None:
        series |= {f"helmet/{name}": scores for name, scores in helmet["categories"].items()}
        series["helmet/average"] = helmet["average"]
    for name, scores in series.items():
        found |= {f"{name}/{format_length(int(length))}": score for length, score in scores.items()}
    found |= {f"task/{case['task']}/{format_length(case['length'])}": case["score"] for case in document["cases"]}
    found |= {
        f"gate/{gate['name']}": {"pass": 1.0, "fail": 0.0}[gate["verdict"]]
        for gate in document["gates"]
        if gate["verdict"] in ("pass", "fail")
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def write_tensorboard(folder: Path, document: Mapping[str, Any]) -> None:
    """One event file more in the folder, at the document's step (0 without one)."""
    from tensorboard.summary import Writer

    writer = Writer(str(folder))
    for name, value in scalars(document).items():
        writer.add_scalar(name, value, step=document["run"]["step"] or 0)
    writer.close()


def write_wandb(project: str, document: Mapping[str, Any]) -> None:
    """A run of the project with one step; where it goes, and whether at all, is W&B's own setting (WANDB_MODE).

    Raises ScalarsError with W&B's reason.
    """
    import wandb

    model, run = document["model"], document["run"]
    config = {"model": model["name"], "fingerprint": model["fingerprint"], "seed": run["seed"], "step": run["step"]}
    try:
        settings = wandb.Settings(silent=True)
        with wandb.init(
            project=project, name=Path(model["path"]).name, job_type="longctx", config=config, settings=settings
        ) as started:
            started.log(scalars(document), step=run["step"] or 0)
    except wandb.Error as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise ScalarsError(
            f"--wandb: {project} cannot be written ({reason}); log in, or set WANDB_MODE=offline"
        ) from error
