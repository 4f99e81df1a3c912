"""The suites: the parts of the report on HELMET, the frontier tasks and tasks files (--tasks-file), and all means.

HELMET's categories and their average are those of its paper (Yen et al. 2025, §2.1).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import numpy as np

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import Case, Outcome
from longctx.fixtures.records.report import HelmetSummary, JsonReport
from longctx.fixtures.records.report_parts import (
    ByLength,
    CopiedReply,
    FrontierSummary,
    IntervalsByLength,
    LadderResult,
    PairedDifference,
    ReplyResult,
    TwinResult,
    UnanswerableResult,
    WordingTwins,
)
from longctx.plugins.config.run_facts import RunFacts
from longctx.plugins.evidence.clusters import ESTIMATE_ALPHA
from longctx.plugins.evidence.haystacks import CaseValues, difference_interval
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.tables import Note, counted, notes, short_length, shown_interval, shown_number
from longctx.plugins.thresholds.records import CATEGORIES
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, FindingsByLength

ScoresByPlace = Mapping[tuple[str, int], float | None]
"""Scores by task and length."""

FRONTIER = "frontier"
# The part of a score of a graph task that tells the F1 by a lenient reading.
LENIENT_PART = "lenient"
# The category of the tasks that only serve to be compared with others.
CONTROLS = "controls"
# The twin of a task, from which it differs in one thing: literal instead of associative questions, printed labels, or a
# problem at the end.
TWINS = {
    "association": "association_literal", "association_far": "association_literal",
    "count_labels": "count_labels_labelled", "count_users": "count_users_labelled",
    "count_dates": "count_dates_labelled",
    "problem_at_start": "problem_at_end", "problem_at_middle": "problem_at_end", "problem_at_end": "problem_alone",
}  # fmt: skip
# The tasks of every ladder, with the operation that they test.
LADDERS = {
    "mk": {"basic": "find", "easy": "copy", "medium": "copy and solve", "hard": "solve"},
    "mv": {"basic": "find", "easy": "copy", "medium": "copy and select", "hard": "select"},
    "qa": {"basic": "find", "easy": "select", "medium": "copy and solve", "hard": "solve"},
}
# A length counts as mastered with this share of the score at the shortest length (NoLiMa's rule).
RELATIVE_SHARE = 0.85
# A ladder breaks at its first rung with a score below this.
BREAKS_BELOW = 50.0
QUESTIONS_TEST = "test_questions["
# The part of a score that tells the share of its text that a cut removed.
CUT_PART = "cut"
NOT_SELECTED = "not selected"
# The most tasks of which a line on two wordings has the difference.
MOST_TWINS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean over the tasks of a category or aspect, or over a whole suite, at every length."""

    suite: str
    name: str
    scores: ByLength
    is_total: bool = False


def means(document: JsonReport) -> list[Mean]:
    """Return all means that were measured at any length; a suite's total follows those of its parts."""
    ruler, helmet = document.ruler, document.helmet
    means = _means_of("ruler", ruler.aspects)
    means.append(Mean(suite="ruler", name="mean", scores=ruler.scores, is_total=True))
    if helmet is not None:
        means += _means_of("helmet", helmet.categories)
        means.append(Mean(suite="helmet", name="average", scores=helmet.average, is_total=True))
    if document.frontier is not None:
        means += _means_of(FRONTIER, document.frontier.categories)
    for suite, categories in (document.question_sets or {}).items():
        for mean in _means_of(suite, categories):
            sets = {case.task for case in document.cases if (case.suite, case.category) == (suite, mean.name)}
            # A category with one set has no mean of its own.
            means += [mean] if len(sets) > 1 else []
    return [mean for mean in means if any(score is not None for score in mean.scores.values())]


def _means_of(suite: str, categories: Mapping[str, ByLength]) -> list[Mean]:
    return [Mean(suite=suite, name=name, scores=scores) for name, scores in categories.items()]


