"""A yardstick of one's own: the scores of a reference checkpoint, for `--yardstick FILE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fixtures.lengths import format_length

# RULER's own yardstick is a score at this length.
YARDSTICK_LENGTH = 4096
# A gate requires more than the yardstick's score, and no model has more than 100.
HIGHEST_SCORE = 99.99


def yardstick_text(report: Mapping[str, Any]) -> str:
    """Return the text of a yardstick file: RULER's mean and aspects at 4K, or at the shortest length with all tasks.

    Raises ValueError for a report without such a length.
    """
    ruler = report["ruler"]
    scores = {int(length): score for length, score in ruler["scores"].items() if score is not None}
    if not scores:
        raise ValueError(
            "the report has no length with all tasks of RULER; measure the reference checkpoint without -k"
        )
    length = YARDSTICK_LENGTH if YARDSTICK_LENGTH in scores else min(scores)
    aspects = {aspect: by_length[str(length)] for aspect, by_length in ruler["aspects"].items()}
    run = report["run"]
    source = f"{report['model']['name']} at {format_length(length)}, seed {run['seed']}"
    return "\n".join(
        (
            "# For --yardstick: a run with other texts or prompts refuses this file.",
            "[yardstick]",
            f"source = {json.dumps(source)}",
            f"samples = {json.dumps(texts_of(report))}",
            *(
                f"{name} = {min(score, HIGHEST_SCORE):.2f}"
                for name, score in {"mean": scores[length], **aspects}.items()
            ),
        )
    )


def texts_of(report: Mapping[str, Any]) -> str:
    """Return the fingerprints of a run's texts and prompts."""
    return f"{report['run']['corpora']}.{report['run']['prompts']}"
