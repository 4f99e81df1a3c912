"""The known faults of RULER's public generators, one test for each: ours has none of them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from tiny_tokenizers import GENERATED, draft, framing, sample, samples

from fixtures.cases import misfits
from fixtures.corpora import Corpora, load_corpora
from fixtures.corpora.words import vocabulary
from fixtures.records import Case, Sample
from fixtures.scoring.match import states
from fixtures.tasks import TASKS
from fixtures.tasks.base import CannotFit
from fixtures.tasks.ruler.aggregation import standalone_words, zeta_counts

NEEDLE = re.compile(r"One of the special magic \w+ for (\S+) is: ([^.]+)\.")
WORD_KEYS = tuple(task for task in TASKS if task.startswith("niah_") and task != "niah_multikey_3")
ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
FORMS = {
    "number": r"[1-9]\d{6}",
    "word": r"[a-z]+-[a-z]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
}
every_task = pytest.mark.parametrize("task", TASKS)


def needles_of(found: Sample) -> list[tuple[str, str]]:
    return NEEDLE.findall(found.context)


def listed(text: str) -> list[str]:
    """The words of a numbered list, whose numbers must run from 1 without a gap."""
    entries = re.findall(r"(\d+)\. (\S+)", text)
    assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
    assert " ".join(f"{number}. {word}" for number, word in entries) == text
    return [word for _, word in entries]


def documents_of(context: str) -> list[str]:
    pieces = re.split(r"(?:^|\n\n)Document (\d+):\n", context)
    assert pieces[1::2] == [str(number) for number in range(1, len(pieces[1::2]) + 1)]
    return pieces[2::2]


# --- needles ---


@pytest.mark.parametrize(
    ("task", "key", "value", "keys", "values"),
    [
        ("niah_single_1", "word", "number", 1, 1),
        ("niah_single_2", "word", "number", 1, 1),
        ("niah_single_3", "word", "uuid", 1, 1),
        ("niah_multikey_1", "word", "number", 4, 1),
        ("niah_multikey_2", "word", "number", None, 1),
        ("niah_multikey_3", "uuid", "uuid", None, 1),
        ("niah_multivalue", "word", "number", 1, 4),
        ("niah_multiquery", "word", "number", 4, 1),
    ],
)
def test_needles_are_those_of_the_paper(task: str, key: str, value: str, keys: int | None, values: int) -> None:
    for found in samples(task, 4):
        counts = Counter(name for name, _ in needles_of(found))
        assert set(counts.values()) == {values}
        assert len(counts) == keys if keys else len(counts) > 40
        assert all(re.fullmatch(FORMS[key], name) for name in counts)
        assert all(re.fullmatch(FORMS[value], said) for _, said in needles_of(found))


@pytest.mark.parametrize("task", [task for task in TASKS if task.startswith("niah_")])
def test_the_references_are_exactly_the_values_of_the_keys_asked_for(task: str) -> None:
    """A distractor key that equals the queried one, or a value that occurs twice, would show here."""
    for found in samples(task, 12):
        needles = needles_of(found)
        asked = re.split(r", (?:and )?", found.question)
        assert sorted(value for key, value in needles if key in asked) == sorted(found.references)
        assert sorted(value for key, value in needles if key not in asked) == sorted(found.distractors)
        assert len({value for _, value in needles}) == len(needles)
        assert all(found.context.count(value) == 1 for value in found.references)
        assert not any(value in found.prompt.text.replace(found.context, "") for _, value in needles)
        assert all(found.prompt.text.count(key) >= 2 for key in asked)


def test_keys_and_values_are_distinct_where_thousands_are_drawn() -> None:
    needles = needles_of(sample("niah_multikey_2", 131072))
    assert len(needles) > 3000
    assert len({key for key, _ in needles}) == len({value for _, value in needles}) == len(needles)


@pytest.mark.parametrize("task", ESSAYS)
def test_every_sample_has_another_text_around_its_needles(task: str) -> None:
    texts = [NEEDLE.sub("", found.context).split(". ") for found in samples(task, 6)]
    assert all(len(set(text)) > 0.95 * len(text) for text in texts)
    assert all(len(set(one) & set(other)) < 0.1 * len(one) for one, other in combinations(texts, 2))


def test_the_question_is_put_in_the_number_of_the_answer() -> None:
    for task in WORD_KEYS:
        several = task in ("niah_multivalue", "niah_multiquery")
        text = sample(task).prompt.text
        assert text.startswith("Some special magic " if several else "A special magic ")
        assert (" are all the special magic numbers for " in text) == several
        assert text.endswith(" are" if several else " is")


# --- chains ---


@pytest.mark.parametrize("length", [1024, 4096])
def test_the_chain_is_what_tracing_the_assignments_gives(length: int) -> None:
    for found in samples("vt", 12, length):
        assigned: dict[str, str] = {}
        for line in found.context.split("\n"):
            if match := re.fullmatch(r"VAR (\w+) = (?:VAR )?(\w+)", line):
                assert match[1] not in assigned
                assigned[match[1]] = assigned.get(match[2], match[2])
        traced = [name for name, value in assigned.items() if value == found.question]
        assert tuple(traced) == found.references == tuple(assigned)
        assert len(traced) == 5
        assert all(re.fullmatch("[A-Z]{5}", name) for name in traced)
        assert re.fullmatch(r"[1-9]\d{4}", found.question)


def test_the_solved_example_of_a_chain_shares_nothing_with_the_task() -> None:
    for found in samples("vt", 12):
        example, _, task = found.prompt.text.partition("\n\nMemorize and track")
        shown = re.findall(r"VAR ([A-Z]{5}) = ", example)
        assert tuple(shown) == found.distractors
        assert example.endswith(" ".join(shown))
        assert not set(shown) & set(re.findall("[A-Z]{5}", task))
        assert found.question not in example
        assert len(set(found.references)) == 5


# --- word lists ---


@pytest.mark.parametrize(
    ("length", "common", "other", "example_words", "example_common", "example_other"),
    [(1024, 6, 1, 20, 3, 1), (4095, 6, 1, 20, 3, 1), (4096, 30, 3, 40, 10, 3), (8192, 30, 3, 40, 10, 3)],
)
def test_words_are_repeated_as_often_as_the_paper_says(
    length: int, common: int, other: int, example_words: int, example_common: int, example_other: int
) -> None:
    for found in samples("cwe", 3, length):
        counts = Counter(listed(found.context))
        assert {word for word, count in counts.items() if count == common} == set(found.references)
        assert set(counts.values()) == {common, other}
        _, example, solved, _, context, _ = found.prompt.text.split("\n")
        assert context == found.context
        shown = Counter(listed(example))
        assert len(shown) == example_words
        answer = listed(solved.partition(" are: ")[2])
        assert set(answer) == {word for word, count in shown.items() if count == example_common}
        assert set(answer) == set(found.distractors)
        assert set(shown.values()) == {example_common, example_other}
        assert not set(shown) & set(counts)


def test_a_common_word_is_part_of_no_other_word_of_the_prompt() -> None:
    for found in samples("cwe", 8):
        assert {*found.references, *found.distractors} <= set(standalone_words())
        words = re.findall(r"[a-z]+(?:-[a-z]+)*", found.prompt.text.lower())
        for reference in found.references:
            assert {word for word in words if reference in word} == {reference}


def test_a_list_holds_as_many_other_words_as_common_ones_at_least() -> None:
    """Where a length leaves room for the common words alone, naming any ten words would be right."""
    assert len(set(listed(draft("cwe", 0, room=0).context))) == 20


def test_words_that_are_part_of_others_are_never_common() -> None:
    words = vocabulary()
    assert 500 < len(standalone_words()) < len(words)
    for word in standalone_words()[::40]:
        assert [other for other in words if word in other] == [word]
    parts = set(words) - set(standalone_words())
    assert all(any(part in other for other in words if other != part) for part in sorted(parts)[::40])


def test_a_list_longer_than_the_vocabulary_repeats_no_word_more_than_planned() -> None:
    counts = Counter(listed(draft("cwe", 0, room=250_000, length=262144).context))
    assert len(counts) > len(vocabulary())
    assert sorted(set(counts.values())) == [3, 30]


@pytest.mark.parametrize("task", ["cwe", "fwe"])
def test_word_lists_are_shuffled_anew_in_every_sample(task: str) -> None:
    """A shuffle with a fixed seed would give every sample the same pattern of repeated words."""
    patterns = set()
    for found in samples(task, 8):
        words = [word for word in found.context.split() if not re.fullmatch(r"\d+\.", word)][:60]
        patterns.add(tuple(words.index(word) for word in words))
    assert len(patterns) == 8


# --- coded words ---


@pytest.mark.parametrize("length", [1024, 4096, 32768])
def test_coded_words_are_as_frequent_as_the_zeta_distribution_says(length: int) -> None:
    for found in samples("fwe", 2, length):
        counts = Counter(found.context.split()).most_common()
        assert counts[0][0] == "..."
        assert tuple(word for word, _ in counts[1:4]) == found.references
        assert {word for word, _ in counts[4:]} == set(found.distractors)
        assert all(re.fullmatch("[a-z]{6}", word) for word, _ in counts[1:])
        assert len(counts) <= max(6, (length - 50) // 50)
        zeta = math.pi**2 / 6
        # Some total explains every count at once: floor(total / rank^2 / zeta(2)).
        least = max(count * rank**2 * zeta for rank, (_, count) in enumerate(counts, start=1))
        most = min((count + 1) * rank**2 * zeta for rank, (_, count) in enumerate(counts, start=1))
        assert least < most


def test_no_coded_word_ties_with_one_of_the_top_three() -> None:
    """Nor do these tie with each other, in a text of any length."""
    shortest = draft("fwe", 0, room=0).context.split()
    for total in range(len(shortest), 30_000):
        assert len(set(zeta_counts(total, 6)[:5])) == 5, total
    for index in range(20):
        counts = Counter(draft("fwe", index, room=17 * index).context.split()).most_common(5)
        assert len({count for _, count in counts}) == 5


# --- paragraphs ---


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_gold_paragraphs_stand_once_and_no_other_states_the_answer(task: str) -> None:
    questions = GENERATED.squad if task == "qa_1" else GENERATED.hotpot
    golds = {question.question: question.gold for question in questions.questions}
    for found in samples(task, 6):
        documents = documents_of(found.context)
        expected = [questions.paragraphs[place] for place in golds[found.question]]
        assert [documents.count(paragraph) for paragraph in expected] == [1] * len(expected)
        assert len(set(documents)) == len(documents)
        others = [document for document in documents if document not in expected]
        assert not any(states(document, answer) for document in others for answer in found.references)


def squad(paragraphs: dict[str, tuple[str, list[str]]]) -> dict[str, object]:
    """SQuAD's public schema: paragraph -> its question and the answers."""
    return {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": context,
                        "qas": [{"id": context, "question": question, "answers": [{"text": text} for text in answers]}],
                    }
                    for context, (question, answers) in paragraphs.items()
                ]
            }
        ]
    }


