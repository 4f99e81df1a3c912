"""Count the requests that Python code makes to a file system, as a network file system sends them to its server."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

EVENTS = {
    "open": "open", "os.listdir": "list", "os.scandir": "list", "os.remove": "remove", "os.rename": "rename",
    "os.link": "create", "os.mkdir": "create",
}  # fmt: skip
KINDS = ("open", "list", "state", "write", "remove", "rename", "create")


class Requests:
    """Counts the requests of this process's calls while it is switched on."""

    def __init__(self, replace: Callable[[Any, str, Any], None] = setattr) -> None:
        """Replace some functions of `os`; a test gives its own `replace`, which undoes that."""
        self.counts: Counter[str] = Counter()
        self._is_on = False
        sys.addaudithook(self._audit)
        # No audit event tells of these.
        self._scandir = os.scandir
        replace(os, "scandir", self._list)
        for name, kind in (("stat", "state"), ("lstat", "state"), ("fstat", "state"), ("write", "write")):
            replace(os, name, self._counted(getattr(os, name), kind))

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the requests of the block."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def _audit(self, event: str, arguments: Any) -> None:
        if self._is_on and event in EVENTS:
            self.counts[EVENTS[event]] += 1

    def _counted(self, function: Any, kind: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._is_on:
                self.counts[kind] += 1
            return function(*arguments, **options)

        return call

    def _list(self, path: Any) -> Any:
        """List a directory with entries that count how often their state is read."""
        listing = self._scandir(path)
        return _Listing(listing, lambda function: self._counted(function, "state")) if self._is_on else listing


class _Listing:
    """A listing of `os.scandir` whose entries are `_Item`s."""

    def __init__(self, listing: Any, counted: Callable[[Any], Any]):
        self._listing, self._counted_by = listing, counted

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *error: object) -> None:
        self._listing.close()

    def __iter__(self) -> Iterator[_Item]:
        return (_Item(item.name, item.is_file, self._counted_by(item.stat)) for item in self._listing)


class _Item(NamedTuple):
    """The part of an entry that the journal uses; a listing says by itself which entries are files."""

    name: str
    is_file: Callable[[], bool]
    stat: Callable[[], os.stat_result]
