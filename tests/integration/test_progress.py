"""Progress lines of a run: they describe the panel that is growing, of any family."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec

from longctx.fixtures.records import Case, Score
from longctx.plugins.config.run import Run
from longctx.plugins.journal import Heartbeat, Journal, Subject
from longctx.plugins.progress import _Watcher
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.verdicts.panels import ModelRole, Panel
from tests.helpers.journals import SUBJECT, Clock, entry
from tests.helpers.reports import run_summary

COLUMNS = 80


@dataclass
class WatchedRun:
    """A run without a model, with its journal and its watcher."""

    run: Run
    journals: dict[ModelRole, Journal]
    watcher: _Watcher
    clock: Clock

    def panel(self, family: str, length: int) -> Panel:
        return self.watcher.panel_state.panels[family, length]

    def record(
        self, panel: Panel, samples: int, value: float = 1.0, *, start: int = 0, role: ModelRole = "model"
    ) -> None:
        """Append the panel's samples from position `start` to a journal, all with the score `value`."""
        for ref in panel.order[start : start + samples]:
            case: Case = panel.cases[ref.case_id]
            key = self.run.key(case, ref.sample_index)
            template = entry(key, case=case.id)
            outcome = msgspec.structs.replace(template.outcome, index=ref.sample_index, score=Score(value=value))
            self.journals[role].append(msgspec.structs.replace(template, index=ref.sample_index, outcome=outcome))

    def look(self, seconds: float = 1.0) -> list[tuple[str, bool]]:
        """Advance the clock and return the new progress lines; True marks a finished panel."""
        self.clock.now += seconds
        return list(self.watcher.look())


@contextmanager
def watched(folder: Path, *, samples: int = 10, with_baseline: bool = False) -> Iterator[WatchedRun]:
    run = run_summary(samples=samples, lengths=(4096, 8192), paired=with_baseline).run
    assert isinstance(run, Run)
    clock = Clock()
    heartbeat = Heartbeat(folder, run.id)
    subjects: dict[ModelRole, Subject] = {"model": SUBJECT}
    if with_baseline:
        subjects["baseline"] = msgspec.structs.replace(SUBJECT, fingerprint="b" * 32)
    journals = {role: Journal(folder, subject, heartbeat) for role, subject in subjects.items()}
    panel_state = PanelState(run, run.cases, {role: Journal(folder, subject) for role, subject in subjects.items()})
    try:
        yield WatchedRun(run, journals, _Watcher(panel_state, clock), clock)
    finally:
        for journal in journals.values():
            journal.close()
        heartbeat.close()


def test_progress_is_shown_for_the_panel_that_grows(tmp_path: Path) -> None:
    """RULER's panel comes first in the plan, the panels of other families first in the test files."""
    with watched(tmp_path) as progress:
        progress.look()
        rag, ruler = progress.panel("rag", 4096), progress.panel("ruler", 4096)
        progress.record(rag, 3)
        ((line, done),) = progress.look()
        assert line.split("  ")[:2] == ["rag 4k", f"3 of {len(rag.order)}"]
        assert not done
        progress.record(ruler, 2)
        ((line, _),) = progress.look()
        assert line.split()[:4] == ["4k", "2", "of", str(len(ruler.order))]
        progress.record(rag, 1, start=3)
        ((line, _),) = progress.look()
        assert line.startswith("rag 4k  4 of ")


def test_a_finished_panel_is_shown_once(tmp_path: Path) -> None:
    with watched(tmp_path) as progress:
        recall = progress.panel("recall", 4096)
        progress.record(recall, len(recall.order))
        lines = progress.look()
        assert [(line.split("  ")[0], done) for line, done in lines] == [("recall 4k", True)]
        assert progress.look() == []


def test_a_longer_length_is_shown_after_the_shorter_one_is_finished(tmp_path: Path) -> None:
    with watched(tmp_path, samples=1) as progress:
        for (_, length), panel in progress.watcher.panel_state.panels.items():
            if length == 4096:
                progress.record(panel, len(panel.order))
        longer = progress.panel("icl", 8192)
        progress.record(longer, 1)
        lines = progress.look()
        assert [done for _, done in lines].count(False) == 1
        assert lines[-1][0].startswith("icl 8k  1 of ")


def test_the_time_left_follows_from_the_time_since_work_on_the_panel_began(tmp_path: Path) -> None:
    """Neither the rest of the run nor results of an earlier run count."""
    with watched(tmp_path) as progress:
        rag, ruler = progress.panel("rag", 4096), progress.panel("ruler", 4096)
        progress.record(ruler, 50)
        assert "at most" not in progress.look()[0][0]
        progress.record(rag, 10)
        assert f"  {round((len(rag.order) - 10) * 10.1 / 60)} min at most" in progress.look(100)[-1][0]
        progress.record(ruler, 20, start=50)
        ((line, _),) = progress.look(10)
        assert line.startswith(f"    4k  70 of {len(ruler.order)}  ")
        # 60 samples remain, at two per second.
        assert "  30 s at most  " in line
        assert len(line) <= COLUMNS


def test_the_answers_of_a_baseline_count_as_progress(tmp_path: Path) -> None:
    with watched(tmp_path, with_baseline=True) as progress:
        assert progress.look() == []
        assert not progress.watcher.has_begun
        ruler = progress.panel("ruler", 4096)
        progress.record(ruler, 2)
        progress.record(ruler, 3, role="baseline")
        ((line, _),) = progress.look(10)
        assert progress.watcher.has_begun
        assert "  baseline 3  " in line
        assert f"  {round((len(ruler.order) - 2) * 11 / 5 / 60)} min at most  " in line


def test_the_mean_is_that_of_the_tasks_and_waits_for_all_of_them(tmp_path: Path) -> None:
    with watched(tmp_path) as progress:
        ruler = progress.panel("ruler", 4096)
        progress.record(ruler, 5)
        assert "100.0" not in progress.look()[0][0]
        progress.record(ruler, 45, value=0.0, start=5)
        by_task: dict[str, list[float]] = {}
        for place, ref in enumerate(ruler.order[:50]):
            by_task.setdefault(ref.case_id, []).append(100.0 * (place < 5))
        mean = fmean(map(fmean, by_task.values()))
        assert f"  {mean:.1f}  " in progress.look()[0][0]
        assert abs(mean - 10) > 0.1, "the mean of all samples is another one"
