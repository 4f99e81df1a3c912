"""Preflight checks the samples before the model runs: sound samples pass, and a broken prompt fails its case."""

import re
from pathlib import Path

from tests.helpers.runs import run_pytest, sparse_weights
from tests.helpers.tiny_tokenizers import RULER
from tests.helpers.workers import SAMPLES, EmptyAnswerEngine, chat_checkpoint, measure_case, worker_of

CUTTING_TEMPLATE = "{{ bos_token }}{% for message in messages %}<|user|>{{ message.content[:2500] }}<|end|>{% endfor %}"
LENGTHS = ("--lengths", "1k", "--samples", "3")


def test_preflight_of_sound_samples_passes_and_loads_no_model(tmp_path: Path) -> None:
    model = chat_checkpoint(tmp_path)
    sparse_weights(model / "model.safetensors", 1)
    run = run_pytest(tmp_path, "--preflight", "--model", str(model), *LENGTHS)
    assert run.exit_code == 0, run.output
    assert run.counts == {"checked": len(RULER)}
    assert f"{len(RULER)} cases, {3 * len(RULER)} samples: no cases with problems" in run.output
    assert not (tmp_path / "journal").exists()


def test_a_template_that_cuts_the_text_fails_every_case_in_one_line(tmp_path: Path) -> None:
    model = chat_checkpoint(tmp_path, CUTTING_TEMPLATE)
    selection = ("-k", "niah_single_1 or qa_1", "--junitxml", f"{tmp_path}/junit.xml")
    run = run_pytest(tmp_path, "--preflight", "--model", str(model), *LENGTHS, *selection)
    assert run.exit_code == 1
    assert run.counts == {"with problems": 2, "deselected": len(RULER) - 2}
    assert "Traceback" not in run.output + run.errors
    for task in ("niah_single_1", "qa_1"):
        failure = run.junit[f"test_ruler[{task}-1k]"].find("failure")
        assert failure is not None
        assert re.fullmatch(r"preflight: sample 0: .* \(\d+ in all\)", failure.text or "")
    assert "the chat template changed or cut the text; try --chat off" in run.output


def test_a_run_sends_no_prompt_to_the_model_if_preflight_fails(tmp_path: Path) -> None:
    engine = EmptyAnswerEngine()
    with worker_of(chat_checkpoint(tmp_path, CUTTING_TEMPLATE), engine, tmp_path / "journal") as (worker, case):
        result = measure_case(worker, case)
    assert (result.score, engine.prompt_count) == (None, 0)
    assert result.error is not None
    assert re.fullmatch(r"preflight: test_ruler\[niah_single_1-1k\] sample \d: .*", result.error)


def test_a_sound_case_sends_every_sample_to_the_model_once(tmp_path: Path) -> None:
    engine = EmptyAnswerEngine()
    with worker_of(chat_checkpoint(tmp_path), engine, tmp_path / "journal") as (worker, case):
        results = [measure_case(worker, case), measure_case(worker, case)]
    assert results[0] == results[1]
    result = results[0]
    assert (result.score, result.error, engine.prompt_count) == (0.0, None, SAMPLES)
    assert {outcome.score.failure for outcome in result.outcomes} == {"empty"}