@pytest.fixture
def small_set(tmp_path: Path) -> Corpora:
    """Five paragraphs, too few to fill a context; two state the same answer, one question holds its own."""
    paragraphs = {
        "The mill of Aln burned in spring, and nobody knew why.": ("When did the mill burn?", ["in spring", "spring"]),
        "The bridge of Bryn was built in Spring.": ("When was the bridge built?", ["in Spring"]),
        "The harbour of Dral froze over, as it does in every hard winter.": ("When did it freeze?", ["winter"]),
        "The tower of Eth leans to the north.": ("Does the tower of Eth lean to the north?", ["the north"]),
        "The well of Fyr is forty feet deep.": ("How deep is the well?", ["forty feet", "40 feet"]),
    }
    (tmp_path / "squad.json").write_text(json.dumps(squad(paragraphs)), encoding="utf-8")
    return load_corpora(tmp_path)


def test_gold_stands_once_where_a_small_set_has_to_be_repeated(small_set: Corpora) -> None:
    asked = set()
    for index in range(8):
        found = TASKS["qa_1"].sample(4096, index, seed=0, tokenizer=framing(), corpora=small_set)
        documents = documents_of(found.context)
        stating = [document for document in documents if any(states(document, one) for one in found.references)]
        assert len(stating) == 1
        assert len(documents) > 100
        assert 2 <= len(set(documents)) <= 5
        assert 4096 * 0.93 < found.prompt.length_tokens + 32 <= 4096
        assert found.source == "published"
        asked.add(found.question)
    assert len(asked) == 4


