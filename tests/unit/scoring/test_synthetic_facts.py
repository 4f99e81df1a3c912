"""The exact scorers against answers and summaries that were labelled by hand."""

import pytest

from longctx.fixtures.records.samples import AnswerClaim, Event
from longctx.fixtures.scoring.synthetic import (
    Evidence,
    citation_score,
    split_items,
    split_sentences,
    summary_score,
    tells,
)

QUESTION = "Who was the captain of the Lady Orsane?"
CLAIMS = (
    AnswerClaim(id="v1", values=("Ora Tolle", "O. Tolle", "the Heron of Brask"), cues=("1752", "the Grey Swan")),
    AnswerClaim(id="v2", values=("Hedric Vaun", "H. Vaun"), cues=("1790", "the Kest Ghost")),
    AnswerClaim(id="v3", values=("Mirel Dost", "M. Dost"), cues=("1821", "the Ibra Swan")),
)
SHOWN = (
    Evidence(frozenset(("v1",)), "The Lady Orsane was launched in 1752 at Upper Brask. Ora Tolle commanded it."),
    Evidence(
        frozenset(("v2",)), "The Lady Orsane slid into the sea in 1790. Its captain was Hedric Vaun of Port Ammel."
    ),
    Evidence(frozenset(("v3",)), "The Lady Orsane, launched in 1821, sailed under Mirel Dost."),
    Evidence(frozenset(), "Ora Tolle bought salt at Lower Brask in 1766 and liked figs."),
    Evidence(frozenset(("v1",)), "Launched in 1752, the Lady Orsane obeyed Ora Tolle, called the Heron of Brask."),
)
# The answer, the share of its sentences that are borne out, the share of its citations that are needed.
CITED = [
    ("Ora Tolle commanded the ship launched in 1752 [1].", 1, 1),
    ("The 1752 Lady Orsane obeyed Ora Tolle [5].", 1, 1),
    ("In command of the vessel of 1752 stood O. Tolle [1].", 1, 1),
    ("The Heron of Brask was the captain of the one from 1752 [5].", 1, 1),
    ("Ora Tolle was one of its captains [1].", 1, 1),
    ("ora tolle captained it, launched 1752 [1].", 1, 1),
    ("Hedric Vaun commanded the ship launched in 1752 [1].", 0, 0),
    ("Hedric Vaun commanded the ship launched in 1752 [1][2].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1753 [1].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1790 [1].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1752 [2].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1752 [4].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1752 [9].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1752 [0].", 0, 0),
    ("Ora Tolle commanded the ship launched in 1752.", 0, 0),
    ("", 0, 0),
    ("I do not know.", 0, 0),
    ("The Lady Orsane was a famous ship [1].", 0, 0),
    ("Its captain was Brun Kalder [1].", 0, 0),
    ("Ora Tolle commanded the ship of 1752 [1][4].", 1, 0.5),
    ("Ora Tolle commanded the ship of 1752 [1][5].", 1, 1),
    ("Ora Tolle commanded the ship of 1752 [1][2][4].", 1, 1 / 3),
    ("Ora Tolle commanded the ship of 1752 [1][1].", 1, 1),
    ("Ora Tolle commanded the ship of 1752 [4][2][3][1].", 0, 0),
    ("The ships of 1752 and 1790 were led by Ora Tolle and Hedric Vaun [1][2].", 1, 1),
    ("The ships of 1752 and 1790 were led by Hedric Vaun and Ora Tolle [1][2].", 0, 0),
    ("Ora Tolle commanded the one of 1752, Hedric Vaun that of 1790, Mirel Dost that of 1821 [1][2][3].", 1, 1),
    ("Ora Tolle commanded the one of 1752, Hedric Vaun that of 1790, Mirel Dost that of 1821 [1][2].", 0, 0),
    ("Ora Tolle, Hedric Vaun and Mirel Dost were its captains [1][2][3].", 1, 1),
    ("Ora Tolle commanded the one of 1752 [1]. Hedric Vaun commanded that of 1790 [2].", 1, 1),
    ("Ora Tolle commanded the one of 1752 [1]. Hedric Vaun commanded that of 1790 [3].", 0.5, 0.5),
    ("Ora Tolle commanded the one of 1752 [1]. Hedric Vaun commanded that of 1790.", 0.5, 1),
    ("Here is what I scores. Ora Tolle commanded the one of 1752 [1].", 0.5, 1),
    ("Ora Tolle commanded the one of 1752. [1] Hedric Vaun that of 1790. [2]", 1, 1),
    ("Ora Tolle of Port Ammel commanded the ship of 1752 [1].", 0, 0),
    ("Hedric Vaun of Port Ammel commanded the ship of 1790 [2].", 1, 1),
    ("The Grey Swan had Ora Tolle as its captain [1].", 1, 1),
    ("The Kest Ghost had Ora Tolle as its captain [1][2].", 0, 0),
    ("O. Tolle commanded it in 1752 [1]. H. Vaun did so in 1790 [2]. M. Dost in 1821 [3].", 1, 1),
]


