"""The samples of `--only-samples`, in place of all samples of all cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fixtures.records import Case
from plugins.config.invocation import ConfigError
from plugins.gates.thresholds import Thresholds

FORM = re.compile(r"(?P<case>.+\]):(?P<indices>[0-9]{1,9}(,[0-9]{1,9})*)")


def only_samples(cases: Sequence[Case], given: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that are named, each with its given samples and those that share a context with one.

    `given` are texts such as `test_ruler[niah_single_2-8k]:3,17`; without one all cases are returned as they are.
    Raises ConfigError.
    """
    if not given:
        return tuple(cases)
    by_id = {case.id: case for case in cases}
    chosen: dict[str, set[int]] = {}
    for text in given:
        match = FORM.fullmatch(text)
        if match is None:
            raise _refusal(text, "write CASE:INDEX,INDEX, such as 'test_ruler[niah_single_2-8k]:3,17'")
        if (case := by_id.get(match["case"])) is None:
            raise _refusal(text, "the run has no such case; --collect-only lists the ids")
        indices = {int(index) for index in match["indices"].split(",")}
        if (largest := max(indices)) >= case.samples:
            raise _refusal(text, f"the case has no sample {largest}, only 0 to {case.samples - 1}; see --samples")
        chosen.setdefault(case.id, set()).update(indices)
    return tuple(replace(case, only=_with_context(case, chosen[case.id])) for case in cases if case.id in chosen)


def without_claims(thresholds: Thresholds, given: Sequence[str]) -> Thresholds:
    """Return the thresholds without gates and floors if samples are chosen: they say nothing about the others."""
    return replace(thresholds, gates=(), floors={}) if given else thresholds


def _with_context(case: Case, indices: set[int]) -> tuple[int, ...]:
    groups = sorted({index // case.group for index in indices})
    return tuple(index for group in groups for index in range(group * case.group, (group + 1) * case.group))


def _refusal(text: str, remedy: str) -> ConfigError:
    return ConfigError(f"--only-samples: {text!r}; {remedy}")
