"""Gold answers of generated text: the query tells nothing of them, the evidence all, and foils stand in the context."""

import re

import pytest

from longctx.fixtures.scoring.match import normalize
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import gold_prompts
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.golden.outputs import golden_sample
from tests.helpers.tiny_models import byte_tokenizer
from tests.helpers.tiny_tokenizers import Pieces

GOLD = [task.name for task in TASKS.values() if task.has_gold is not None]
# The class of a text and the rank of a word are not words of the context; years occur in other sentences, too.
NUMBERS = {"trec_coarse", "trec_fine", "banking77", "clinc150", "nlu"}
# Answers that are counted, computed or composed, the number of a document, or an option that the question lists.
DERIVED = {task.name for task in TASKS.values() if task.suite == "frontier"}


def test_all_tasks_of_ruler_and_recall_have_gold_answers() -> None:
    assert {task.name for task in TASKS.values() if task.suite == "ruler" or task.category == "recall"} <= set(GOLD)


@pytest.mark.parametrize("task", GOLD)
def test_the_evidence_and_not_the_query_holds_the_answer(task: str) -> None:
    sample = golden_sample(task, 4096, 0, 0)
    gold = sample.gold
    assert gold is not None
    parts = [part for part in sample.references if part in gold.text]
    assert parts
    assert len(gold.query_text) < len(gold.evidence_text) < len(sample.prompt.text)
    if task not in NUMBERS | DERIVED:
        assert all(part in gold.evidence_text for part in parts)
        assert not any(part in gold.query_text for part in parts)
    assert TASKS[task].score(sample, gold.text).value == 1
    if gold.foil is not None:
        assert normalize(gold.foil) != normalize(gold.text)
        assert TASKS[task].score(sample, gold.foil).value < 1
        assert task in DERIVED or all(word in sample.prompt.text for word in re.sub(r"[\[\],]", "", gold.foil).split())


def test_prompts_of_one_sample_differ_only_in_the_context() -> None:
    sample, formatter = golden_sample("niah_multikey_2", 4096, 0, 0), PromptFormatter(Pieces())
    gold = gold_prompts(TASKS["niah_multikey_2"], sample, formatter)
    full, query, evidence, foil = gold.prompts
    assert full is foil is sample.prompt
    assert query.text == full.text.replace(sample.context, "")
    assert evidence.text == full.text.replace(
        sample.context, next(line for line in sample.context.splitlines() if sample.references[0] in line)
    )


@pytest.mark.parametrize("end", ["The answer is", "The answer is\n"])
@pytest.mark.parametrize("text", ["1234567", "the fox, jumps"])
def test_a_continuation_has_the_ids_that_it_has_in_the_whole_text(end: str, text: str) -> None:
    formatter = PromptFormatter(byte_tokenizer())
    prompt = formatter.prompt("the quick brown fox " * 40, end, generation_tokens=8)
    joined = f"{end}{text}" if end[-1].isspace() else f"{end} {text}"
    whole = formatter.prompt("the quick brown fox " * 40, joined, generation_tokens=8)
    assert prompt.token_ids + formatter.continuation_ids(prompt, text) == whole.token_ids


def test_a_text_that_merges_with_its_prompt_leaves_the_ids_of_the_prompt() -> None:
    formatter = PromptFormatter(byte_tokenizer())
    prompt = formatter.prompt("the quick", "brown ", generation_tokens=8)
    ids = [*prompt.token_ids, *formatter.continuation_ids(prompt, "fox")]
    assert tuple(ids) != formatter.prompt("the quick", "brown fox", generation_tokens=8).token_ids
    decoded = byte_tokenizer().decode(ids, skip_special_tokens=True)
    assert decoded == "the quick brown fox"
