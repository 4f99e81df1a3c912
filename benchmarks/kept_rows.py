"""A file that keeps the rows of a long simulation, so that a stopped one continues where it ended."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longctx.fixtures.installation import SUITE

Row = Mapping[str, Any]


class KeptRows:
    """JSON lines, each with the settings of one simulation and its result.

    `folders` of the repository hold the code that decides; the rows of other code are ignored. Without a path nothing
    is kept.
    """

    def __init__(self, path: Path | None, folders: Iterable[str] = ()):
        self.path = path
        digest = hashlib.blake2b(digest_size=8)
        for file in sorted(file for folder in folders for file in (SUITE / folder).glob("**/*.py")):
            digest.update(file.read_bytes())
        self._code = digest.hexdigest()
        self._known: dict[str, Row] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path is not None and path.exists() else [""]
        # The last line of a killed process may end in the middle; no other one starts behind it.
        self._is_torn = bool(lines[-1])
        for line in lines[:-1]:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row["code"] == self._code:
                self._known[_key(row["settings"])] = row["result"]

    def get(self, settings: Row) -> Row | None:
        """Return the result of these settings; None if it is not known."""
        return self._known.get(_key(settings))

    def add(self, settings: Row, result: Row) -> None:
        """Keep a result."""
        self._known[_key(settings)] = result
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"settings": settings, "code": self._code, "result": result})
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_torn + line + "\n")
        self._is_torn = False


def _key(settings: Row) -> str:
    return json.dumps(settings, sort_keys=True)
