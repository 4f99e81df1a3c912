"""Depths of needles and gold paragraphs: all places, equally often, and as the sample reports them."""

import re
from itertools import pairwise
from math import comb

import pytest

from longctx.fixtures.records import HAYSTACKS
from longctx.fixtures.tasks.sample_spec import Draft
from longctx.fixtures.words import contains_words
from tests.helpers.counts import is_even, prefill_token_counts, ranks_of
from tests.helpers.tiny_tokenizers import GENERATED, drafts, formatter, make_sample, make_samples
from tests.helpers.tiny_tokenizers import draft as draft_at

ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
TOGETHER = ("niah_multivalue", "niah_multiquery")
NEEDLES_ONLY = ("niah_multikey_2", "niah_multikey_3")
NEEDLE = re.compile(r"One of the special magic \w+ for (\S+) is: ([^.]+)\.")

# --- needles ---


@pytest.mark.parametrize("task", ["niah_single_2", "niah_multikey_1"])
def test_a_needle_among_essays_stands_at_one_of_forty_depths(task: str) -> None:
    drawn = drafts(task, 400, token_budget=0)
    assert {draft.rank[1] for draft in drawn if draft.rank} == {40}
    assert is_even(ranks_of(drawn))
    assert {draft.depths[0] for draft in drawn} == {step / 39 for step in range(40)}


@pytest.mark.parametrize(("task", "others"), [("niah_single_2", 0), ("niah_multikey_1", 3), ("niah_single_1", 0)])
def test_the_depths_of_sixteen_samples_cover_the_whole_text(task: str, others: int) -> None:
    """Both of consecutive samples, as in a small run, and of those on one haystack.

    Except for the places of needles that are not queried.
    """
    slack = others / 40
    drawn = drafts(task, 64 + 15 * HAYSTACKS, token_budget=1500)
    runs = [drawn[start : start + 16] for start in range(0, 64, 16)]
    runs += [drawn[haystack : haystack + 16 * HAYSTACKS : HAYSTACKS] for haystack in (0, 1, 15, 16, 31)]
    for run in runs:
        ranks = sorted(draft.rank[0] / draft.rank[1] for draft in run if draft.rank)
        assert len(ranks) == 16
        assert all(-0.03 - slack <= rank - place / 16 <= 1 / 16 + slack for place, rank in enumerate(ranks))
    orders = [[draft.rank and draft.rank[0] for draft in run] for run in runs]
    assert len({tuple(order) for order in orders}) == len(runs)


def test_up_to_32_samples_have_texts_of_their_own_and_later_ones_share_them() -> None:
    texts = [
        re.sub(f" ?{NEEDLE.pattern}", "", draft.context).strip()[:400]
        for draft in drafts("niah_single_2", 2 * HAYSTACKS + 8, token_budget=1500)
    ]
    assert len(set(texts[:HAYSTACKS])) == HAYSTACKS
    assert texts[HAYSTACKS:] == texts[: HAYSTACKS + 8]


@pytest.mark.parametrize("task", ESSAYS)
def test_up_to_32_samples_share_no_needle(task: str) -> None:
    drawn = drafts(task, HAYSTACKS, token_budget=0)
    values = [value for draft in drawn for value in (*draft.references, *draft.distractors)]
    assert len(set(values)) == len(values)


def test_samples_on_a_haystack_share_the_needles_that_nobody_asks_for() -> None:
    for haystack in (0, 7, 31):
        drawn = on_haystack("niah_multikey_1", haystack, 16)
        without = {re.sub(rf"(^| )[^.]+ for {draft.question} is: \d+\.", "", draft.context).strip() for draft in drawn}
        assert len(without) == 1
        assert len({draft.distractors for draft in drawn}) == 1
        assert len({draft.references for draft in drawn}) == len({draft.question for draft in drawn}) == 16


