"""The archive's rankings and label schemes: balanced, learned from examples, and not solved by words alone."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from fixtures.corpora.schema import LabelledText
from fixtures.corpora.synthetic.archive import classification, ranking_questions
from fixtures.corpora.synthetic.bm25 import Bm25Index
from fixtures.corpora.synthetic.classification import SHAPES, scheme_plan
from fixtures.corpora.synthetic.entities import World
from tests.helpers.solvers import share

WORLD = World(0)


def ndcg(labels: Sequence[int], of: Sequence[int]) -> float:
    def gain(ranked: Sequence[int]) -> float:
        return sum(label / math.log2(place + 2) for place, label in enumerate(ranked[:10]))

    return gain(labels) / gain(sorted(of, reverse=True))


def test_ranking_is_balanced_and_words_alone_do_not_rank() -> None:
    scores = []
    for index in range(24):
        query = ranking_questions()[index]
        labels, passages = query.labels[:48], query.passages[:48]
        assert Counter(labels) == dict.fromkeys(range(4), 12)
        assert len({passage.text for passage in passages}) == 48
        assert all(60 <= len(passage.text.split()) <= 180 for passage in passages)
        ranked = Bm25Index([f"{passage.title} {passage.text}" for passage in passages]).search(query.query, 10)
        scores.append(ndcg([labels[place] for place in ranked], labels))
    assert sum(scores) / len(scores) <= 0.6


def test_relevance_is_in_the_passages() -> None:
    """The town and the craft's own words are in what is relevant: a reader can tell the labels apart."""
    for index in range(6):
        query = ranking_questions()[index]
        about = [passage for label, passage in zip(query.labels[:40], query.passages[:40], strict=True) if label >= 2]
        frame = r"^(?:A walk through|The trades of|Notes on) | in former times$"
        (town,) = {re.sub(frame, "", passage.title) for passage in about}
        assert town in query.query
        assert all(town in passage.text for passage in about)


@pytest.mark.parametrize("name", SHAPES)
def test_schemes_are_balanced_distinct_and_as_large_as_they_should_be(name: str) -> None:
    scheme = classification(name)
    classes = {"trec_coarse": 6, "trec_fine": 50, "nlu": 68, "banking77": 77, "clinc150": 151}[name]
    assert len(scheme.labels) == len(set(scheme.labels)) == classes
    assert sorted(shot.label for shot in scheme.train[: 2 * classes]) == sorted([*range(classes)] * 2)
    assert len(scheme.train) >= 100_000
    assert len(scheme.test) >= 500
    texts = {shot.text for shot in (*scheme.train[:3000], *scheme.test[:500])}
    assert len(texts) == 3500


def features(shot: LabelledText) -> set[str]:
    """Words without names, and their last two letters."""
    words = re.findall(r"(?<![A-Za-z])[a-z]+", shot.text)
    return {*words, *(f"-{word[-2:]}" for word in words if len(word) > 4)}


@pytest.mark.parametrize(("name", "shots", "least"), [("trec_coarse", 400, 0.7), ("nlu", 1400, 0.5)])
def test_schemes_are_learned_from_examples_and_not_without(name: str, shots: int, least: float) -> None:
    """Naive Bayes over words and endings, against the commonest class."""
    scheme = classification(name)
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    often: Counter[str] = Counter()
    for shot in scheme.train[:shots]:
        seen[shot.label].update(features(shot))
        often.update(features(shot))

    def guess(shot: LabelledText) -> int:
        known = [word for word in features(shot) if word in often]

        def likelihood(label: int) -> float:
            counts = seen[label]
            return sum(math.log((counts[word] + 0.2 * often[word] / shots + 1e-3) / often[word]) for word in known)

        return max(sorted(seen), key=likelihood)

    test = scheme.test[:150]
    assert share([guess(shot) == shot.label for shot in test]) >= least
    assert max(Counter(shot.label for shot in test).values()) / len(test) <= 0.2


@pytest.mark.parametrize("name", SHAPES)
def test_the_rule_of_a_scheme_gives_every_label(name: str) -> None:
    """The oracle: which thing is meant, which matter, hence which class."""
    plan = scheme_plan(WORLD, name)
    thing = {noun: group for group, nouns in enumerate(plan.things) for noun in nouns}
    assert len(thing) == sum(map(len, plan.things)), "a thing of two groups"
    for shot in classification(name).test[:300]:
        text = re.sub(r"(Unlike|Next to) the \w+", "", shot.text)
        (noun,) = {word for word in re.findall(r"[a-z]+", text) if word in thing}
        (matter,) = {
            i for i, forms in enumerate(plan.matters) if any(form.lower() in shot.text.lower() for form in forms)
        }
        assert thing[noun] * len(plan.matters) + matter == shot.label, shot
