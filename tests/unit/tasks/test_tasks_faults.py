"""The known faults of RULER's public generators, which ours must not share: needles, chains, word lists."""

import math
import re
from collections import Counter
from itertools import combinations

import pytest

from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.ruler.cwe_fwe import _standalone_words, _zeta_counts
from tests.helpers.tiny_tokenizers import draft, make_sample, make_samples

NEEDLE = re.compile(r"One of the special magic \w+ for (\S+) is: ([^.]+)\.")
WORD_KEYS = tuple(task for task in TASKS if task.startswith("niah_") and task != "niah_multikey_3")
ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
FORMS = {
    "number": r"[1-9]\d{6}",
    "word": r"[a-z]+-[a-z]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
}


def needles_of(sample: Sample) -> list[tuple[str, str]]:
    return NEEDLE.findall(sample.context)


def listed(text: str) -> list[str]:
    """The words of a numbered list, whose numbers must run from 1 without a gap."""
    entries = re.findall(r"(\d+)\. (\S+)", text)
    assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
    assert " ".join(f"{number}. {word}" for number, word in entries) == text
    return [word for _, word in entries]


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
    for sample in make_samples(task, 4):
        counts = Counter(name for name, _ in needles_of(sample))
        assert set(counts.values()) == {values}
        assert len(counts) == keys if keys else len(counts) > 40
        assert all(re.fullmatch(FORMS[key], name) for name in counts)
        assert all(re.fullmatch(FORMS[value], said) for _, said in needles_of(sample))


@pytest.mark.parametrize("task", [task for task in TASKS if task.startswith("niah_")])
def test_the_references_are_exactly_the_values_of_the_queried_keys(task: str) -> None:
    """A distractor key that equals the queried one, or a value that occurs twice, would show here."""
    for sample in make_samples(task, 12):
        needles = needles_of(sample)
        queried = re.split(r", (?:and )?", sample.question)
        assert sorted(value for key, value in needles if key in queried) == sorted(sample.references)
        assert sorted(value for key, value in needles if key not in queried) == sorted(sample.distractors)
        assert len({value for _, value in needles}) == len(needles)
        assert all(sample.context.count(value) == 1 for value in sample.references)
        assert not any(value in sample.prompt.text.replace(sample.context, "") for _, value in needles)
        assert all(sample.prompt.text.count(key) >= 2 for key in queried)


def test_keys_and_values_are_distinct_where_thousands_are_drawn() -> None:
    needles = needles_of(make_sample("niah_multikey_2", 131072))
    assert len(needles) > 3000
    assert len({key for key, _ in needles}) == len({value for _, value in needles}) == len(needles)


@pytest.mark.parametrize("task", ESSAYS)
def test_samples_on_different_haystacks_have_other_texts_around_their_needles(task: str) -> None:
    """RULER's own script has one text for all."""
    texts = [NEEDLE.sub("", make_sample(task, index=index).context).split(". ") for index in (0, 1, 2, 15, 16, 31)]
    assert all(len(set(text)) > 0.95 * len(text) for text in texts)
    assert all(len(set(one) & set(other)) < 0.1 * len(one) for one, other in combinations(texts, 2))


def test_the_question_is_put_in_the_number_of_the_answer() -> None:
    for task in WORD_KEYS:
        several = task in ("niah_multivalue", "niah_multiquery")
        text = make_sample(task).prompt.text
        assert text.startswith("Some special magic " if several else "A special magic ")
        assert (" are all the special magic numbers for " in text) == several
        assert text.endswith(" are" if several else " is")


# --- chains ---


@pytest.mark.parametrize("length", [1024, 4096])
def test_tracing_the_assignments_gives_the_chain(length: int) -> None:
    for sample in make_samples("vt", 12, length):
        assigned: dict[str, str] = {}
        for line in sample.context.split("\n"):
            if match := re.fullmatch(r"VAR (\w+) = (?:VAR )?(\w+) ?", line):
                assert match[1] not in assigned
                assigned[match[1]] = assigned.get(match[2], match[2])
        traced = [name for name, value in assigned.items() if value == sample.question]
        assert tuple(traced) == sample.references == tuple(assigned)
        assert len(traced) == 5
        assert all(re.fullmatch("[A-Z]{5}", name) for name in traced)
        assert re.fullmatch(r"[1-9]\d{4}", sample.question)


