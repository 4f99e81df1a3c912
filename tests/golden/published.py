"""Golden outputs on published text: samples, and scores that need a judge or an entailment model."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import msgspec

from longctx.fixtures import versions
from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.judge import Judged
from longctx.fixtures.tasks import TASKS, load_tasks
from longctx.fixtures.tasks.task import Assistants
from tests.golden.output import Output, content, digest, rounded
from tests.golden.published_data import write_published_data
from tests.helpers.tiny_tokenizers import formatter

# (length, index, seed) of the recorded samples.
IDENTITIES = ((8192, 0, 0), (4096, 7, 3))


def published_outputs() -> Iterator[Output]:
    """Yield samples on published text as digests, and scores that need assistants."""
    with TemporaryDirectory() as directory:
        # Data sets in this machine's caches must not be used.
        caches = dict.fromkeys(("HF_HUB_CACHE", "HF_DATASETS_CACHE"), str(Path(directory) / "caches"))
        # NLU has 20 of 320 texts for tests.
        share = mock.patch("longctx.fixtures.corpora.published.hub_sets.NLU_TEST_SHARE", 20 / 320)
        with mock.patch.dict(os.environ, caches), share:
            write_published_data(Path(directory) / "data")
            corpora = load_corpora(Path(directory) / "data")
            for task in versions.TASKS:
                yield from _published_samples(task, corpora)


def sample_digest(sample: Sample) -> str:
    """Return a digest of a sample without its token ids and its gold answer, which has a version of its own."""
    *parts, _gold, _as_is = content(replace(sample, prompt=replace(sample.prompt, token_ids=())))
    return digest(json.dumps(parts))


def _published_samples(task: str, corpora: Corpora) -> Iterator[Output]:
    for length, index, seed in IDENTITIES:
        sample = TASKS[task].sample(length, index, seed=seed, tokenizer=formatter("pieces"), corpora=corpora)
        if sample.source == "published":
            yield Output(
                name=f"{task} {length}/{index}/{seed}",
                version_name=f'TASKS["{task}"]',
                version=versions.TASKS[task],
                value=sample_digest(sample),
            )
            if index == 0:
                yield from _assisted_scores(sample)


def _assisted_scores(sample: Sample) -> Iterator[Output]:
    """Yield the scores of two answers, with assistants that decide by the length of the texts."""
    assistants: Any = Assistants(judge=_Judge(), entails=lambda premise, claim: len(premise + claim) % 3 > 0)  # type: ignore[arg-type]  # decides without a server
    names = " and ".join(sample.references)
    for mode in ("strict", "paper"):
        task = load_tasks(scoring=mode)[sample.task]
        for text in (f"{names} [1][2].", f"It was {names} [3]. It was not [1][1][4]. Fog, mist [99]."):
            if task.assisted_grade is not None:
                yield Output(
                    name=f"{task.name} {mode} {text[:30]}",
                    version_name=f'SCORING["{task.metric}"]',
                    version=versions.SCORING[task.metric],
                    value=rounded(msgspec.to_builtins(task.assisted_grade(sample, text, assistants))),
                )


class _Judge:
    def decide(self, judged: Judged[Any]) -> Any:
        verdicts = [dict.fromkeys(question.limits, 1) | {"sentences": 2} for question in judged.questions()]
        return judged.decided(verdicts)