@pytest.mark.parametrize("task", TOGETHER)
def test_two_samples_share_all_needles_but_the_deepest_and_the_text_before_it(task: str) -> None:
    """They share the text too, so an engine can reuse the computation for one up to there."""
    drawn = on_haystack(task, 5, 32)
    hidden = [NEEDLE.findall(draft.context) for draft in drawn]
    for one in range(0, 32, 2):
        shared, (own, other) = hidden[one][:3], (hidden[one][3], hidden[one + 1][3])
        assert hidden[one + 1][:3] == shared
        assert own[1] != other[1]
        before = [
            draft.context[: draft.context.index(value)].rpartition("One of")[0]
            for draft, (_, value) in zip(drawn[one : one + 2], (own, other), strict=True)
        ]
        shallower, deeper = sorted(before, key=len)
        assert deeper.startswith(shallower)
    of_pairs = [needle for needles in hidden[::2] for needle in needles[:3]]
    assert len({value for _, value in of_pairs}) == 16 * 3
    assert len({key for key, _ in of_pairs}) == (16 if task == "niah_multivalue" else 16 * 3)


@pytest.mark.parametrize("task", TOGETHER)
def test_any_four_depths_are_as_likely_as_any_others(task: str) -> None:
    """In the first and in the second sample of a pair; subsets are numbered from both ends."""
    many = comb(40, 4)
    for second in (0, 1):
        steps = [sorted(round(depth * 39) for depth in draft.depths) for draft in one_of_each_pair(task, 500, second)]
        for ranked in (steps, [[39 - step for step in reversed(four)] for four in steps]):
            numbers = [sum(comb(step, at) for at, step in enumerate(four, start=1)) for four in ranked]
            assert is_even((number * 38 // many, 38) for number in numbers)


def one_of_each_pair(task: str, pairs: int, second: int) -> list[Draft]:
    """Samples of which none shares a needle with another."""
    drawn = drafts(task, 2 * HAYSTACKS * -(-pairs // HAYSTACKS), token_budget=0)
    return [sample for index, sample in enumerate(drawn) if index // HAYSTACKS % 2 == second][:pairs]


def on_haystack(task: str, haystack: int, count: int) -> list[Draft]:
    """Return the first samples that stand on a haystack."""
    return [draft_at(task, haystack + HAYSTACKS * turn, token_budget=1500) for turn in range(count)]


@pytest.mark.parametrize("task", ESSAYS)
def test_no_text_of_a_case_comes_twice(task: str) -> None:
    assert len({draft.context for draft in drafts(task, 200, token_budget=0)}) == 200


@pytest.mark.parametrize("task", ESSAYS)
def test_samples_of_a_case_compute_two_thirds_of_their_tokens(task: str) -> None:
    indices = [haystack + HAYSTACKS * turn for haystack in (0, 1) for turn in range(16)]
    ids = [make_sample(task, 2048, index, kind="pieces").prompt.token_ids for index in indices]
    counts = prefill_token_counts(ids)
    assert sum(count.computed for count in counts) <= 0.65 * sum(map(len, ids))


@pytest.mark.parametrize("task", ESSAYS)
def test_a_needle_among_essays_is_at_its_depth(task: str) -> None:
    for sample in make_samples(task, 6):
        for reference, depth in zip(sample.references, sample.depths, strict=True):
            before, _, after = sample.context.partition(reference)
            assert len(before) / len(before + after) == pytest.approx(depth, abs=0.06)
            opening = before[: before.rindex("One of the special magic")]
            assert opening == "" or re.search(r"[.?!] $", opening), "needles stand between sentences"


@pytest.mark.parametrize("task", ["niah_single_1", "niah_single_2", "niah_multikey_1", *NEEDLES_ONLY])
def test_the_queried_needle_can_be_first_and_last(task: str) -> None:
    firsts = lasts = 0
    for draft in drafts(task, 100, token_budget=400 if task in NEEDLES_ONLY else 150):
        assert len(draft.context) > 200
        firsts += re.match(rf"One of the special magic \w+ for {draft.question} is", draft.context) is not None
        lasts += draft.context.endswith(f"{draft.question} is: {draft.references[0]}.")
    assert 0 < firsts < 50
    assert 0 < lasts < 50


@pytest.mark.parametrize("token_budget", [0, 250])
def test_the_queried_key_has_any_rank_among_the_four(token_budget: int) -> None:
    """Also in a text of few sentences, where two depths can mean the same place."""
    ranks = []
    for draft in drafts("niah_multikey_1", 200, token_budget=token_budget):
        keys = [key for key, _ in NEEDLE.findall(draft.context)]
        ranks.append((keys.index(draft.question), len(keys)))
    assert {places for _, places in ranks} == {4}
    assert is_even(ranks)


def test_needles_follow_each_other_by_their_depths() -> None:
    for draft in drafts("niah_multivalue", 100, token_budget=100):
        by_depth = [value for _, value in sorted(zip(draft.depths, draft.references, strict=True))]
        assert [value for _, value in NEEDLE.findall(draft.context)] == by_depth


def test_a_needle_among_noise_stands_in_any_gap() -> None:
    drawn = drafts("niah_single_1", 400, token_budget=500)
    assert is_even(ranks_of(drawn))
    for draft in drawn[:50]:
        lines = draft.context.split("\n")
        [place] = [at for at, line in enumerate(lines) if draft.references[0] in line]
        assert draft.rank == (place, len(lines))
        assert draft.depths == (place / (len(lines) - 1),)


@pytest.mark.parametrize("task", NEEDLES_ONLY)
def test_a_needle_among_needles_has_any_rank(task: str) -> None:
    drawn = drafts(task, 200, token_budget=400)
    assert is_even(ranks_of(drawn))
    for draft in drawn[:50]:
        keys = [key for key, _ in NEEDLE.findall(draft.context)]
        assert draft.rank == (keys.index(draft.question), len(keys))
        assert draft.depths == (draft.rank[0] / (draft.rank[1] - 1),)


# --- paragraphs ---


def test_the_paragraph_with_the_answer_has_any_rank() -> None:
    drawn = drafts("qa_1", 100, token_budget=600)
    assert is_even(ranks_of(drawn))
    for draft in drawn[:50]:
        documents = re.split(r"\n*Document \d+:\n", draft.context)[1:]
        [place] = [
            at for at, text in enumerate(documents) if any(contains_words(text, form) for form in draft.references)
        ]
        assert draft.rank == (place, len(documents))


def test_two_gold_paragraphs_have_any_two_ranks_in_any_order() -> None:
    """An answer stands in the second paragraph of a chain, which is therefore first as often as last."""
    questions, pairs, firsts = GENERATED.data_set("hotpot"), [], []
    paragraphs, gold = questions.paragraphs, {one.question: one.gold for one in questions.questions}
    for draft in drafts("qa_2", 120, token_budget=600):
        documents = re.split(r"\n*Document \d+:\n", draft.context)[1:]
        golds = [paragraphs[place] for place in gold[draft.question]]
        linking, answering = map(documents.index, golds)
        low, high = sorted((answering, linking))
        assert low < high
        pairs.append((high * (high - 1) // 2 + low, len(documents) * (len(documents) - 1) // 2))
        firsts.append((int(answering < linking), 2))
    assert is_even(pairs)
    assert is_even(firsts)


# --- chains and lists ---


def test_the_statements_of_a_chain_stand_in_order_and_anywhere() -> None:
    places = []
    for draft in drafts("vt", 200, token_budget=600):
        lines = draft.context.split("\n")
        order = [line.split()[1] for line in lines if line.startswith("VAR ")]
        assert tuple(order) == draft.references
        noise = len(lines) - len(order)
        assert list(draft.depths) == sorted(draft.depths)
        # As in RULER, noise stands behind the last statement.
        places += [(round(depth * noise), noise) for depth in draft.depths]
    assert is_even(places)
    assert {0, places[0][1] - 1} <= {place for place, _ in places}


def test_assignments_have_noise_between_them_in_the_sample_and_in_the_example() -> None:
    noise = "The grass is green."
    for index, length in enumerate((1024, 4096, 4096)):
        text = make_sample("vt", length, index).prompt.text
        for statements in re.findall(r"Memorize and track.*?\n\n(.*?)\nQuestion:", text, re.DOTALL):
            lines = statements.split("\n")
            assert sum(line.startswith("VAR") for line in lines) == 5
            assert not any(one.startswith("VAR") and not other.startswith(noise) for one, other in pairwise(lines))
            assert lines[-1].startswith(noise)
    example = text[text.index("Memorize") : text.index("Memorize", text.index("Memorize") + 1)]
    unsolved = re.sub(r"(?<=they are:).*", "", example.strip())
    line = next(line for line in example.split("\n") if line.startswith(noise))
    tokens, more = (formatter().count([text], separator="")[0] for text in (unsolved, f"{line}\n{unsolved}"))
    assert tokens <= 500 < more