def test_the_solved_example_of_a_chain_shares_nothing_with_the_task() -> None:
    for sample in make_samples("vt", 12):
        example, _, task = sample.prompt.text.partition("\n\nMemorize and track")
        shown = re.findall(r"VAR ([A-Z]{3}) = ", example)
        assert tuple(shown) == sample.distractors
        assert example.endswith(" ".join(shown))
        assert not set(shown) & set(re.findall("[A-Z]{2,}", task))
        assert sample.question not in example
        assert len(set(sample.references)) == 5


# --- word lists ---


@pytest.mark.parametrize(
    ("length", "common", "other", "example_words", "example_common", "example_other"),
    [(1024, 6, 1, 20, 3, 1), (4095, 6, 1, 20, 3, 1), (4096, 30, 3, 40, 10, 3), (8192, 30, 3, 40, 10, 3)],
)
def test_words_are_repeated_as_often_as_the_paper_says(
    length: int, common: int, other: int, example_words: int, example_common: int, example_other: int
) -> None:
    for sample in make_samples("cwe", 3, length):
        counts = Counter(listed(sample.context))
        assert {word for word, count in counts.items() if count == common} == set(sample.references)
        assert set(counts.values()) == {common, other}
        _, example, solved, _, context, _ = sample.prompt.text.split("\n")
        assert context == sample.context
        shown = Counter(listed(example))
        assert len(shown) == example_words
        answer = listed(solved.partition(" are: ")[2])
        assert set(answer) == {word for word, count in shown.items() if count == example_common}
        assert set(answer) == set(sample.distractors)
        assert set(shown.values()) == {example_common, example_other}
        assert not set(shown) & set(counts)


def test_a_common_word_is_part_of_no_other_word_of_the_prompt() -> None:
    for sample in make_samples("cwe", 8):
        assert {*sample.references, *sample.distractors} <= set(_standalone_words())
        words = re.findall(r"[a-z]+(?:-[a-z]+)*", sample.prompt.text.lower())
        for reference in sample.references:
            assert {word for word in words if reference in word} == {reference}


def test_a_list_holds_as_many_other_words_as_common_ones_at_least() -> None:
    """If a list contained the common words alone, naming any ten words would be right."""
    assert len(set(listed(draft("cwe", 0, token_budget=0).context))) == 20


def test_a_list_longer_than_the_vocabulary_repeats_no_word_more_than_planned() -> None:
    counts = Counter(listed(draft("cwe", 0, token_budget=250_000, length=262144).context))
    assert len(counts) > len(vocabulary())
    assert sorted(set(counts.values())) == [3, 30]


@pytest.mark.parametrize("task", ["cwe", "fwe"])
def test_word_lists_are_shuffled_anew_in_every_sample(task: str) -> None:
    """A shuffle with a fixed seed would give every sample the same pattern of repeated words."""
    patterns = set()
    for drawn_sample in make_samples(task, 8):
        words = [word for word in drawn_sample.context.split() if not re.fullmatch(r"\d+\.", word)][:60]
        patterns.add(tuple(words.index(word) for word in words))
    assert len(patterns) == 8


# --- coded words ---


@pytest.mark.parametrize("length", [1024, 4096, 32768])
def test_coded_words_are_as_frequent_as_the_zeta_distribution_says(length: int) -> None:
    for sample in make_samples("fwe", 2, length):
        counts = Counter(sample.context.split()).most_common()
        assert counts[0][0] == "..."
        assert tuple(word for word, _ in counts[1:4]) == sample.references
        assert {word for word, _ in counts[4:]} == set(sample.distractors)
        assert all(re.fullmatch("[a-z]{6}", word) for word, _ in counts[1:])
        assert len(counts) <= max(6, (length - 50) // 50)
        zeta = math.pi**2 / 6
        # Some total explains every count at once: floor(total / rank^2 / zeta(2)).
        least = max(count * rank**2 * zeta for rank, (_, count) in enumerate(counts, start=1))
        most = min((count + 1) * rank**2 * zeta for rank, (_, count) in enumerate(counts, start=1))
        assert least < most


def test_no_coded_word_ties_with_one_of_the_top_three() -> None:
    """The first ranks never tie, in a text of any length."""
    shortest = draft("fwe", 0, token_budget=0).context.split()
    for total in range(len(shortest), 30_000):
        assert len(set(_zeta_counts(total, 6)[:5])) == 5, total
    for index in range(20):
        counts = Counter(draft("fwe", index, token_budget=17 * index).context.split()).most_common(5)
        assert len({count for _, count in counts}) == 5
