"""What a run says while it runs: the panel on which work goes on, whichever of a length's panels that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fixtures.records import Case, Score
from plugins.config.run import Run
from plugins.gates.panels import Panel
from plugins.journal import Heartbeat, Journal
from plugins.progress import Watcher
from plugins.runner.panel_state import PanelState
from tests.helpers.journals import SUBJECT, entry
from tests.helpers.reports import run_summary

COLUMNS = 100


@dataclass
class Clock:
    """A time that stands still until it is told to go on."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Watched:
    """A run without a model, its journal, and who watches it."""

    run: Run
    journal: Journal
    watcher: Watcher
    clock: Clock

    def panel(self, family: str, length: int) -> Panel:
        return self.watcher.panel_state.panels[family, length]

    def answer(self, panel: Panel, elements: int, value: float = 1.0, *, start: int = 0) -> None:
        """The panel's next elements, each with this score."""
        for element in panel.order[start : start + elements]:
            case: Case = panel.cases[element.case_id]
            key = self.run.key(case, element.sample_index)
            written = entry(key, case=case.id)
            outcome = msgspec.structs.replace(written.outcome, index=element.sample_index, score=Score(value=value))
            self.journal.append(msgspec.structs.replace(written, index=element.sample_index, outcome=outcome))

    def look(self, seconds: float = 1.0) -> list[tuple[str, bool]]:
        self.clock.now += seconds
        return list(self.watcher.look())


@contextmanager
def watched(folder: Path, *, samples: int = 10) -> Iterator[Watched]:
    run = run_summary(samples=samples, lengths=(4096, 8192)).run
    clock = Clock()
    heartbeat = Heartbeat(folder, run.id)
    journal = Journal(folder, SUBJECT, heartbeat)
    panel_state = PanelState(run, run.cases, {"model": Journal(folder, SUBJECT)})
    try:
        yield Watched(run, journal, Watcher(panel_state, clock), clock)
    finally:
        journal.close()
        heartbeat.close()


def test_nothing_is_said_before_there_is_a_result(tmp_path: Path) -> None:
    with watched(tmp_path) as found:
        assert found.look() == []


def test_the_panel_that_grows_is_told_whichever_it_is_of_its_length(tmp_path: Path) -> None:
    """RULER's panel comes first in the plan, the tests of other families first in the files."""
    with watched(tmp_path) as found:
        found.look()
        rag, ruler = found.panel("rag", 4096), found.panel("ruler", 4096)
        found.answer(rag, 3)
        ((line, done),) = found.look()
        assert line.split("  ")[:2] == ["rag 4k", f"3 of {len(rag.order)}"]
        assert not done
        found.answer(ruler, 2)
        ((line, _),) = found.look()
        assert line.split()[:4] == ["4k", "2", "of", str(len(ruler.order))]
        found.answer(rag, 1, start=3)
        ((line, _),) = found.look()
        assert line.startswith("rag 4k  4 of ")


def test_a_panel_that_is_done_is_told_once(tmp_path: Path) -> None:
    with watched(tmp_path) as found:
        recall = found.panel("recall", 4096)
        found.answer(recall, len(recall.order))
        told = found.look()
        assert [(line.split("  ")[0], done) for line, done in told] == [("recall 4k", True)]
        assert found.look() == []


def test_a_longer_length_is_told_once_the_shorter_one_is_done(tmp_path: Path) -> None:
    with watched(tmp_path, samples=1) as found:
        for (_, length), panel in found.watcher.panel_state.panels.items():
            if length == 4096:
                found.answer(panel, len(panel.order))
        longer = found.panel("icl", 8192)
        found.answer(longer, 1)
        told = found.look()
        assert [done for _, done in told].count(False) == 1
        assert told[-1][0].startswith("icl 8k  1 of ")


def test_the_speed_is_that_since_work_on_the_panel_began(tmp_path: Path) -> None:
    """Not since the run did, nor with what an earlier run left; an entry stands for 4009 tokens."""
    with watched(tmp_path) as found:
        rag, ruler = found.panel("rag", 4096), found.panel("ruler", 4096)
        found.answer(ruler, 50)
        assert "tokens/s" not in found.look()[0][0]
        found.answer(rag, 10)
        assert f"{10 * 4009 / 101:,.0f} tokens/s" in found.look(100)[-1][0]
        found.answer(ruler, 20, start=50)
        ((line, _),) = found.look(10)
        assert f"{20 * 4009 / 10:,.0f} tokens/s" in line
        assert line.startswith(f"    4k  70 of {len(ruler.order)}  ")
        # 60 elements are left, at two a second.
        assert re.search(r"  30 s left at most$", line)
        assert len(line) <= COLUMNS
