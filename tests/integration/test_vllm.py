"""vLLM in this process gives the answers and likelihoods of the hf engine. It needs the extra `vllm`."""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import pytest

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines import ENGINES
from longctx.fixtures.engines.base import Releasable
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.engines.vllm.execution import VllmSettings
from longctx.fixtures.records import ContinuationScore, Generation, Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import gold_prompts
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.runs import calibration_checkpoint

pytestmark = [
    pytest.mark.whole_loop,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs the extra vllm"),
]
RULER = tuple(name for name, task in TASKS.items() if task.suite == "ruler")
HELMET = ("json_kv", "nq", "trec_coarse")
# The largest difference of a token's log-probability; relative to large ones, as calibration checkpoints have them.
TOLERANCE = 1e-3


def test_answers_and_likelihoods_are_those_of_the_hf_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(str(calibration_checkpoint("2k")), RULER, length=1024, samples=8, monkeypatch=monkeypatch)
    compare(str(calibration_checkpoint("2k")), HELMET, length=2048, samples=2, monkeypatch=monkeypatch)


@pytest.mark.skipif("LONGCTX_VLLM_MODEL" not in os.environ, reason="needs a checkpoint in LONGCTX_VLLM_MODEL")
def test_a_real_checkpoint_answers_as_with_the_hf_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(os.environ["LONGCTX_VLLM_MODEL"], RULER, length=1024, samples=2, monkeypatch=monkeypatch)


def compare(path: str, tasks: Sequence[str], *, length: int, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    formatter = PromptFormatter(load_tokenizer(path))
    made = [
        TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=Corpora())
        for task in tasks
        for index in range(samples)
    ]
    own = HfSettings(device="cpu", dtype="float32")
    expected, expected_scores = results(path, own, made, formatter)
    settings = VllmSettings(device="cpu", dtype="float32", context_tokens=2 * length)
    answers, scores = results(path, settings, made, formatter)
    # A checkpoint that was built to find needles answers by near ties where it finds none.
    flips = [
        (sample.task, sample.index, one.text, other.text)
        for sample, one, other in zip(made, expected, answers, strict=True)
        if one.text != other.text and TASKS[sample.task].grade(sample, one.text).value == 1
    ]
    assert flips == []
    assert sum(one.text != other.text for one, other in zip(expected, answers, strict=True)) <= len(made) / 20
    for one, other in zip(expected_scores, scores, strict=True):
        assert other.log_probabilities == pytest.approx(one.log_probabilities, abs=TOLERANCE, rel=TOLERANCE)
        assert other.is_greedy == one.is_greedy
    assert sum(answer.reused_tokens or 0 for answer in answers) > 0, "prompts on one haystack share its tokens"


def results(
    path: str, settings: HfSettings | VllmSettings, samples: Sequence[Sample], formatter: PromptFormatter
) -> tuple[list[Generation], list[ContinuationScore]]:
    """Return the answers, and the log-probabilities of gold answers of one sample in four."""
    tokenizer: Any = formatter.tokenizer
    engine: Any = ENGINES[settings.engine](
        read_checkpoint(path), settings, tokenizer=tokenizer, trust_remote_code=False
    )
    try:
        answers = list(engine.generate([sample.prompt for sample in samples]))
        golds = [gold_prompts(TASKS[each.task], each, formatter) for each in samples[::4] if each.gold is not None]
        prompts = [prompt for gold in golds for prompt in gold.prompts]
        continuations = [ids for gold in golds for ids in gold.continuations]
        return answers, list(engine.score(prompts, continuations))
    finally:
        if isinstance(engine, Releasable):
            engine.release()
