"""The end of the work on one case, and the report of it to the controller: counts and error lines, never results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fixtures.engines import EngineFacts
from fixtures.preflight import Inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEnd:
    """The end of the work on a case. The results are in the journal."""

    samples: int
    """The number of the case's samples that the panel's evidence rests on."""

    error: str | None
    """The reason why the case failed; None if it did not."""

    likelihoods: int = 0
    """The number of the case's gold answers whose likelihood is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """The end of one case's test. The results themselves are in the journal."""

    error: str | None = None
    """The line with which the test failed; None if it did not fail."""

    samples: int = 0
    """The number of the case's results that the worker read in the journal when the test ended."""

    likelihoods: int = 0
    """The number of the case's likelihoods that the worker read in the journal when the test ended."""

    computed_samples: int = 0
    """The number of samples that the worker ran the model on during the test, those of other cases included."""

    executions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The execution settings under which the journal keeps the results, of "model" and, with one, of "baseline"."""

    facts: EngineFacts | None = None
    """The facts of the engine if the worker loaded one."""

    inspection: Inspection | None = None
    """The result of --preflight."""
