"""What a run is doing, while it does it: a line for each panel, read from the journal."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import pytest

from fixtures.engines import EngineError
from fixtures.lengths import format_length
from plugins.controller import CONTROLLER
from plugins.gates.clusters import SampleRef
from plugins.gates.hypotheses import RULER, PanelKey
from plugins.gates.panels import Panel, PanelStatus
from plugins.gates.statistics import interval
from plugins.journal import JournalError
from plugins.options import RUN
from plugins.runner.panel_state import PanelState

TERMINAL_SECONDS = 1.0
# A log keeps every line.
LOG_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What was computed of a panel while this run looked on, and how long that took."""

    samples: int = 0
    tokens: int = 0
    seconds: float = 0.0


def panel_line(panel: Panel, standing: PanelStatus, scores: Mapping[SampleRef, float], pace: Pace) -> str:
    """Length, samples done, mean with its interval, verdicts so far, speed and the longest it can take."""
    planned = len(panel.order)
    name = "" if panel.family == RULER else f"{panel.family} "
    parts = [f"{name + format_length(panel.length):>6}", f"{len(scores):,} of {planned:,}"]
    deciding = [rule for rule in panel.hypotheses if rule.threshold is not None]
    for rule in deciding[:1]:
        look = standing.analyses[rule]
        pool = panel.queue(rule.case_ids)
        values = pool.weighted_means(scores, look.clusters)
        if len(values):
            low, high = (100 * pool.scale * end for end in interval(values, alpha=0.01, population=len(pool.clusters)))
            parts.append(f"{100 * pool.scale * values.mean():.1f} [{low:.1f}, {min(100, high):.1f}]")
    decisions = [standing.analyses[rule].decision for rule in deciding]
    parts += ["/".join(decision.verdict if decision else "open" for decision in decisions)] if decisions else []
    if standing.comparison is not None:
        decision = standing.comparison.decision
        parts.append(f"regression {decision.verdict if decision else 'open'}")
    if pace.samples and pace.seconds > 0:
        parts.append(f"{pace.tokens / pace.seconds:,.0f} tokens/s")
        if standing.next_samples:
            parts.append(f"{_duration((planned - len(scores)) * pace.seconds / pace.samples)} left at most")
    return "  ".join(parts)


@dataclass(slots=True)
class Seen:
    """A panel as the watcher knows it: results before it looked on, results now, when those came.

    `since` is when the work on it began, None as long as nothing was added.
    """

    before: tuple[int, int]
    samples: int
    grew: float = -math.inf
    since: float | None = None


class Watcher:
    """Follows the journals of a run and tells what is done, and how far that is on which work goes on."""

    def __init__(self, panel_state: PanelState, clock: Callable[[], float] = time.monotonic):
        self.panel_state = panel_state
        self.clock = clock
        self._open = dict(panel_state.panels)
        self._seen: dict[PanelKey, Seen] = {}
        self._grew = clock()

    def look(self) -> Iterator[tuple[str, bool]]:
        """(line, whether the panel is done): every panel that was finished, then the one that grew last."""
        self.panel_state.refresh()
        waiting: list[tuple[float, str]] = []
        shortest: int | None = None
        for key, panel in tuple(self._open.items()):
            # Lengths are worked off one after the other, the panels of one in the order of their tests.
            if shortest is not None and panel.length > shortest:
                break
            scores = self.panel_state.scores(panel)
            grew, pace = self._pace(key, len(scores), self._tokens(panel))
            standing = self.panel_state.status(panel)
            line = panel_line(panel, standing, scores, pace)
            if not standing.next_samples:
                del self._open[key]
                yield line, True
                continue
            shortest = panel.length
            if scores:
                waiting.append((grew, line))
        if waiting:
            yield max(waiting, key=lambda each: each[0])[1], False

    def _pace(self, key: PanelKey, samples: int, tokens: int) -> tuple[float, Pace]:
        """When the panel last grew, and how fast it does: since the panel before it grew for the last time."""
        seen = self._seen.setdefault(key, Seen(before=(samples, tokens), samples=samples))
        if samples > seen.samples:
            seen.since = self._grew if seen.since is None else seen.since
            seen.samples, seen.grew = samples, self.clock()
            self._grew = seen.grew
        seconds = 0.0 if seen.since is None else self.clock() - seen.since
        return seen.grew, Pace(samples=samples - seen.before[0], tokens=tokens - seen.before[1], seconds=seconds)

    def _tokens(self, panel: Panel) -> int:
        entries = self.panel_state.journals["model"].entries
        return sum(entries[key].computed_tokens for key in self.panel_state.keys(panel).values() if key in entries)


class Progress:
    """Writes the watcher's lines beside what pytest writes: rewritten on a terminal, now and then in a log."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        self.config = config
        self.reporter = reporter
        self.live = reporter.isatty
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="longctx-progress", daemon=True)
        self._shown = False
        self._dirty = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        self._thread.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self) -> Generator[None, None, None]:
        """What pytest writes begins on a clean line, and our next line on another."""
        self._clear()
        yield
        self._dirty = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """End the thread before the run is evaluated, which reads the same journals."""
        self._ended.set()
        if self._thread.ident:
            self._thread.join()
        yield

    def _follow(self) -> None:
        controller = self.config.stash[CONTROLLER]
        # With workers, it takes a while until they have told what was selected.
        while not self._ended.wait(TERMINAL_SECONDS) and not controller.selected:
            pass
        # A run that cannot be watched says why in its cases.
        with suppress(JournalError, EngineError):
            watcher = Watcher(controller.open_journals())
            told = time.monotonic()
            while True:
                ended = self._ended.wait(TERMINAL_SECONDS)
                late = self.live or time.monotonic() - told >= LOG_SECONDS
                for line, done in watcher.look():
                    if done or (late and not ended):
                        told = time.monotonic()
                        self._write(line, done=done)
                if ended:
                    return

    def _write(self, line: str, *, done: bool) -> None:
        # Without workers, a test's output is being captured while we write.
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            self._clear()
            if self._dirty:
                self.reporter.write("\n")
                self._dirty = False
            if self.live and not done:
                self.reporter.rewrite(line, erase=True)
                self._shown = True
            else:
                self.reporter.write_line(line)

    def _clear(self) -> None:
        if self._shown:
            self._shown = False
            self.reporter.rewrite("", erase=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Last, when there is a terminal to write to."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN not in config.stash or reporter is None or hasattr(config, "workerinput") or config.get_verbosity() < 0:
        return
    if not (config.option.plan or config.option.collectonly or config.stash[RUN].options.preflight):
        config.pluginmanager.register(Progress(config, reporter), "longctx-progress")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
