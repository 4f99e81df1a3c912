"""The sections of a report, in the order in which every format shows them."""

from __future__ import annotations

from longctx.plugins.report.sections.comparison import COMPARISON
from longctx.plugins.report.sections.cost import COST
from longctx.plugins.report.sections.failures import ERRORS, FAILURES
from longctx.plugins.report.sections.frontier import FRONTIER
from longctx.plugins.report.sections.gates import GATES, NOTES
from longctx.plugins.report.sections.helmet import HELMET_SECTION
from longctx.plugins.report.sections.invariance import INVARIANCE_SECTION
from longctx.plugins.report.sections.likelihood import LIKELIHOOD
from longctx.plugins.report.sections.question_sets import QUESTION_SETS
from longctx.plugins.report.sections.ruler import RULER_SECTION, THRESHOLD
from longctx.plugins.report.sections.scores import CASES, MEANS
from longctx.plugins.report.sections.server import SERVER

SECTIONS = (
    SERVER, INVARIANCE_SECTION, RULER_SECTION, HELMET_SECTION, MEANS, LIKELIHOOD, FRONTIER, QUESTION_SETS, GATES,
    COMPARISON, CASES, ERRORS, FAILURES, NOTES, THRESHOLD, COST,
)  # fmt: skip