def helmet(evaluation: Evaluation, run: RunFacts) -> HelmetSummary | None:
    """Return HELMET's summary with scores from 0 to 100; None for a run without HELMET.

    A category's score is the mean of its data sets; the average is the mean of the seven categories. A mean that lacks
    one of its parts is None, and `missing` gives the reasons. Every interval holds with `confidence` by itself.
    """
    cases = [case for case in run.cases if case.suite == "helmet"]
    if not cases:
        return None
    measured = evaluation.measured
    lengths = [str(length) for length in measured.scope.lengths]
    scores, intervals = dict[str, ByLength](), dict[str, IntervalsByLength]()
    for category, findings in evaluation.categories.items():
        scores[category] = scores_by_length(findings)
        intervals[category] = {str(length): finding.interval for length, finding in findings.items()}
    datasets: dict[str, dict[str, float | None]] = {}
    missing: dict[str, dict[str, dict[str, str]]] = {}
    for category in CATEGORIES:
        missing[category] = {length: {} for length in lengths}
    for case in cases:
        length, score = str(case.length), _score(measured, case)
        datasets.setdefault(case.task, {})[length] = score
        if score is None:
            missing[case.category][length][case.task] = _lacking(measured, case, run.unavailable)
    return HelmetSummary(
        scoring="paper" if run.options.scoring == "paper" else "strict",
        rubrics=run.rubrics,
        categories=scores,
        intervals=intervals,
        datasets=datasets,
        confidence=1 - ESTIMATE_ALPHA,
        average={length: mean_of_all([by_length[length] for by_length in scores.values()]) for length in lengths},
        sources={case.task: case.source for case in cases if case.id not in run.unavailable},
        missing=missing,
    )


def scores_by_length(findings: FindingsByLength) -> dict[str, float | None]:
    return {str(length): finding.measured for length, finding in findings.items()}


def _lacking(measured: Measured, case: Case, unavailable: Mapping[str, str]) -> str:
    """Return why a case has no score."""
    result = measured.results.get(case.id)
    if case.id in unavailable:
        return unavailable[case.id]
    if result is not None and result.error:
        return result.error
    is_selected = case.task in measured.scope.cases_at(case.length)
    return "no sample was started" if is_selected else NOT_SELECTED


def frontier(measured: Measured, planned: Sequence[Case]) -> FrontierSummary | None:
    """Return the summary of the frontier tasks with scores from 0 to 100; None for a run without them."""
    cases = [case for case in planned if case.suite == FRONTIER]
    if not cases:
        return None
    categories = _means_by_category(measured, [case for case in cases if case.category != CONTROLS])
    replies, unanswerable = list[ReplyResult](), list[UnanswerableResult]()
    lenient: dict[str, dict[str, float | None]] = {}
    scores = {}
    for case in cases:
        scores[case.task, case.length] = _score(measured, case)
        result = measured.results.get(case.id)
        if result is None or not result.outcomes:
            continue
        if case.category == "mrcr":
            replies.append(_replies(case, result.outcomes))
        elif case.category == "absence":
            unanswerable.append(_unanswerable(case, result.outcomes))
        elif case.category == "graphs":
            parts = [outcome.score.parts.get(LENIENT_PART) for outcome in result.outcomes]
            lenient.setdefault(case.task, {})[str(case.length)] = _mean_points(parts)
    lengths = measured.scope.lengths
    return FrontierSummary(
        categories=categories,
        relative_share=RELATIVE_SHARE,
        relative_lengths={category: relative_length(means) for category, means in categories.items()},
        ladders=_ladders(scores, lengths),
        twins=_twins(scores, lengths),
        replies=tuple(replies),
        unanswerable=tuple(unanswerable),
        lenient=lenient,
    )


def _ladders(scores: ScoresByPlace, lengths: Sequence[int]) -> tuple[LadderResult, ...]:
    results = []
    for (ladder, steps), length in product(LADDERS.items(), lengths):
        rungs = {name: scores.get((f"ladder_{ladder}_{step}", length)) for step, name in steps.items()}
        if any(score is not None for score in rungs.values()):
            results.append(LadderResult(ladder=ladder, length=length, rungs=rungs, breaks_at=_breaking_rung(rungs)))
    return tuple(results)


def _breaking_rung(rungs: ByLength) -> str | None:
    """Return the first rung with a score below `BREAKS_BELOW`; None if there is none before an unmeasured rung."""
    for name, score in rungs.items():
        if score is None:
            return None
        if score < BREAKS_BELOW:
            return name
    return None


def _twins(scores: ScoresByPlace, lengths: Sequence[int]) -> tuple[TwinResult, ...]:
    results = []
    for (task, twin), length in product(TWINS.items(), lengths):
        score, other = scores.get((task, length)), scores.get((twin, length))
        if score is not None and other is not None:
            results.append(TwinResult(task=task, twin=twin, length=length, difference=other - score))
    return tuple(results)


