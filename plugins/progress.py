"""Show the progress of a run: a line for each panel, read from the journals."""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from statistics import fmean

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.lengths import format_length
from longctx.fixtures.shown_text import shown_columns, visible_line, wrapped
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.points import to_points
from longctx.plugins.journal import JournalError
from longctx.plugins.plan import duration
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.stash import CONTROLLER, RUN
from longctx.plugins.verdicts.hypotheses import RULER, PanelKey
from longctx.plugins.verdicts.panels import Panel, PanelStatus

TERMINAL_SECONDS = 1.0
# A log keeps every line, so it gets fewer.
LOG_SECONDS = 60.0


@dataclass(slots=True)
class _Growth:
    """The growth of a panel since the watcher first read it."""

    first: int
    """The number of results at the first reading."""
    samples: int
    began_seconds: float | None = None
    """The time of the clock at which work on the panel began; None as long as it has not grown."""
    last_seconds: float = -math.inf
    """The time at which the last result came."""

    def seconds_left(self, samples: int, now: float) -> float | None:
        """Return the time that so many further samples take; None as long as nothing is known."""
        if self.began_seconds is None or now <= self.began_seconds:
            return None
        return samples * (now - self.began_seconds) / (self.samples - self.first)


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
            parts.append(f"{to_points(fmean(map(fmean, by_case.values()))):.1f}")
        decisions = [status.analyses[hypothesis].decision for hypothesis in tests]
        parts.append("/".join(decision.verdict if decision else "undecided" for decision in decisions))
    for comparison, analysis in status.comparisons.items():
        word = analysis.decision.verdict if analysis.decision else "undecided"
        parts.append(f"{comparison.gate or 'regression'} {word}")
    return "  ".join(parts)


class _Watcher:
    def __init__(self, panel_state: PanelState, clock: Callable[[], float] = time.monotonic):
        self.panel_state = panel_state
        self.clock = clock
        self._open = dict(panel_state.panels)
        self._growth: dict[PanelKey, _Growth] = {}
        self._last_seconds = clock()

    def look(self) -> Iterator[tuple[str, bool]]:
        """Yield the line of every panel that has finished, with True, then that of the panel that grew last."""
        self.panel_state.refresh()
        own, other = self.panel_state.journals["model"], self.panel_state.journals.get("baseline")
        measures_baseline = other is not None and other is not own and not self.panel_state.baseline_is_final
        unfinished: list[tuple[float, str]] = []
        shortest: int | None = None
        for key, panel in tuple(self._open.items()):
            # Workers go through the lengths one after the other, and through the panels of one in the tests' order.
            if shortest is not None and panel.length > shortest:
                break
            scores = self.panel_state.scores(panel)
            baseline = len(self.panel_state.scores(panel, "baseline")) if measures_baseline else 0
            growth = self._grown(key, len(scores) + baseline)
            status = self.panel_state.status(panel)
            seconds_left = growth.seconds_left(len(panel.order) - len(scores), self.clock())
            line = _panel_line(panel, status, scores, seconds_left, baseline)
            if not status.next_samples:
                del self._open[key]
                yield line, True
                continue
            shortest = panel.length
            if scores:
                unfinished.append((growth.last_seconds, line))
        if unfinished:
            yield max(unfinished, key=lambda timed_line: timed_line[0])[1], False

    def _grown(self, key: PanelKey, samples: int) -> _Growth:
        """Return the growth of a panel; its time begins when the panel before it grew for the last time."""
        growth = self._growth.setdefault(key, _Growth(first=samples, samples=samples))
        if samples > growth.samples:
            if growth.began_seconds is None:
                growth.began_seconds = self._last_seconds
            growth.last_seconds = self._last_seconds = self.clock()
            growth.samples = samples
        return growth

    @property
    def has_begun(self) -> bool:
        return any(growth.began_seconds is not None for growth in self._growth.values())


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
