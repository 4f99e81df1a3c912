"""A table of a TOML file, read strictly: every error names the table, the key, the value and what is accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from fixtures.lengths import LengthError, parse_length

Value = TypeVar("Value")


class TomlTable:
    """One table; all methods raise ValueError with one line for a value that is missing or not accepted.

    `place` names the table in messages. A key that is not among `known_keys` is an error, because a misspelt key
    would otherwise silently have no effect.
    """

    def __init__(self, values: Any, place: str, known_keys: Iterable[str] | None = None):
        if not isinstance(values, dict):
            raise ValueError(f"{place} is {values!r}; write a table")
        self.values: Mapping[str, Any] = values
        self.place = place
        if known_keys is not None:
            self.check_keys(known_keys)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def check_keys(self, known_keys: Iterable[str]) -> None:
        known = tuple(known_keys)
        for key in self.values:
            if key not in known:
                raise ValueError(f"{self.place} has an unknown key {key!r}; known are {', '.join(known)}")

    def error(self, problem: str) -> ValueError:
        """Return an error about the table as a whole."""
        return ValueError(f"{self.place}: {problem}")

    def value(self, key: str, kind: type[Value], accepted: str) -> Value:
        """Return a required value of a type; `accepted` completes "write ..." in the message."""
        value = self.values.get(key)
        if not isinstance(value, kind):
            raise self._rejected(key, accepted)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        return self.value(key, bool, "true or false") if key in self else default

    def choice(self, key: str, choices: tuple[str, ...], *, default: str | None = None) -> Any:
        """Return one of several words; a choice without a default is required."""
        value = self.values.get(key, default)
        if value not in choices:
            raise self._rejected(key, f"one of {', '.join(choices)}")
        return value

    def number(self, key: str, *, default: float, minimum: float, maximum: float) -> float:
        """Return a number within a range."""
        value = self.values.get(key, default)
        if not _is_number(value) or not minimum <= value <= maximum:
            raise self._rejected(key, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def score(self, key: str) -> float:
        """Return a required score from 0 to 100."""
        value = self.values.get(key)
        if not _is_number(value) or not 0 <= value <= 100:
            raise self._rejected(key, "a score from 0 to 100")
        return float(value)

    def score_or_reference(self, key: str) -> float | None:
        """Return a required score from 0 to 100; None for "reference"."""
        value = self.values.get(key)
        if value == "reference":
            return None
        if not _is_number(value) or not 0 <= value <= 100:
            raise self._rejected(key, 'a score from 0 to 100, or "reference"')
        return float(value)

    def length(self, key: str, value: Any) -> int:
        """Return a length in tokens, given as "8k" or 8192 under a key."""
        if isinstance(value, str | int) and not isinstance(value, bool):
            try:
                return parse_length(str(value))
            except LengthError:
                pass
        raise self.error(f'{key} has {value!r}; write a length such as "8k" or 8192')

    def _rejected(self, key: str, accepted: str) -> ValueError:
        value = repr(self.values[key]) if key in self else "missing"
        return self.error(f"{key} is {value}; write {accepted}")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
