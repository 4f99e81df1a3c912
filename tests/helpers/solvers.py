"""Solvers that do not read: on the generated texts each may score at most its bound in SOLVERS.

`last quarter` knows all answers whose evidence lies in the last quarter of the context.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from longctx.fixtures.corpora.synthetic.passage_questions import _Bm25Index
from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.synthetic import YEAR, split_sentences
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.words import contains_words

NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+")
SHOT = re.compile(r"(?P<text>.*)\nlabel: (?P<label>\d+)")
CITED = ("asqa", "qampari")
CLASSES = ("trec_coarse", "trec_fine", "nlu", "banking77", "clinc150")
SUMMARIES = ("infbench_sum", "multi_lexsum")
PASSAGES = ("nq", "triviaqa", "popqa", "hotpotqa", "qa_1", "qa_2")
STORIES = ("narrativeqa", "infbench_qa")
CHOICE = "infbench_mc"
MAIN_PEOPLE = 4

Solver = Callable[[Sample], str]


def oracle(sample: Sample) -> str:
    """Return the right answer."""
    return TASKS[sample.task].perfect_answer(sample)


def last_quarter(sample: Sample) -> str:
    """Return what somebody knows who reads only the last quarter, but that perfectly."""
    seen = sample.context[-len(sample.context) // 4 :]
    if sample.task in SUMMARIES:
        return " ".join(point for point in sample.references if _is_told(point, seen))
    if sample.task == "msmarco":
        labels: Mapping[str, int] = sample.truth[0]
        return " > ".join(sorted((one for one in labels if f"[ID: {one}]" in seen), key=lambda one: -labels[one]))
    if sample.task in CITED:
        statements = oracle(sample).split(", " if sample.task == "qampari" else ". ")
        known = [one for one, depth in zip(statements, sample.depths, strict=True) if depth >= 0.75]
        return (", " if sample.task == "qampari" else ". ").join(known)
    if sample.task in (*STORIES, CHOICE):
        return oracle(sample) if sample.depths[0] >= 0.75 else ""
    return oracle(sample) if any(contains_words(seen, form) for form in sample.references) else ""


def _is_told(point: str, text: str) -> bool:
    """Return True if a sentence of the text has the year of a key point and the surnames of its people."""
    words = {YEAR.findall(point)[-1], *(name.split()[-1] for name in NAME.findall(point))}
    return any(all(word in sentence for word in words) for sentence in split_sentences(text))


def bm25(sample: Sample) -> str:
    """Return what word overlap with the question finds: a ranking, a class, an option, or a name or year."""
    if sample.task in CLASSES:
        shots = list(SHOT.finditer(sample.context))
        best = _Bm25Index([shot["text"] for shot in shots]).search(sample.question, 1)
        return shots[best[0]]["label"]
    units = sample.context.split("\n\n")
    ranked = _Bm25Index(units).search(sample.question, len(units))
    if sample.task == "msmarco":
        return " > ".join(re.findall(r"\[ID: (\d+)\]", "\n".join(units[unit] for unit in ranked[:10])))
    if sample.task == CHOICE:
        return _most_named(sample, units[ranked[0]])
    found = first_of_type(sample.question, units[ranked[0]].partition(": ")[2] or units[ranked[0]])
    return f"{found} [{ranked[0] + 1}]." if sample.task in CITED else found


def most_named(sample: Sample) -> str:
    """Return the letter of the option, or else the name, that the context has most often."""
    if sample.task == CHOICE:
        return _most_named(sample, sample.context)
    counts = Counter(NAME.findall(sample.context))
    return next((name for name, _ in counts.most_common() if name not in sample.question), "")


def first_of_type(question: str, text: str) -> str:
    """Return the first year for a question about a time, else the first name that the question does not contain."""
    if re.search(r"\b[Ww]hen\b|year", question):
        return next(iter(YEAR.findall(text)), "")
    names = (name for name in NAME.findall(text) if not set(name.split()) & set(re.findall(r"\w+", question)))
    return next(names, "")


def demonstrations_plot(sample: Sample) -> str:
    """Return the first event, and then the demonstrations' events with the main people's names and shifted years."""
    return " ".join((sample.references[0], *_filled_form(sample, sample.context, keep_years=True)))


def names_only(sample: Sample) -> str:
    """Return all events without their years and places."""
    return " ".join(re.sub(r" (?:in|at|of|near|off) [A-Z]\w+| in \d{4}", "", point) for point in sample.references)


def names_of_last_quarter(sample: Sample) -> str:
    """Return the demonstrations' events with the names of the last quarter."""
    return " ".join(_filled_form(sample, sample.context[-len(sample.context) // 4 :], keep_years=False))


def _filled_form(sample: Sample, text: str, *, keep_years: bool) -> list[str]:
    """Return the demonstrations' sentences with the most frequent names of the text in place of their own."""
    demonstrations = sample.prompt.text[: sample.prompt.text.index(sample.context[:200])]
    mains = [name for name, _ in Counter(NAME.findall(text)).most_common(MAIN_PEOPLE)]
    first_year = int(YEAR.findall(sample.references[0])[-1])
    summaries = re.findall(r"Summary: (.*)", demonstrations)
    return [
        sentence for summary in summaries for sentence in _refilled(summary, mains, first_year if keep_years else None)
    ]


def _refilled(summary: str, mains: Sequence[str], first_year: int | None) -> tuple[str, ...]:
    """Return the sentences of a summary with other names, and with years that start with `first_year`, or without."""
    given = {name: mains[number % len(mains)] for number, name in enumerate(dict.fromkeys(NAME.findall(summary)))}
    shift = (first_year or 0) - int(YEAR.findall(summary)[0])
    filled = NAME.sub(lambda name: given[name[0]], summary)
    return split_sentences(YEAR.sub(lambda year: str(int(year[0]) + shift) if first_year else "", filled))


def _most_named(sample: Sample, text: str) -> str:
    options = (*sample.truth[0], sample.references[1])
    best: str = max(options, key=lambda option: text.count(option.split()[-1]))
    return best[0]


# Each solver, the data sets that it can answer, and the most that it may score there.
SOLVERS: Mapping[str, tuple[Solver, Mapping[str, float]]] = {
    "last quarter": (
        last_quarter,
        dict.fromkeys((*PASSAGES, *STORIES, CHOICE, *SUMMARIES), 50)
        | dict.fromkeys((*CITED, "msmarco"), 65)
        | {"qampari": 75},
    ),
    "BM25": (bm25, dict.fromkeys((*PASSAGES, *CITED, *CLASSES, *STORIES, CHOICE), 45) | {"popqa": 80, "msmarco": 70}),
    "most named": (most_named, dict.fromkeys((*PASSAGES, *CITED, *STORIES), 15) | {CHOICE: 30}),
    "demonstrations' plot": (demonstrations_plot, dict.fromkeys(SUMMARIES, 20)),
    "names only": (names_only, dict.fromkeys(SUMMARIES, 20)),
    "names of last quarter": (names_of_last_quarter, dict.fromkeys(SUMMARIES, 20)),
}


def solver_score(solver: Solver, samples: list[Sample]) -> float:
    """Return the mean score of a solver, 0 to 100."""
    return 100 * mean(TASKS[sample.task].score(sample, solver(sample)).value for sample in samples)


def share(right: Sequence[bool]) -> float:
    return sum(right) / len(right)