def relative_length(scores: ByLength) -> int | None:
    """Return the longest length with at least `RELATIVE_SHARE` of the score at the shortest length.

    Returns None if the shortest length has no score or a score of 0, of which every other would be a share.
    """
    known = {int(length): score for length, score in scores.items() if score is not None}
    shortest = known.get(min(map(int, scores), default=0))
    if not shortest:
        return None
    return max(length for length, score in known.items() if score >= RELATIVE_SHARE * shortest)


def _replies(case: Case, outcomes: Sequence[Outcome]) -> ReplyResult:
    """Return how often an answer began with the code, and which reply it copied for which one."""
    pairs = Counter[tuple[float, float]]()
    for outcome in outcomes:
        pairs[outcome.score.parts["wanted"], outcome.score.parts["copied"]] += 1
    copied = []
    for (wanted, reply), samples in sorted(pairs.items()):
        copied.append(CopiedReply(wanted=int(wanted), copied=int(reply) or None, samples=samples))
    code_rate = to_points(fmean(outcome.score.parts["code"] for outcome in outcomes))
    return ReplyResult(task=case.task, length=case.length, code_rate=code_rate, copied=tuple(copied))


def _unanswerable(case: Case, outcomes: Sequence[Outcome]) -> UnanswerableResult:
    """Return the scores of the questions that the text answers and of those that it does not answer."""
    present = [outcome.score.value for outcome in outcomes if "present" in outcome.score.parts]
    absent = [outcome.score.value for outcome in outcomes if "absent" in outcome.score.parts]
    return UnanswerableResult(length=case.length, present=_mean_points(present), absent=_mean_points(absent))


def question_sets(measured: Measured, planned: Sequence[Case]) -> dict[str, dict[str, ByLength]] | None:
    """Return by suite the mean of every category, with scores from 0 to 100; None for a run without tasks files."""
    suites: dict[str, list[Case]] = {}
    for case in planned:
        if case.id.startswith(QUESTIONS_TEST):
            suites.setdefault(case.suite, []).append(case)
    return {suite: _means_by_category(measured, cases) for suite, cases in suites.items()} or None


def wording_twins(measured: Measured) -> tuple[WordingTwins, ...]:
    """Return the paired differences of all tasks that tasks files ask in two wordings, each a category."""
    by_sample: dict[tuple[str, int, str], list[Case]] = {}
    for case in measured.scope.cases:
        if case.samples_of:
            by_sample.setdefault((case.suite, case.length, case.samples_of), []).append(case)
    compared: dict[tuple[str, int, str, str], dict[str, CaseValues]] = {}
    for (suite, length, task), (first, *others) in by_sample.items():
        for other in others:
            if other.category != first.category:
                wordings = compared.setdefault((suite, length, first.category, other.category), {})
                wordings[task] = _differences(measured, first, other)
    twins = []
    for (suite, length, first_wording, second_wording), tasks in compared.items():
        twins.append(WordingTwins(
            suite=suite,
            length=length,
            first=first_wording,
            second=second_wording,
            total=_paired_difference([*tasks.values()]),
            tasks={task: _paired_difference([pairs]) for task, pairs in tasks.items()},
        ))  # fmt: skip
    return tuple(twins)


def _differences(measured: Measured, first: Case, second: Case) -> CaseValues:
    """Return the differences first - second on the samples that both have answered, and their haystacks."""
    scores, others = _scores(measured, first), _scores(measured, second)
    shared = [index for index in scores if index in others]
    differences = [scores[index] - others[index] for index in shared]
    haystacks = [first.haystack(index) for index in shared]
    return np.array(differences, dtype=np.float64), np.array(haystacks, dtype=np.intp)


def _scores(measured: Measured, case: Case) -> dict[int, float]:
    """Return the scores of a case by sample; none after an error."""
    result = measured.results.get(case.id)
    if result is None or result.error is not None:
        return {}
    return {outcome.index: outcome.score.value for outcome in result.outcomes}


def _paired_difference(cases: Sequence[CaseValues]) -> PairedDifference | None:
    """Return the mean of the cases' mean differences; None if a case has no pair."""
    if not all(values.size for values, _ in cases):
        return None
    difference = to_points(fmean(float(values.mean()) for values, _ in cases))
    low, high = difference_interval([[case] for case in cases], alpha=ESTIMATE_ALPHA)
    pairs = sum(values.size for values, _ in cases)
    return PairedDifference(difference=difference, interval=(to_points(low), to_points(high)), pairs=pairs)


