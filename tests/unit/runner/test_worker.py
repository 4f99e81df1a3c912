"""What a worker takes at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.records import Generation, Prompt
from plugins.config.baseline import Baseline
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel, PanelStatus
from plugins.journal import Heartbeat, Journal, Subject
from plugins.journal.lines import LostClaim, encode_line
from plugins.runner.batches import FEW_SAMPLES_LEFT, ModelUnderTest
from plugins.runner.worker import Worker
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.workers import EmptyAnswerEngine, worker_of

GROUP = 6
QUESTIONS = 3


class Recorder(EmptyAnswerEngine):
    """Keeps the contexts it was asked about together, and says when it was asked."""

    def __init__(self, asked: Callable[[], None]) -> None:
        super().__init__()
        self.say = asked
        self.calls: list[list[str]] = []

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        self.say()
        # Of questions on a JSON object everything up to the object's end.
        self.calls.append([prompt.text.rpartition("}")[0] for prompt in prompts])
        yield from super().generate(prompts)


@pytest.mark.parametrize(("held", "taken"), [(0, [6, 6, 6]), (1, [5, 6, 1, 6]), (6, [6, 6, 6])])
def test_questions_on_one_context_are_answered_by_one_worker(held: int, taken: list[int], tmp_path: Path) -> None:
    """Also where another worker has some of them, and gives them back: what is free of a context stays together."""
    with worker_of(
        calibration_checkpoint("512"), (engine := Recorder(lambda: other.release_all())), tmp_path,
        suite="helmet", lengths=(2048,), samples=QUESTIONS,
    ) as (worker, case), Heartbeat(tmp_path, worker.run.id) as heartbeat:  # fmt: skip
        assert (case.task, case.group, case.samples) == ("json_kv", GROUP, GROUP * QUESTIONS)
        (panel,) = worker.panel_state.panels.values()
        other = Journal(tmp_path, worker.models["model"].journal.subject, heartbeat)
        assert len(other.claim([worker.panel_state.keys(panel)[element] for element in panel.order], held)) == held
        worker.measure(case)
    assert [len(call) for call in engine.calls] == taken
    assert [len(set(call)) for call in engine.calls] == [1] * len(taken)


def test_who_finds_a_panel_in_other_hands_works_on_another(tmp_path: Path) -> None:
    engine = Recorder(lambda: other.release_all())
    with worker_of(calibration_checkpoint("full"), engine, tmp_path, cases=26, lengths=(512, 1024), samples=1) as (
        worker,
        case,
    ):
        short, long = worker.panel_state.panels.values()
        with Heartbeat(tmp_path, worker.run.id) as heartbeat:
            other = Journal(tmp_path, worker.models["model"].journal.subject, heartbeat)
            held = [worker.panel_state.keys(short)[element] for element in short.order]
            assert other.claim(held, len(held)) == held
            waits = threading.Timer(20, other.release_all)
            waits.start()
            worker.measure(case)
            waits.cancel()
        entries = worker.models["model"].journal.entries
    assert case.length == short.length
    assert next(iter(entries)) in worker.panel_state.keys(long).values()
    assert worker.panel_state.keys(short)[SampleRef(case.id, 0)] in entries


def test_nobody_goes_where_a_worker_died(tmp_path: Path) -> None:
    """A second death there would be laid to the case of whoever had come to help."""
    with worker_of(
        calibration_checkpoint("full"), EmptyAnswerEngine(), tmp_path, cases=26, lengths=(512, 1024), samples=1
    ) as (
        worker,
        case,
    ):
        short, long = worker.panel_state.panels.values()
        journal, keys = worker.models["model"].journal, worker.panel_state.keys(long)
        line = encode_line(LostClaim(key=keys[long.order[-1]], run=worker.run.id))
        (journal.folder / "another.jsonl").write_bytes(line)
        held = [worker.panel_state.keys(short)[element] for element in short.order]
        with Heartbeat(tmp_path, worker.run.id) as heartbeat:
            other = Journal(tmp_path, journal.subject, heartbeat)
            assert other.claim(held, len(held)) == held
            waits = threading.Timer(1, other.release_all)
            waits.start()
            worker.measure(case)
            waits.cancel()
        assert journal.entries
        assert journal.entries.keys().isdisjoint(keys.values())


def test_who_waits_thinks_again_only_when_something_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thought: list[int] = []
    status = Panel.status

    def counted(panel: Panel, *args: Any, **settings: Any) -> PanelStatus:
        thought.append(panel.length)
        return status(panel, *args, **settings)

    monkeypatch.setattr(Panel, "status", counted)
    with worker_of(calibration_checkpoint("full"), EmptyAnswerEngine(), tmp_path, cases=13, samples=1) as (
        worker,
        case,
    ):
        (panel,) = worker.panel_state.panels.values()
        assert len({id(worker.panel_state.status(panel)) for _ in range(10)}) == len(thought) == 1
        worker.measure(case)
        asked = len(thought)
        assert worker.panel_state.status(panel).next_samples == ()
        worker.models["model"].journal.record_failure(case.id, "broken")
        assert case.id not in worker.panel_state.status(panel).evidence_counts
        assert len(thought) == asked + 1


class Server(EmptyAnswerEngine):
    """An engine that is asked ahead."""

    facts = replace(EmptyAnswerEngine.facts, engine="openai", batch_size=4)

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Prompt] = []

    def prefetch(self, prompts: Sequence[Prompt]) -> None:
        self.begun += prompts

    def cancel_queued(self) -> None: ...

    def is_prefetched(self, prompt: Prompt) -> bool:
        return prompt in self.begun

    def close(self) -> None: ...


def test_a_server_and_the_baseline_beside_it_each_answer_their_own_part(tmp_path: Path) -> None:
    model = calibration_checkpoint("full")
    server, here = Server(), EmptyAnswerEngine()
    with worker_of(model, server, tmp_path, cases=13, lengths=(512,), samples=8) as (alone, case):
        checkpoint = read_checkpoint(str(model))
        baseline = Baseline(name="b", fingerprint="b", journal=str(tmp_path), checkpoint=checkpoint)
        with Heartbeat(tmp_path, alone.run.id) as heartbeat:
            subject = Subject(model="b", fingerprint="b", execution={"engine": "fake"})
            beside = ModelUnderTest(journal=Journal(tmp_path, subject, heartbeat), engine=lambda: here)
            worker = Worker(
                replace(alone.run, baseline=baseline, deadline=time.time() + 30),
                alone.run.cases[:13],
                builder=alone.builder,
                models={"model": alone.models["model"], "baseline": beside},
            )
            worker.measure(case)
            assert worker.panel_state.status(*worker.panel_state.panels.values()).next_samples == (), (
                "it waits for its own claims"
            )
            worker.close()
    assert server.prompt_count == here.prompt_count == len(set(server.begun)) > FEW_SAMPLES_LEFT