@pytest.mark.parametrize(("answer", "recall", "precision"), CITED)
def test_citations_are_scored_as_by_hand(answer: str, recall: float, precision: float) -> None:
    scores = citation_score(split_sentences(answer), CLAIMS, SHOWN, QUESTION)
    assert [scores.recall, scores.precision] == pytest.approx([recall, precision])


LIST_CLAIMS = (
    AnswerClaim(id="b1", values=("The Widow of Brask", "the Kest Manuscript")),
    AnswerClaim(id="b2", values=("Songs of Ammel",)),
)
LIST_SHOWN = (
    Evidence(frozenset(("b1",)), "The Widow of Brask, also called the Kest Manuscript, is by Ora Tolle."),
    Evidence(frozenset(("b2",)), "Songs of Ammel came from the pen of Ora Tolle."),
    Evidence(frozenset(("b3",)), "A Winter in Brask was written by Hedric Vaun."),
)
LISTED = [
    ("The Widow of Brask [1], Songs of Ammel [2].", 1, 1),
    ("The Widow of Brask [1], and Songs of Ammel [2]", 1, 1),
    ("Songs of Ammel [1], The Widow of Brask [2].", 0, 0),
    ("The Widow of Brask [1], A Winter in Brask [3].", 0.5, 0.5),
    ("the Kest Manuscript [1]", 1, 1),
    ("The Widow of Brask, Songs of Ammel [2]", 0.5, 1),
    ("The Widow of Brask [1][2]", 1, 0.5),
    ("The Gardener of Ammel [2]", 0, 0),
]


@pytest.mark.parametrize(("answer", "recall", "precision"), LISTED)
def test_lists_are_scored_as_by_hand(answer: str, recall: float, precision: float) -> None:
    scores = citation_score(split_items(answer), LIST_CLAIMS, LIST_SHOWN, "Which books were written by Ora Tolle?")
    assert [scores.recall, scores.precision] == pytest.approx([recall, precision])


def person(name: str, *more: str) -> tuple[str, ...]:
    return (name, name.split()[-1], *more)


A, B, D = person("Ora Tolle", "the plaintiff"), person("Hedric Vaun", "the defendant"), person("Mirel Dost")
MILL = ("Brask Mill", "Brask")


def event(name: str, year: str, verbs: str, inverse: str, *parts: tuple[str, ...], place: str = "") -> Event:
    """Directed where it begins and ends with people."""
    return Event(
        id=name, verbs=tuple(verbs.split(", ")), inverse=tuple(filter(None, inverse.split(", "))), parts=parts,
        years=(year,), directed=parts[-1] != MILL, places=(place,) if place else (),
    )  # fmt: skip


EVENTS = (
    event("let", "1750", "let, leased, lease, rented out", "rented, leased", A, MILL, B, place="Ammel"),
    event("fire", "1752", "burned down, set fire to, fire", "", B, MILL),
    event("suit", "1753", "sued, suit, filed", "", A, B, place="Kest"),
    event("paid", "1756", "paid", "received", B, ("1600", "1,600"), A),
    event("sale", "1757", "sold, sale", "bought", A, MILL, D),
)
MINOR = (event("minor", "1754", "visited", "", person("Jovor Nesalo"), person("Elvo Brark")),)
TOLD = [
    ("Ora Tolle let Brask Mill to Hedric Vaun in 1750.", {"let"}),
    ("In 1750 the plaintiff leased the Brask Mill to the defendant.", {"let"}),
    ("Vaun rented Brask Mill from Tolle in 1750.", {"let"}),
    ("Tolle rented Brask Mill from Vaun in 1750.", set()),
    ("Vaun leased Brask Mill from Tolle in 1750.", {"let"}),
    ("Tolle leased Brask Mill from Vaun in 1750.", set()),
    ("Vaun leased Brask Mill to Tolle in 1750.", set()),
    ("Tolle rented out Brask Mill to Vaun at Ammel.", {"let"}),
    ("Vaun rented out Brask Mill to Tolle in 1750.", set()),
    ("Hedric Vaun burned down Brask Mill in 1752.", {"fire"}),
    ("Brask Mill was burned down by the defendant in 1752.", {"fire"}),
    ("Brask Mill was burned down by the defendant.", set()),
    ("The defendant set fire to the mill at Brask in 1752.", {"fire"}),
    ("Hedric Vaun burned down Brask Mill in 1755.", set()),
    ("Mirel Dost burned down Brask Mill in 1752.", set()),
    ("Ora Tolle sued Hedric Vaun in the court of Kest in 1753.", {"suit"}),
    ("Hedric Vaun was sued by Ora Tolle at Kest.", {"suit"}),
    ("Hedric Vaun was sued by Ora Tolle.", set()),
    ("Hedric Vaun was sued by Ora Tolle at Ammel.", set()),
    ("Hedric Vaun sued Ora Tolle in 1753.", set()),
    ("Ora Tolle was sued by Hedric Vaun in 1753.", set()),
    ("In 1753 the plaintiff filed suit against the defendant.", {"suit"}),
    ("A suit was brought by Tolle against Vaun in 1753.", {"suit"}),
    ("Vaun paid 1,600 crowns to Tolle in 1756.", {"paid"}),
    ("Tolle received 1600 crowns from Vaun in 1756.", {"paid"}),
    ("Tolle paid 1600 crowns to Vaun in 1756.", set()),
    ("Vaun paid 1700 crowns to Tolle in 1756.", set()),
    ("Mirel Dost bought Brask Mill from Ora Tolle in 1757.", {"sale"}),
    ("Brask Mill was sold by Tolle to Dost in 1757.", {"sale"}),
    ("Brask Mill was bought by Mirel Dost from Ora Tolle in 1757.", {"sale"}),
    ("Mirel Dost sold Brask Mill to Ora Tolle in 1757.", set()),
    ("After Vaun burned down Brask Mill in 1752, Tolle sued Vaun in 1753.", {"fire", "suit"}),
    ("The weather was fine.", set()),
    ("Ora Tolle and Hedric Vaun met.", set()),
]