def _means_by_category(measured: Measured, cases: Sequence[Case]) -> dict[str, ByLength]:
    """Return the mean score of every category by length; None at a length where one of its cases has no score."""
    means: dict[str, dict[str, float | None]] = {}
    for category in dict.fromkeys(case.category for case in cases):
        for length in measured.scope.lengths:
            chosen = [case for case in cases if (case.category, case.length) == (category, length)]
            mean = mean_of_all([_score(measured, case) for case in chosen])
            means.setdefault(category, {})[str(length)] = mean
    return {**means}


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is unknown, and without values."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _mean_points(values: Sequence[float | None]) -> float | None:
    mean = mean_of_all(values)
    return None if mean is None else to_points(mean)


def _score(measured: Measured, case: Case) -> float | None:
    result = measured.results.get(case.id)
    return None if result is None or result.score is None else to_points(result.score)


def frontier_notes(document: JsonReport) -> list[Note]:
    """Return a note for every ladder, twin and conversation; none for a run without frontier tasks."""
    section = document.frontier
    if section is None:
        return []
    lines = [_ladder_text(ladder) for ladder in section.ladders]
    for twin in section.twins:
        name = f"{twin.task} at {short_length(twin.length)}"
        lines.append(f"{name}: {twin.difference:+.1f} for its twin {twin.twin}")
    lines += [_reply_text(reply) for reply in section.replies]
    for entry in section.unanswerable:
        present, absent = shown_number(entry.present), shown_number(entry.absent)
        text = f"{present} where the text tells, {absent} where it does not"
        lines.append(f"not_in_text at {short_length(entry.length)}: {text}")
    relative = section.relative_lengths.items()
    lengths = [f"{name} {short_length(length)}" for name, length in relative if length is not None]
    tested = [int(length) for length in next(iter(section.categories.values()), {})]
    if len(tested) > 1 and lengths:
        share = f"{100 * section.relative_share:.0f} % of the score at {short_length(min(tested))}"
        lines.append(f"longest length with {share}: {', '.join(lengths)}")
    return notes("frontier", lines)


def _ladder_text(ladder: LadderResult) -> str:
    rungs = ", ".join(f"{name} {shown_number(score)}" for name, score in ladder.rungs.items())
    result = f"breaks at {ladder.breaks_at}" if ladder.breaks_at else "no rung breaks"
    if ladder.breaks_at is None and None in ladder.rungs.values():
        result = "incomplete"
    return f"ladder {ladder.ladder} at {short_length(ladder.length)}: {result} ({rungs})"


def _reply_text(reply: ReplyResult) -> str:
    total = sum(pair.samples for pair in reply.copied)
    swapped = sum(pair.samples for pair in reply.copied if pair.copied not in (None, pair.wanted))
    name = f"{reply.task} at {short_length(reply.length)}"
    return f"{name}: code in {reply.code_rate:.0f} % of the answers, {swapped} of {total} copy another reply"


def _wording_text(twins: WordingTwins) -> str:
    """Return the difference in all and those of the tasks that differ."""
    differing = []
    for task, pairs in twins.tasks.items():
        if pairs is not None and pairs.difference:
            differing.append(f"{task} {_paired_text(pairs)}")
    result = "not measured, no sample of a task under both wordings"
    if twins.total is not None:
        result = f"{_paired_text(twins.total)} on {twins.total.pairs} pairs"
    head = f"{twins.first} minus {twins.second} at {short_length(twins.length)}: {result}"
    return "; ".join(filter(None, (head, counted(differing, MOST_TWINS))))


def _paired_text(pairs: PairedDifference) -> str:
    return f"{shown_number(pairs.difference, signed=True)} ({shown_interval(pairs.interval, signed=True)})"


def question_notes(document: JsonReport) -> list[Note]:
    """Return the notes on tasks files: differences of wordings, and questions that are cut or left out."""
    lines = []
    for case in document.cases:
        name = f"{case.task} at {format_length(case.length)}"
        if case.cut:
            lines.append(f"{name}: {case.cut:.0f} % of the samples are cut to the length")
        if case.left_out:
            lines.append(f"{name}: {case.left_out} questions do not fit the length and are left out")
    return [*notes("twins", map(_wording_text, document.wordings or ())), *notes("questions", lines)]
