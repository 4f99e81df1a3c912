"""What a worker takes at a time."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.records import HAYSTACKS, Generation, Prompt
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.journal import Heartbeat, Journal, Subject
from longctx.plugins.journal.lines import LostClaim, encode_line
from longctx.plugins.runner.worker import FEW_SAMPLES_LEFT, ModelUnderTest, Worker, claim_samples
from longctx.plugins.verdicts.panels import ModelRole, Panel, PanelStatus
from tests.helpers.queues import compare_panels
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
    ) as (worker, case), closing(Heartbeat(tmp_path, worker.run.id)) as heartbeat:  # fmt: skip
        assert (case.task, case.group, case.samples) == ("json_kv", GROUP, GROUP * QUESTIONS)
        (panel,) = worker.panel_state.panels.values()
        other = Journal(tmp_path, worker.models["model"].journal.subject, heartbeat)
        assert len(other.claim([worker.panel_state.keys(panel)[element] for element in panel.order], held)) == held
        worker.measure(case)
    assert [len(call) for call in engine.calls] == taken
    assert [len(set(call)) for call in engine.calls] == [1] * len(taken)


def test_samples_on_one_haystack_are_claimed_one_after_another(tmp_path: Path) -> None:
    engine = EmptyAnswerEngine()
    with worker_of(calibration_checkpoint("512"), engine, tmp_path, cases=2, samples=3 * HAYSTACKS) as (worker, _):
        (panel,) = worker.panel_state.panels.values()
        keys, journal = worker.panel_state.keys(panel), worker.models["model"].journal
        (essays,) = [case for case in panel.cases.values() if case.shares_haystacks]
        queue = panel.queue({essays.id}).refs
        wanted = {keys[ref]: ref for ref in queue}
        claims: list[SampleRef] = []
        for _ in range(4):
            claims += claim_samples(journal, engine, panel, wanted, workers=1, previous=claims[-1:]).values()
    haystack = essays.haystack(queue[0].sample_index)
    assert claims[0] == queue[0]
    assert [ref.sample_index for ref in claims[:3]] == [
        ref.sample_index for ref in queue if essays.haystack(ref.sample_index) == haystack
    ]
    assert claims[3] == next(ref for ref in queue if ref not in claims[:3])


def test_who_finds_a_panel_in_other_hands_works_on_another(tmp_path: Path) -> None:
    engine = Recorder(lambda: other.release_all())
    with worker_of(calibration_checkpoint("full"), engine, tmp_path, cases=26, lengths=(512, 1024), samples=1) as (
        worker,
        case,
    ):
        short, long = worker.panel_state.panels.values()
        with closing(Heartbeat(tmp_path, worker.run.id)) as heartbeat:
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
        with closing(Heartbeat(tmp_path, worker.run.id)) as heartbeat:
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
        with closing(Heartbeat(tmp_path, alone.run.id)) as heartbeat:
            subject = Subject(model="b", fingerprint="b", execution={"engine": "fake"})
            beside = ModelUnderTest(journal=Journal(tmp_path, subject, heartbeat), engine=lambda: here)
            worker = Worker(
                replace(alone.run, baseline=baseline, deadline=time.time() + 300),
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


class PromptKeeper(EmptyAnswerEngine):
    """Keeps the prompts that it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Prompt] = []

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        self.asked += prompts
        return super().generate(prompts)


def test_one_answer_in_eight_is_decoded_to_its_end(tmp_path: Path) -> None:
    """Only whole answers show whether a model ends them; the others are cut as soon as their score is settled."""
    engine = PromptKeeper()
    with worker_of(calibration_checkpoint("full"), engine, tmp_path, lengths=(512,), samples=80) as (worker, case):
        worker.measure(case)
        worker.close()
    assert [bool(prompt.settled_by) for prompt in engine.asked].count(False) == 8


class NeedleReader(EmptyAnswerEngine):
    """Answers with the needle of its prompt, but for some prompts of at most so many tokens."""

    def __init__(self, wrong: int = 0, tokens: int = 0) -> None:
        super().__init__()
        self.wrong, self.tokens = wrong, tokens

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        for prompt, generation in zip(prompts, super().generate(prompts), strict=True):
            needle = re.findall(r"is: (\d+)", prompt.text)[0]
            if len(prompt.token_ids) <= self.tokens and self.wrong:
                self.wrong -= 1
                needle = "nothing"
            yield msgspec.structs.replace(generation, text=needle)


def test_a_loss_in_doubt_is_tested_on_all_lengths(tmp_path: Path) -> None:
    """The test of the longer length ends early; then the loss of the shorter one takes all of its pairs."""
    model, reader = calibration_checkpoint("full"), NeedleReader(9, tokens=300)
    with worker_of(model, reader, tmp_path, cases=26, lengths=(256, 512), samples=125, full=False) as (alone, case):
        cases = [each for each in alone.run.cases if each.task == case.task]
        baseline = Baseline(name="b", fingerprint="b", journal=str(tmp_path), checkpoint=read_checkpoint(str(model)))
        with closing(Heartbeat(tmp_path, alone.run.id)) as heartbeat:
            subject = Subject(model="b", fingerprint="b", execution={"engine": "fake"})
            beside = ModelUnderTest(journal=Journal(tmp_path, subject, heartbeat), engine=NeedleReader)
            run = replace(alone.run, baseline=baseline, thresholds=replace(alone.run.thresholds, gates=()))
            models: dict[ModelRole, ModelUnderTest] = {"model": alone.models["model"], "baseline": beside}
            worker = Worker(run, cases, builder=alone.builder, models=models)
            state = worker.panel_state
            short, long = state.panels.values()
            assert worker.measure(cases[1]).error is None
            assert len(state.scores(long)) < 125
            assert worker.measure(cases[0]).error is None
            assert [len(state.scores(panel, "baseline")) for panel in (short, long)] == [125, 125]
            compared = [(panel, state.scores(panel), state.scores(panel, "baseline")) for panel in (short, long)]
            assert [found.decision for found in compare_panels(compared)] == ["fail", "pass"]
            worker.close()
