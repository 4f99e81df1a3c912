"""The figures that benchmarks/false_verdicts.py prints and compares with their limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; the field names are keys of the JSON file."""

    name: str
    value: float
    most: float | None = None
    """Limit of the value; None if there is none."""
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if the value keeps its limit."""
        return self.most is None or self.value <= self.most

    def __str__(self) -> str:
        required = "" if self.most is None else f"<= {self.most:.2%}"
        result = "" if self.most is None else "ok" if self.ok else "NOT ok"
        return f"{self.name:<58} {self.value:>8.2%}  {required:<9} {result:<7} {self.note}".rstrip()
