"""RULER's prompts, word by word, against the templates of its code (c3f5e3b) and its paper (Tables 7 to 9).

They may differ only as docs/ruler.md says: a question for one value opens in the singular, as in RULER's code, and
every needle and every line of noise ends with a full stop.
"""

import re
from typing import Any, NamedTuple

import pytest

from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import RULER_PAPER_PROMPTS, load_tasks
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.tiny_tokenizers import GENERATED, RULER, Pieces


class Printed(NamedTuple):
    """The parts of a template that do not depend on the sample."""

    opening: str
    question: str
    prefix: str


def needles_template(noun: str, *, asks: str, asks_all: bool = False) -> Printed:
    """Return the template of a needle task; `noun` is the word for its values, and `asks` that of the question."""
    opening = (
        f"Some special magic {noun} are hidden within the following text. "
        f"Make sure to memorize it. I will quiz you about the {noun} afterwards."
    )
    value = f"special magic {asks} for {{query}} mentioned in the provided text"
    if asks_all:
        return Printed(opening, f"What are all the {value}?", f"The {value} are")
    one = opening.replace("Some ", "A ").replace(f"{noun} are", f"{noun[:-1]} is").replace(noun, noun[:-1])
    return Printed(one, f"What is the {value}?", f"The {value} is")


NUMBER = needles_template("numbers", asks="number")
NUMBERS = needles_template("numbers", asks="numbers", asks_all=True)
QA = "Answer the question based on the given documents. Only give me the answer and do not output any other words."
DOCUMENTS = Printed(f"{QA} The following are given documents.", f"{QA} Question: {{query}}", "Answer:")
PRINTED = {
    **dict.fromkeys(("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2"), NUMBER),
    **dict.fromkeys(("niah_single_3", "niah_multikey_3"), needles_template("uuids", asks="uuid")),
    **dict.fromkeys(("niah_multivalue", "niah_multiquery"), NUMBERS),
    "vt": Printed(
        "Memorize and track the chain(s) of variable assignment hidden in the following text.",
        "Question: Find all variables that are assigned the value {query} in the text above.",
        "Answer: According to the chain(s) of variable assignment in the text above, "
        "5 variables are assigned the value {query}, they are:",
    ),
    "cwe": Printed(
        "Below is a numbered list of words. In these words, some appear more often than others. "
        "Memorize the ones that appear most often.",
        "Question: What are the 10 most common words in the above list?",
        "Answer: The top 10 words that appear most often in the list are:",
    ),
    "fwe": Printed(
        "Read the following coded text and track the frequency of each coded word. "
        "Find the three most frequently appeared coded words.",
        "Question: Do not provide any explanation. Please ignore the dots '....'. "
        "What are the three most frequently appeared words in the above coded text?",
        "Answer: According to the coded text above, the three most frequently appeared words are:",
    ),
    "qa_1": DOCUMENTS,
    "qa_2": DOCUMENTS,
}
# The tasks that `--prompts ruler-paper` words as printed.
OTHERWISE_PRINTED = {
    "niah_single_3": needles_template("words", asks="word"),
    "niah_multikey_3": needles_template("uuids", asks="number"),
}


class ChatPieces(Pieces):
    """The same tokens with a chat template."""

    chat_template = "turns"

    def apply_chat_template(self, conversation: Any, **_: Any) -> str:
        return "".join(f"( user ) {turn['content']} ( end ) " for turn in conversation) + "( model ) "


FORMATTERS = {"base": PromptFormatter(Pieces()), "chat": PromptFormatter(ChatPieces())}


def words(template: str, query: str = "") -> list[str]:
    return template.format(query=query).split()


def parts(sample: Sample) -> tuple[list[str], list[str]]:
    """Return the words of a prompt before and after its context."""
    before, _, after = sample.prompt.text.rpartition(sample.context)
    assert before
    return before.split(), after.split()


@pytest.mark.parametrize("kind", FORMATTERS)
@pytest.mark.parametrize("name", PRINTED)
def test_a_prompt_has_the_printed_words_and_no_others(name: str, kind: str) -> None:
    opening, question, prefix = PRINTED[name]
    opens, between = (["(", "user", ")"], ["(", "end", ")", "(", "model", ")"]) if kind == "chat" else ([], [])
    for index in range(2):
        sample = RULER[name].sample(2048, index, seed=0, tokenizer=FORMATTERS[kind], corpora=GENERATED)
        before, after = parts(sample)
        query = sample.question
        assert after == [*words(question, query), *between, *words(prefix, query)]
        assert before[: len(opens)] == opens
        example, own = before[len(opens) : -len(words(opening))], before[-len(words(opening)) :]
        assert own == words(opening)
        if name in ("vt", "cwe"):
            _check_example(example, PRINTED[name], answers=5 if name == "vt" else 10)
        else:
            assert example == []


def _check_example(example: list[str], printed: Printed, answers: int) -> None:
    """Assert that a solved example is the same template with its answers behind the prefix."""
    text = " ".join(example)
    value = re.search(r"assigned the value (\d+)", text)
    query = value[1] if value else ""
    end = " ".join((*words(printed.question, query), *words(printed.prefix, query)))
    assert text.startswith(" ".join(words(printed.opening)))
    assert text.count(end) == 1
    given = text.partition(end)[2].split()
    assert len([word for word in given if not re.fullmatch(r"\d+\.", word)]) == answers


@pytest.mark.parametrize("name", OTHERWISE_PRINTED)
def test_the_printed_wording_can_be_chosen(name: str) -> None:
    tasks = load_tasks(str(RULER_PAPER_PROMPTS))
    sample = tasks[name].sample(2048, 0, seed=0, tokenizer=FORMATTERS["base"], corpora=GENERATED)
    opening, question, prefix = OTHERWISE_PRINTED[name]
    before, after = parts(sample)
    assert (before, after) == (words(opening), words(f"{question} {prefix}", sample.question))
    assert f"special magic {'words' if name == 'niah_single_3' else 'uuids'} for" in sample.context
    assert all(tasks[other] == RULER[other] for other in RULER if other not in OTHERWISE_PRINTED)
