"""The command line of one pytest run as plain values, so that nothing here needs pytest."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures.installation import scratch_directory
from fixtures.outside_files import absolute


class ConfigError(ValueError):
    """Options from which no run can be built; the message is one line with the option, its value and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A parsed command line and the process that it was given to."""

    arguments: Namespace
    """The parsed options, with pytest's own among them; the values of numeric options may still be text."""

    root: Path
    """pytest's root directory: the clone of this repository, or the installed package."""

    directory: Path
    """The directory in which the command was typed; relative paths start here."""

    local_workers: int | None
    """The number of workers on this machine; None if some of them run on other machines."""

    is_narrowed: bool
    """True if -k, -m or a test id selects some of the cases, so that a problem of one case need not stop the run."""

    add_cleanup: Callable[[Callable[[], None]], object]
    """Registers a function to be called when the run ends."""

    announce: Callable[[str], None] = lambda line: None
    """Shows a line before something that may take long."""

    @property
    def scratch(self) -> Path:
        """The directory for journals, built checkpoints and server logs."""
        return scratch_directory(self.root)

    def path(self, given: str | None) -> str | None:
        """Return a path option as an absolute path; None if the option was not given."""
        return None if given is None else str(absolute(given, directory=self.directory))
