"""Figures of solvers that only match words, which must not solve a task."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.archive_solvers import first_of_type

__all__ = ["first_of_type", "share"]


def share(right: Sequence[bool]) -> float:
    return sum(right) / len(right)