@pytest.mark.parametrize(("sentence", "events"), TOLD)
def test_sentences_tell_the_events_that_a_reader_finds(sentence: str, events: set[str]) -> None:
    assert {event.id for event in EVENTS if tells(sentence, event)} == events


def test_a_pronoun_stands_for_a_name_in_the_previous_sentence() -> None:
    assert tells("She sued Vaun in 1753.", EVENTS[2], "Ora Tolle was furious.")
    assert not tells("She sued Vaun in 1753.", EVENTS[2], "Mirel Dost was furious.")
    assert not tells("Nobody sued Vaun in 1753.", EVENTS[2], "Ora Tolle was furious.")


GOOD = (
    "Ora Tolle let Brask Mill to Hedric Vaun in 1750. Vaun burned down Brask Mill in 1752. Tolle sued Vaun in 1753. "
    "Vaun paid 1600 crowns to Tolle in 1756. Mirel Dost bought Brask Mill from Tolle in 1757."
)
SUMMARIES = [
    (GOOD, 1, 1, 1),
    ("", 0, 0, 0),
    ("Summary:", 0, 0, 0),
    ("Ora Tolle let Brask Mill to Hedric Vaun in 1750.", 0.2, 1, 1),
    ("Ora Tolle let Brask Mill to Hedric Vaun in 1750. Vaun burned down Brask Mill in 1759.", 0.2, 0.5, 1),
    ("Hedric Vaun let Brask Mill to Ora Tolle in 1750. Vaun burned down Brask Mill in 1752.", 0.2, 0.5, 1),
    ("Ora Tolle sued Hedric Vaun in 1753. It was a hard time for everyone involved.", 0.2, 1, 1),
    ("Jovor Nesalo visited Elvo Brark in 1754. Ora Tolle sued Hedric Vaun in 1753.", 0.2, 1, 1),
    ("Elvo Brark visited Jovor Nesalo in 1754. Ora Tolle sued Hedric Vaun in 1753.", 0.2, 0.5, 1),
    ("Ora Tolle sued Hedric Vaun with the help of Jovor Nesalo in 1753.", 0.2, 0, 1),
    ("Vaun burned down Brask Mill in 1752. " * 4, 0.2, 1, 0),
    ("Vaun the the the the the burned down Brask Mill in 1752.", 0.2, 1, 0),
    ("Ora Tolle sued Hedric Vaun in 1753. Vaun was sued.", 0.2, 1, 1),
    ("Ora Tolle sued Hedric Vaun in 1753. Vaun sued as well.", 0.2, 0.5, 1),
    ("Ora Tolle sued Hedric Vaun in 1753. She sold Brask Mill to Mirel Dost in 1757.", 0.4, 1, 1),
    ("Ora Tolle sued Hedric Vaun in 1753. She sold Brask Mill in 1757.", 0.2, 1, 1),
    ("Ora Tolle sued Hedric Vaun in 1753. Mirel Dost sold Brask Mill in 1757.", 0.2, 0.5, 1),
    ("Once upon a time there was a town, and everybody in it was happy.", 0, 0, 1),
]


@pytest.mark.parametrize(("summary", "recall", "precision", "fluency"), SUMMARIES)
def test_summaries_are_scored_as_by_hand(summary: str, recall: float, precision: float, fluency: float) -> None:
    scores = summary_score(summary, EVENTS, (*EVENTS, *MINOR))
    assert [scores.recall, scores.precision, scores.fluency] == pytest.approx([recall, precision, fluency])
    assert scores.value == pytest.approx(
        fluency * 2 * recall * precision / (recall + precision) if recall + precision else 0.0
    )


def test_initials_and_citations_do_not_end_a_sentence() -> None:
    assert split_sentences("O. Tolle led it [1]. H. Vaun did not. [2] No.\nYes") == (
        "O. Tolle led it [1].",
        "H. Vaun did not [2].",
        "No.",
        "Yes",
    )
