"""Models that cannot be measured: every case reports its error in one line and has no score."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.records import Generation, Prompt
from longctx.plugins.runner.worker import Stopped
from tests.helpers.checkpoints import edit_json
from tests.helpers.runs import calibration_checkpoint, completed_run
from tests.helpers.workers import EmptyAnswerEngine, chat_checkpoint, measure_case, worker_of


def test_every_case_is_an_error_with_a_reason_of_one_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Weights that do not fit config.json show only when they are loaded."""
    folder = Path(shutil.copytree(calibration_checkpoint("512"), tmp_path_factory.mktemp("broken") / "step_9"))
    config = json.loads((folder / "config.json").read_text())
    edit_json(folder / "config.json", intermediate_size=config["intermediate_size"] * 2)
    selection = ("--lengths", "512,600", "--samples", "1", "-k", "niah_single_1")
    run = completed_run(tmp_path_factory, "--model", str(folder), *selection)
    assert run.exit_code == 1
    assert len(run.cases) == 2
    assert "Traceback" not in run.output + run.errors
    for case in run.cases.values():
        assert (case["verdict"], case["score"], case["interval"]) == ("error", None, None)
        assert re.fullmatch("--model: .* does not fit its config.json: .* gives another shape to .*", case["error"])
        failure = run.junit[case["id"]].find("failure")
        assert failure is not None
        assert failure.text == case["error"]


class FailingEngine(EmptyAnswerEngine):
    """An engine that answers one prompt and fails on every later one."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.facts = replace(EmptyAnswerEngine.facts, batch_size=batch_size)

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        for prompt in prompts:
            if self.prompt_count:
                raise EngineError("the model's logits are NaN")
            yield from super().generate([prompt])


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_model_that_stops_answering_leaves_an_error_and_no_score(batch_size: int, tmp_path: Path) -> None:
    with worker_of(chat_checkpoint(tmp_path), FailingEngine(batch_size), tmp_path / "journal") as (worker, case):
        result = measure_case(worker, case)
    assert (result.score, result.error) == (None, "the model's logits are NaN")


@pytest.mark.parametrize("fault", [MemoryError, ZeroDivisionError])
def test_an_internal_error_is_no_result_and_releases_the_claims_of_its_worker(
    fault: type[Exception], tmp_path: Path
) -> None:
    """A surviving worker that held its claims would block the other cases of its panel for ever."""

    class FaultyEngine(EmptyAnswerEngine):
        def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
            if self.prompt_count == 2:
                self.prompt_count += 1
                raise fault
            yield from super().generate(prompts)

    with worker_of(chat_checkpoint(tmp_path), FaultyEngine(), tmp_path / "journal", cases=2) as (worker, case):
        with pytest.raises(fault):
            worker.measure(case)
        left = {claim.name for claim in (tmp_path / "journal").glob("*/claims/*")}
        assert left <= worker.models["model"].journal.entries.keys()
        other_result = measure_case(worker, worker.run.cases[1])
    assert len(other_result.outcomes) == other_result.case.samples


def test_an_engine_error_affects_one_case_only(tmp_path: Path) -> None:
    """A batch holds prompts of several cases. If one cannot be answered, the others still are."""

    class SelectiveEngine(EmptyAnswerEngine):
        facts = replace(EmptyAnswerEngine.facts, batch_size=9)

        def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
            for prompt in prompts:
                if "special magic uuid" in prompt.text:
                    raise EngineError("token id 9 is outside the vocabulary")
                yield from super().generate([prompt])

    with worker_of(chat_checkpoint(tmp_path), SelectiveEngine(), tmp_path / "journal", cases=3) as (worker, _):
        results = [measure_case(worker, case) for case in worker.run.cases[:3]]
    assert [result.case.task for result in results] == ["niah_single_1", "niah_single_2", "niah_single_3"]
    assert [result.error for result in results] == [None, None, "token id 9 is outside the vocabulary"]


@pytest.mark.parametrize("parent", [None, 1])
def test_only_a_worker_ends_with_the_process_that_started_it(parent: int | None, tmp_path: Path) -> None:
    """A controller has no such parent: a run in the background outlives its shell."""
    with worker_of(chat_checkpoint(tmp_path), EmptyAnswerEngine(), tmp_path / "journal", parent=parent) as (
        worker,
        case,
    ):
        if parent is None:
            assert worker.measure(case).error is None
        else:
            with pytest.raises(Stopped):
                worker.measure(case)
