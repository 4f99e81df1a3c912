"""`--scoring paper` against what the papers' own code does: RULER c3f5e3b, HELMET 4526dfb.

Figures that the peers' code gives were read by running it on the same answers.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from longctx.fixtures.corpora import load_corpora
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS, load_tasks
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.published_files import Write, own_caches, write
from tests.helpers.tiny_tokenizers import HELMET, formatter, make_sample, make_samples

__all__ = ["own_caches", "write"]

PAPER = load_tasks(scoring="paper")
OWN_RULES = tuple(name for name in PAPER if PAPER[name].grade is not TASKS[name].grade)
ODD_ANSWERS = 100
PIECES = (
    "", " ", "\n", "\t", "\0", "\x1f", ".", "...", "-", "_", ">", " > ", "[", "]", "[1]", "[0]", "[1][2][99]", "[-1]",
    "[1,2]", "{", "}", "{0}", "%s", "\\", '"', "'", "```", "<answer>", "Answer:", "answer: ", "Ranking:", "label:", "A",
    "a", "B.", "(C)", "the", "The.", "0", "-1", "1e309", "nan", "\u0663", "\u00bd", "\u00df", "\u0130", "\u01c5",
    "e\u0301", "\u200b", "\u202e", "\ud7ff", "\U0001d7d9", "\U0001f642", "\u6f22\u5b57", "yes", "no", "None", "1" * 60,
    "x" * 200, "ID3 > ID1",
)  # fmt: skip


def odd_answers(sample: Sample) -> Iterator[str]:
    """Yield random joins of odd pieces, parts of the prompt, and references in part."""
    random = Random(sample.task)
    own = (*PIECES, *sample.references[:5], *(reference[1:] for reference in sample.references[:5]))
    for _ in range(ODD_ANSWERS):
        pieces = random.choices(own, k=random.randrange(6))
        if random.random() < 0.1:
            start = random.randrange(len(sample.context))
            pieces.append(sample.context[start : start + random.randrange(200)])
        yield random.choice(("", " ", "\n")).join(pieces)


def length_of(task: str) -> int:
    return 8192 if task == "infbench_sum" else 4096


@pytest.mark.parametrize("task", TASKS)
def test_the_papers_rules_score_every_odd_answer(task: str) -> None:
    sample = make_sample(task, length_of(task))
    for answer in odd_answers(sample):
        assert 0 <= TASKS[task].score(sample, answer).value <= 1
        assert 0 <= PAPER[task].score(sample, answer).value <= 1, answer


def test_the_papers_rules_are_those_of_rulers_lists_and_helmet() -> None:
    own = {TASKS[name].category for name in OWN_RULES}
    assert set(PAPER) == set(TASKS)
    assert {"cwe", "fwe", "infbench_mc", "narrativeqa", "nq", "msmarco", "json_kv"} <= set(OWN_RULES)
    ruler, helmet = {"retrieval", "tracing", "aggregation", "qa"}, {"recall", "rag", "cite", "rerank", "icl", "longqa"}
    assert own == ruler | helmet | {"summ"}, own


@pytest.mark.parametrize("task", OWN_RULES)
def test_no_sample_is_refused_for_a_fault_of_the_papers_rule(task: str) -> None:
    """HELMET gives an empty choice 1 where option A is right, as in about a quarter of the samples."""
    samples = make_samples(task, 6, length_of(task))
    assert [sample_problems(sample, PAPER[task], formatter()) for sample in samples] == [[]] * 6
    if task == "infbench_mc":
        right = {sample.references[0] for sample in samples if PAPER[task].score(sample, "").value == 1}
        assert right == {"A"}


def test_no_answer_of_helmet_ends_at_a_line_end() -> None:
    """HELMET's configurations set `stop_new_line`, but its code reads `stop_newline`."""
    assert {name: task.stop for name, task in PAPER.items() if task.suite == "helmet"} == dict.fromkeys(HELMET, ())
    stopping = {name for name, task in HELMET.items() if task.stop == ("\n",)}
    assert {HELMET[name].category for name in stopping} == {"rag", "rerank", "icl"}


def test_hotpotqa_shows_its_passages_in_the_order_of_the_file(write: Write, tmp_path: Path) -> None:
    passages = [{"title": f"T{n}", "text": f"Text {n} on a mill."} for n in range(9)]
    gold = [{"title": "G1", "text": "Ida built it."}, {"title": "G2", "text": "It stood in Oslo."}]
    orders = [
        [4, 9, 0, 8, 1, 10, 7, 2, 6, 3, 5],
        [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        [9, 0, 1, 2, 3, 10, 4, 5, 6, 7, 8],
    ]
    contexts = [*passages, *gold]
    lines = [
        {
            "id": name,
            "question": f"{name}?",
            "answers": ["Ida"],
            "positive_ctxs": gold,
            "ctxs": [contexts[at] for at in order],
        }
        for name in "abc"
        for order in orders
    ]
    write("kilt/hotpotqa-dev-multikilt_1000_k11_dep3.jsonl", lines)
    corpora = load_corpora(tmp_path)
    for index, order in enumerate(orders):
        sample = PAPER["hotpotqa"].sample(8192, index, seed=0, tokenizer=formatter(), corpora=corpora)
        shown = [part.partition(")")[0].removeprefix("Document (Title: ") for part in sample.context.split("\n\n")]
        assert shown == [str(contexts[at]["title"]) for at in order]
        # A demonstration has both gold passages and the first other one, in the order of the file's first line.
        assert sample.prompt.text.index("Title: T4)") < sample.prompt.text.index("Title: G1)")


def test_json_kv_shows_an_object_as_its_file_writes_it(write: Write, tmp_path: Path) -> None:
    pairs = {f"key-{n}": f"value-{n}" for n in range(12)}
    objects = [
        "JSON data:\n{" + ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs.items()) + "}",
        json.dumps(pairs),
    ]
    lines = [{"context": text, "question": "key-3", "answer": "value-3"} for text in objects for _ in range(6)]
    write("json_kv/test_k12_dep6.jsonl", lines)
    corpora = load_corpora(tmp_path)
    shown = {
        TASKS["json_kv"].sample(8192, index, seed=0, tokenizer=formatter(), corpora=corpora).context
        for index in range(12)
    }
    assert shown == set(objects)