def test_a_question_that_holds_its_answer_is_never_asked(small_set: Corpora) -> None:
    """To give such a question back would score as an answer."""
    for index in range(12):
        found = TASKS["qa_1"].sample(1024, index, seed=1, tokenizer=framing(), corpora=small_set)
        assert "lean" not in found.question
        assert TASKS["qa_1"].score(found, f"{found.question} {found.answer_prefix}").value == 0


# --- what cannot fit ---


@every_task
@pytest.mark.parametrize("length", [1, 64, 150])
def test_a_prompt_that_cannot_fit_is_an_error_with_the_length_it_takes(task: str, length: int) -> None:
    with pytest.raises(CannotFit) as caught:
        TASKS[task].sample(length, 0, seed=0, tokenizer=framing(), corpora=GENERATED)
    needed = caught.value.needed_tokens
    assert needed > length
    assert str(caught.value).startswith(f"{task} at {length} tokens cannot fit: ")
    assert f"--lengths {needed}" in str(caught.value)
    # Another length draws other words, which may take a few tokens more.
    found = TASKS[task].sample(needed + needed // 5, 0, seed=0, tokenizer=framing(), corpora=GENERATED)
    assert found.prompt.length_tokens + found.prompt.generation_tokens <= found.length


def test_cases_that_cannot_fit_are_known_before_the_run() -> None:
    cases = [
        Case(
            id=f"test_ruler[{name}-{length}]",
            suite="ruler",
            category=task.category,
            task=name,
            length=length,
            samples=2,
            source="archive",
            generation_tokens=task.generation_tokens,
        )
        for name, task in TASKS.items()
        for length in (150, 2048)
    ]
    found = misfits(cases, TASKS, seed=0, framing=framing(), corpora=GENERATED)
    assert list(found) == [case.id for case in cases if case.length == 150]
    assert all(
        line.startswith(f"{name} at 150 tokens cannot fit") for name, line in zip(TASKS, found.values(), strict=True)
    )
