"""Show the progress of a run: a line for each panel, read from the journals."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext, suppress
from statistics import fmean

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.lengths import format_length
from longctx.fixtures.shown_text import shown_columns, visible_line, wrapped
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.sequential import InterimAnalysis
from longctx.plugins.journal import JournalError
from longctx.plugins.plan import duration
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.stash import CONTROLLER, RUN
from longctx.plugins.verdicts.hypotheses import RULER, PanelKey
from longctx.plugins.verdicts.panels import Panel, PanelStatus

TERMINAL_SECONDS = 1.0
# A log keeps every line, so it gets fewer.
LOG_SECONDS = 60.0


def _panel_line(
    panel: Panel, status: PanelStatus, scores: Mapping[SampleRef, float], seconds_left: float | None, baseline: int
) -> str:
    """Return one line: length, finished samples, the longest remaining time, the mean and the verdicts.

    `baseline` is the number of samples that a baseline has answered in this run.
    """
    name = "" if panel.family == RULER else f"{panel.family} "
    parts = [f"{name + format_length(panel.length):>6}", f"{len(scores):,} of {len(panel.order):,}"]
    if status.next_samples and seconds_left is not None:
        parts.append(f"{duration(seconds_left)} at most")
    if baseline:
        parts.append(f"baseline {baseline:,}")
    tests = [hypothesis for hypothesis in panel.hypotheses if hypothesis.threshold is not None]
    if tests:
        by_case = {case_id: list[float]() for case_id in tests[0].case_ids}
        for ref, score in scores.items():
            if ref.case_id in by_case:
                by_case[ref.case_id].append(score)
        # Reports show the mean of the cases' means too; some of the cases alone say nothing about it.
        if all(by_case.values()):
            mean = fmean(map(fmean, by_case.values()))
            parts.append(f"{to_points(mean):.1f}")
        parts.append("/".join(_word(status.analyses[hypothesis]) for hypothesis in tests))
    for comparison, analysis in status.comparisons.items():
        parts.append(f"{comparison.gate or 'regression'} {_word(analysis)}")
    return "  ".join(parts)


def _word(analysis: InterimAnalysis) -> str:
    return analysis.decision.verdict if analysis.decision else "undecided"


class _Watcher:
    def __init__(self, panel_state: PanelState, clock: Callable[[], float] = time.monotonic):
        self.panel_state = panel_state
        self.clock = clock
        self._open = dict(panel_state.panels)
        self._samples: dict[PanelKey, int] = {}
        self._began: dict[PanelKey, tuple[float, int]] = {}
        """The time at which work on each panel began, and the number of its results then."""
        self._growing: PanelKey | None = None
        """The panel that grew last, at this time."""
        self._last_seconds = clock()

    def look(self) -> Iterator[tuple[str, bool]]:
        """Yield the line of every panel that has finished, with True, then that of the panel that grew last."""
        self.panel_state.refresh()
        own, other = self.panel_state.journals["model"], self.panel_state.journals.get("baseline")
        measures_baseline = other is not None and other is not own and not self.panel_state.baseline_is_final
        unfinished: dict[PanelKey, str] = {}
        shortest: int | None = None
        for key, panel in tuple(self._open.items()):
            # Workers go through the lengths one after the other, and through the panels of one in the tests' order.
            if shortest is not None and panel.length > shortest:
                break
            scores = self.panel_state.scores(panel)
            baseline = len(self.panel_state.scores(panel, "baseline")) if measures_baseline else 0
            self._note_growth(key, len(scores) + baseline)
            status = self.panel_state.status(panel)
            seconds_left = self._seconds_left(key, len(panel.order) - len(scores))
            line = _panel_line(panel, status, scores, seconds_left, baseline)
            if not status.next_samples:
                del self._open[key]
                yield line, True
                continue
            shortest = panel.length
            if scores:
                unfinished[key] = line
        if self._growing in unfinished:
            yield unfinished[self._growing], False
        elif unfinished:
            yield next(iter(unfinished.values())), False

    def _note_growth(self, key: PanelKey, samples: int) -> None:
        """Note whether a panel has grown; work on it began when the panel before it grew for the last time."""
        before = self._samples.setdefault(key, samples)
        if samples > before:
            self._began.setdefault(key, (self._last_seconds, before))
            self._samples[key], self._growing, self._last_seconds = samples, key, self.clock()

    def _seconds_left(self, key: PanelKey, samples: int) -> float | None:
        """Return the time that so many further samples take; None as long as nothing is known."""
        if key not in self._began:
            return None
        began, first = self._began[key]
        return samples * (self.clock() - began) / (self._samples[key] - first)

    @property
    def has_begun(self) -> bool:
        return bool(self._began)


class _Progress:
    """Write the watcher's lines between those of pytest: in place on a terminal, once a minute in a log."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        self.config = config
        self.reporter = reporter
        self.live = bool(reporter.isatty)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="longctx-progress", daemon=True)
        self._shown = False
        self._dirty = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        # The thread might have to wait until the first test has imported torch.
        self._write(self._beginning(0), done=True)
        self._thread.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logstart(self) -> Generator[None, None, None]:
        """Let pytest write the name or the result of a test on an empty line, and continue on another one."""
        self._clear()
        yield
        self._dirty = True

    pytest_runtest_logreport = pytest_runtest_logstart

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """End the thread before the run is evaluated, which reads the same journals."""
        self._ended.set()
        if self._thread.ident:
            self._thread.join()
        yield

    def _follow(self) -> None:
        controller = self.config.stash[CONTROLLER]
        began = time.monotonic()
        # Workers collect the cases, which takes them a while.
        while not self._ended.wait(TERMINAL_SECONDS) and not controller.selected:
            pass
        # Journals that cannot be read fail the cases with the reason.
        with suppress(JournalError, EngineError):
            watcher = _Watcher(controller.open_journals())
            written = time.monotonic()
            while True:
                ended = self._ended.wait(TERMINAL_SECONDS)
                late = self.live or time.monotonic() - written >= LOG_SECONDS
                lines = list(watcher.look())
                if not watcher.has_begun and not any(done for _, done in lines):
                    lines = [(self._beginning(time.monotonic() - began), False)]
                for line, done in lines:
                    if done or (late and not ended):
                        written = time.monotonic()
                        self._write(line, done=done)
                if ended:
                    return

    def _beginning(self, seconds: float) -> str:
        run = self.config.stash[RUN]
        baseline = run.baseline
        names = [run.options.model, *([baseline.name] if baseline is not None and baseline.checkpoint else [])]
        # A terminal cuts the end of a long line, and the time must be seen to move.
        waited = f"{duration(seconds)}  " if seconds >= 1 else ""
        begun = "loading" if run.endpoint is None else "waiting for"
        # A path may hold any character.
        return f"{waited}{begun} {visible_line(' and '.join(names))}: first answers ..."

    def _write(self, line: str, *, done: bool) -> None:
        # Without workers, pytest captures the output of the test that is running.
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            self._clear()
            if self._dirty:
                self.reporter.write("\n")
                self._dirty = False
            columns = shown_columns(self.live)
            if self.live and not done:
                # A line that wraps could not be erased.
                self.reporter.rewrite(line[: columns - 1], erase=True)
                self._shown = True
                return
            for part in wrapped(line, columns):
                self.reporter.write_line(part)

    def _clear(self) -> None:
        if self._shown:
            self._shown = False
            self.reporter.rewrite("", erase=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the progress plugin last, when the terminal reporter is there."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN not in config.stash or reporter is None or hasattr(config, "workerinput") or config.get_verbosity() < 0:
        return
    if not (config.option.plan or config.option.collectonly or config.stash[RUN].options.preflight):
        config.pluginmanager.register(_Progress(config, reporter), "longctx-progress")
