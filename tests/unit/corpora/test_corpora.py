"""The published files that RULER uses: essays, SQuAD and HotpotQA, and errors for faulty files."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora import CorpusError, load_corpora
from longctx.fixtures.corpora.published import ruler
from longctx.fixtures.corpora.schema import ParagraphQuestion
from longctx.fixtures.corpora.synthetic import prose
from longctx.fixtures.corpora.synthetic.passage_questions import one_hop_paragraphs, two_hop_paragraphs
from tests.helpers.published_files import Write, write

__all__ = ["write"]


def squad(*items: dict[str, Any], context: str = "The mill burned in spring.") -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": list(items)}]}]}


def squad_item(*answers: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "question": "When did it burn? ",
        "answers": [{"text": a, "answer_start": 0} for a in answers],
    } | more


def hotpot_item(answer: str, **more: Any) -> dict[str, Any]:
    context = [["Mill", ["The mill burned.", " Ida built it."]], ["Ida", ["Ida was born in Aln."]], ["Fog", ["Fog."]]]
    item = {"_id": "h", "question": "Where was its builder born?", "answer": answer, "context": context}
    return item | {"supporting_facts": [["Mill", 1], ["Ida", 0], ["Mill", 0]]} | more


# --- essays ---


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One.  Two\nlines? Three! ", ["One.", "Two lines?", "Three!"]),
        ('He said "no." Then left.', ['He said "no."', "Then left."]),
        ("Some (not all.) Then more.", ["Some (not all.)", "Then more."]),
        ("It is accelerating.We stop.", ["It is accelerating.", "We stop."]),
        ("July 2010What is it?", ["July 2010", "What is it?"]),
        ("The end.[2] A note.", ["The end.", "[2] A note."]),
        ("Ask Mr. Hill, or J. Hill, etc. and go.", ["Ask Mr. Hill, or J. Hill, etc. and go."]),
        ("Pi is 3.14 here. Yes.", ["Pi is 3.14 here.", "Yes."]),
        ("Do this:\n1. Wait.\n2. Go on.", ["Do this: 1. Wait.", "2. Go on."]),
        (" \n ", []),
    ],
)
def test_essays_are_cut_at_the_ends_of_sentences(text: str, sentences: list[str]) -> None:
    assert list(ruler.split(text)) == sentences


@given(st.text(alphabet="ab AB.?!\"')\n019", max_size=200))
def test_cutting_loses_no_text(text: str) -> None:
    sentences = list(ruler.split(text))
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == " ".join(sentence.split()) != "" for sentence in sentences)


def test_a_very_long_sentence_is_cut_between_words() -> None:
    sentences = list(ruler.split("word " * 250 + "end."))
    assert [len(sentence.split()) for sentence in sentences] == [120, 120, 11]


@pytest.mark.parametrize("name", [name + end for name in ruler.ESSAYS for end in ("", ".gz")])
def test_essays_become_the_haystack(write: Write, tmp_path: Path, name: str) -> None:
    write(name, {"text": "One here. Two here. Three here."})
    haystack = load_corpora(tmp_path).collection("haystack")
    assert haystack.source == "published"
    assert [haystack[i] for i in range(len(haystack))] == ["One here.", "Two here.", "Three here."]


# --- questions ---


def test_squad_yields_answerable_questions_with_distinct_answers(write: Write) -> None:
    data = squad(
        squad_item("in spring", "spring", "in spring"),
        squad_item(id="none", is_impossible=True, answers=[]),
        squad_item("SPRING", id="case"),
        squad_item("in autumn", id="absent"),
        squad_item(id="empty"),
    )
    data["data"].append(squad(squad_item("burned", id="again"))["data"][0])
    path = write("squad.json", data)
    loaded = load_corpora(path.parent).data_set("squad")
    assert loaded.paragraphs == ("The mill burned in spring.",)
    assert loaded.questions == (
        ParagraphQuestion(
            id="q", question="When did it burn?", answers=("in spring", "spring"), gold=(0,), related=(0,)
        ),
        ParagraphQuestion(id="case", question="When did it burn?", answers=("SPRING",), gold=(0,), related=(0,)),
        ParagraphQuestion(id="again", question="When did it burn?", answers=("burned",), gold=(0,), related=(0,)),
    )


def test_hotpot_yields_questions_that_containment_can_score(write: Write) -> None:
    data = [
        hotpot_item("Aln"),
        hotpot_item("yes", _id="yes/no"),
        hotpot_item("Fog", _id="answer outside the evidence"),
        hotpot_item("Aln", _id="evidence outside the context", supporting_facts=[["Ida", 0], ["Elsewhere", 0]]),
    ]
    path = write("hotpotqa.json", data)
    loaded = load_corpora(path.parent).data_set("hotpot")
    assert loaded.paragraphs == ("Mill\nThe mill burned. Ida built it.", "Ida\nIda was born in Aln.", "Fog\nFog.")
    assert loaded.questions == (
        ParagraphQuestion(
            id="h", question="Where was its builder born?", answers=("Aln",), gold=(0, 1), related=(0, 1, 2)
        ),
    )


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_question_files_may_have_every_known_name(write: Write, tmp_path: Path, suffix: str) -> None:
    for name in ruler.SQUAD:
        path = write(name + suffix, squad(squad_item("spring")))
        assert load_corpora(tmp_path).data_set("squad").source == "published"
        path.unlink()
    for name in ruler.HOTPOT:
        path = write(name + suffix, [hotpot_item("Aln")])
        assert load_corpora(tmp_path).data_set("hotpot").source == "published"
        path.unlink()


# --- all together ---


def test_without_a_directory_everything_is_generated() -> None:
    corpora = load_corpora(None)
    assert set(corpora.sources.values()) == {"archive"}
    haystack = corpora.collection("haystack")
    assert (haystack[5], len(haystack)) == (prose.sentence(5), prose.SENTENCES)
    assert corpora.data_set("squad") is one_hop_paragraphs()
    assert corpora.data_set("hotpot") is two_hop_paragraphs()


def test_missing_files_are_replaced_by_generated_text_and_named_so(write: Write, tmp_path: Path) -> None:
    write("essays/PaulGrahamEssays.json", {"text": "One here."})
    corpora = load_corpora(str(tmp_path))
    assert corpora.sources == {"haystack": "published", "squad": "archive", "hotpot": "archive"}
    assert corpora.data_set("squad").source == corpora.data_set("hotpot").source == "archive"


def test_the_fingerprint_depends_on_the_content_and_not_on_the_place(write: Write, tmp_path: Path) -> None:
    def fingerprint() -> str:
        return load_corpora(tmp_path).fingerprint

    path = write("PaulGrahamEssays.json", {"text": "One here."})
    first = fingerprint()
    assert first != load_corpora(None).fingerprint
    path.unlink()
    path = write("essays/PaulGrahamEssays.json.gz", {"text": "One here."})
    assert fingerprint() == first
    path.unlink()
    write("PaulGrahamEssays.json", {"text": "Two here."})
    assert fingerprint() != first


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"^--data-dir: \S*nowhere: no such directory; .*leave out --data-dir$"):
        load_corpora(tmp_path / "nowhere")


def test_a_directory_without_a_known_file_is_an_error(write: Write, tmp_path: Path) -> None:
    write("notes.json", {})
    with pytest.raises(CorpusError, match=r"none of the known files; .*essays/PaulGrahamEssays\.json, qa/squad-dev"):
        load_corpora(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "data", "fault"),
    [
        ("haystack", "PaulGrahamEssays.json", b'{"text": "torn', "Unterminated string"),
        ("haystack", "PaulGrahamEssays.json", b"\xff\xfe\xfa", "codec can't decode"),
        ("haystack", "PaulGrahamEssays.json.gz", b"plain", "Not a gzipped file"),
        ("haystack", "PaulGrahamEssays.json.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "ended before"),
        ("haystack", "PaulGrahamEssays.json", {"title": "x"}, "no text"),
        ("haystack", "PaulGrahamEssays.json", ["x"], "no text"),
        ("haystack", "PaulGrahamEssays.json", {"text": "  "}, "text without a sentence"),
        ("squad", "squad.json", b"{", "Expecting property name"),
        ("squad", "squad.json", [], "list indices must be integers"),
        ("squad", "squad.json", {"data": [{"paragraphs": [{"qas": []}]}]}, "no field 'context'"),
        ("squad", "squad.json", squad(squad_item(id=7)), "int in place of text"),
        ("squad", "squad.json", squad(squad_item("winter")), "1 questions, none with an answer"),
        ("squad", "squad.json", {"data": []}, "0 questions"),
        ("hotpot", "hotpotqa.json", {"data": []}, "string indices must be integers"),
        ("hotpot", "hotpotqa.json", [{"question": "x"}], "no field 'context'"),
        ("hotpot", "hotpotqa.json", [hotpot_item("Aln", context=[["Mill"]])], "not enough values to unpack"),
        ("hotpot", "hotpotqa.json", [hotpot_item("yes")], "1 questions, none with an answer"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_of_one_line(
    write: Write, tmp_path: Path, kind: str, name: str, data: Any, fault: str
) -> None:
    path = write(name, data)
    with pytest.raises(CorpusError) as caught:
        load_corpora(tmp_path).data_set(kind)
    message = str(caught.value)
    assert message.startswith(f"--data-dir: {path}: expected ")
    assert fault in message
    assert "remove it to use generated text" in message
    assert "\n" not in message
