"""Choose every Nth checkpoint while training writes more of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def every_nth(seen: Iterable[int], measured: Collection[int], number: int) -> set[int]:
    """Return the steps to measure: the lowest one, and each with `number` - 1 other steps since the last chosen one.

    `seen` are all steps that the watch knows of, complete or not, deleted ones included. Those that were `measured`
    stay chosen, so that a step that is written late changes nothing before it.
    """
    chosen: set[int] = set()
    since = number - 1
    for step in sorted({*seen, *measured}):
        since += 1
        if since >= number or step in measured:
            chosen.add(step)
            since = 0
    return chosen
