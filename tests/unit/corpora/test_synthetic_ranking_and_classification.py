"""The archive's rankings and classification sets are balanced, and every label follows from the text."""

import re
from collections import Counter

import pytest

from longctx.fixtures.corpora.synthetic.archive import SHAPES, _things_and_matters, archive_set


def test_a_ranking_has_as_many_passages_of_each_label() -> None:
    for index in range(24):
        query = archive_set("msmarco")[index]
        labels, passages = query.labels[:48], query.passages[:48]
        assert Counter(labels) == dict.fromkeys(range(4), 12)
        assert len({passage.text for passage in passages}) == 48
        assert all(60 <= len(passage.text.split()) <= 180 for passage in passages)


def test_relevance_is_in_the_passages() -> None:
    """The query's town is named in every relevant passage, so a reader can tell the labels apart."""
    for index in range(6):
        query = archive_set("msmarco")[index]
        about = [passage for label, passage in zip(query.labels[:40], query.passages[:40], strict=True) if label >= 2]
        frame = r"^(?:A walk through|The trades of|Notes on) | in former times$"
        (town,) = {re.sub(frame, "", passage.title) for passage in about}
        assert town in query.query
        assert all(town in passage.text for passage in about)


@pytest.mark.parametrize("name", SHAPES)
def test_sets_are_balanced_distinct_and_of_the_published_sizes(name: str) -> None:
    texts = archive_set(name)
    classes = {"trec_coarse": 6, "trec_fine": 50, "nlu": 68, "banking77": 77, "clinc150": 151}[name]
    assert len(texts.labels) == len(set(texts.labels)) == classes
    assert sorted(shot.label for shot in texts.train[: 2 * classes]) == sorted([*range(classes)] * 2)
    assert len(texts.train) >= 100_000
    assert len(texts.test) >= 500
    assert len({shot.text for shot in (*texts.train[:3000], *texts.test[:500])}) == 3500


@pytest.mark.parametrize("name", SHAPES)
def test_the_class_rule_gives_every_label(name: str) -> None:
    things, matters = _things_and_matters(name)
    group_of = {noun: group for group, nouns in enumerate(things) for noun in nouns}
    assert len(group_of) == sum(map(len, things)), "a thing of two groups"
    for shot in archive_set(name).test[:100]:
        nouns = [word for word in re.findall(r"[a-z]+", shot.text) if word in group_of]
        labels = {
            group_of[noun] * len(matters) + matter
            for noun in nouns
            for matter, forms in enumerate(matters)
            if any(states(shot.text, form, noun) for form in forms)
        }
        assert labels == {shot.label}, shot


def states(text: str, form: str, noun: str) -> bool:
    """Return True if a text has the sentence about this noun, and not about the other one that it mentions."""
    pattern = re.escape(form).replace(r"\{a_noun\}", f"an? {noun}").replace(r"\{noun\}", noun)
    return re.search(pattern.replace(r"\{kin\}", r"\w+"), text, re.IGNORECASE) is not None
