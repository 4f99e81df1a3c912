"""End an interrupted run in plain words: the samples that the journal has, and no traceback."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from plugins.controller import CONTROLLER, INTERRUPTED
from plugins.options import RUN

INTERRUPTION = pytest.StashKey[str]()
"""The statement about an interrupted run; not set for any other run."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """End the run without the place in the code at which Ctrl-C reached it, unless --full-trace asks for it."""
    config = session.config
    try:
        return (yield)
    except KeyboardInterrupt as interrupt:
        if RUN not in config.stash or hasattr(config, "workerinput") or not _is_from_keyboard(interrupt):
            raise
        config.stash[INTERRUPTED] = True
        if config.option.fulltrace:
            raise
    pytest.exit("Ctrl-C", returncode=int(pytest.ExitCode.INTERRUPTED))


def _is_from_keyboard(interrupt: KeyboardInterrupt) -> bool:
    """Return False for the interrupt with which pytest-xdist stops after -x or --maxfail."""
    return type(interrupt) is KeyboardInterrupt or "keyboard-interrupt" in str(interrupt)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """State how many samples the journal has, after the run has been evaluated."""
    yield
    config = session.config
    if INTERRUPTED in config.stash:
        stored, planned = config.stash[CONTROLLER].stored_samples()
        kept = f"{stored:,} of {planned:,} samples kept" if planned else "before the first sample"
        config.stash[INTERRUPTION] = f"interrupted: {kept}; the same command continues"
