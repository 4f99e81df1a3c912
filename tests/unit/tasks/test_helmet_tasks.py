"""HELMET's tasks on generated text: samples fit, are full, depend on their identity alone, and share their contexts."""

import json
import re

import pytest

from longctx.fixtures.cases import plan
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS, keyed_wording, load_tasks
from longctx.fixtures.tasks.task import CannotFit
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import fill_ratio, sample_problems
from tests.helpers.tiny_tokenizers import (
    BOS,
    GENERATED,
    HELMET,
    drafts,
    formatter,
    make_sample,
    make_samples,
    wrapped,
)
from tests.helpers.workers import options_of

RAG = ("nq", "triviaqa", "popqa")
ICL = {"trec_coarse": 6, "trec_fine": 50, "banking77": 77, "clinc150": 151, "nlu": 68}
NEEDLES = tuple(name for name in HELMET if name.startswith("ruler_"))
SUMMARIES = ("infbench_sum", "multi_lexsum")
# Their unit of filling is a shot, a needle or a pair of keys; of all others a passage or a paragraph.
SMALL_UNITS = (*ICL, *NEEDLES, "json_kv")
DEPTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
CHAT = f"{{% for message in messages %}}{BOS}<user>{{{{ message.content }}}}<end><answer>{{% endfor %}}"

every_task = pytest.mark.parametrize("task", HELMET)
every_kind = pytest.mark.parametrize("kind", ["pieces", "unigram"])


def chat_framing() -> PromptFormatter:
    tokenizer = wrapped(formatter().tokenizer.backend_tokenizer, lead=())  # type: ignore[attr-defined]  # a fast one
    tokenizer.chat_template = CHAT
    return PromptFormatter(tokenizer)


def passages(sample: Sample) -> list[str]:
    return sample.context.split("\n\n")


# --- length and fill ---


@every_task
@every_kind
def test_a_sample_fits_its_length_and_fills_it(task: str, kind: str) -> None:
    lengths = (4096, 5003, 8192) if kind == "pieces" else (8192 if task == "infbench_sum" else 4096,)
    for length in lengths:
        for index in range(2 if kind == "pieces" else 1):
            sample = make_sample(task, length, index, kind=kind)
            assert sample.prompt.generation_tokens == HELMET[task].generation_tokens
            assert (0.96 if task in SMALL_UNITS else 0.9) <= fill_ratio(sample) <= 1
            assert (sample.source, sample.capped) == ("archive", False)
            assert sample_problems(sample, HELMET[task], formatter(kind)) == []


@every_task
@pytest.mark.parametrize("length", [1, 64])
def test_a_prompt_that_cannot_fit_is_an_error_with_the_length_it_takes(task: str, length: int) -> None:
    with pytest.raises(CannotFit, match=rf"^{task} at {length} tokens cannot fit: .*; use --lengths \d+ or more"):
        HELMET[task].sample(length, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)


@pytest.mark.parametrize("task", ["narrativeqa", "infbench_qa", "infbench_mc", *SUMMARIES])
@pytest.mark.parametrize("kind", ["llama like", "unigram"])
def test_no_document_of_many_stays_short(task: str, kind: str) -> None:
    """A question about another part of a document has another length, which counts too."""
    length = 8192 if task == "infbench_sum" else 4096
    assert min(fill_ratio(make_sample(task, length, index, kind=kind)) for index in range(12)) >= 0.9


# --- identity ---


@pytest.mark.parametrize("task", sorted(set(HELMET) - {*NEEDLES, "json_kv"}))
def test_every_length_asks_the_same_questions_of_passages_and_classes(task: str) -> None:
    """Scores at two lengths then differ by the length alone. Questions on a document depend on its content."""
    if HELMET[task].category in ("longqa", "summ"):
        starts = {make_sample(task, length, kind="pieces").context[:500] for length in (8192, 32768)}
        assert len(starts) == 1
    else:
        assert len({make_sample(task, length, kind="pieces").question for length in (4096, 8192, 32768)}) == 1


def test_a_case_has_the_papers_questions_at_most() -> None:
    cases = plan(options_of("/m", suite="helmet", lengths=(8192,), samples=10_000), HELMET, GENERATED)
    results = {case.task: case.samples for case in cases}
    groups = dict.fromkeys((*RAG, "json_kv"), 6) | dict.fromkeys(("hotpotqa", "msmarco"), 3)
    assert results == {task: 500 if task in ICL else 100 * groups.get(task, 1) for task in HELMET}


# --- contexts of consecutive samples ---


@pytest.mark.parametrize("task", RAG)
def test_six_samples_ask_one_question_with_its_passage_at_six_depths(task: str) -> None:
    group = make_samples(task, 6)
    assert len({sample.question for sample in group}) == 1
    (gold,) = {passages(sample)[round(sample.depths[0] * (len(passages(sample)) - 1))] for sample in group}
    shared = [[passage for passage in passages(sample) if passage != gold] for sample in group]
    assert all(shared[0] == other for other in shared)
    assert len(shared[0]) >= 5
    step = 1 / len(shared[0])
    assert [sample.depths[0] for sample in group] == pytest.approx(DEPTHS, abs=step / 2 + 1e-9)
    assert make_sample(task, 4096, 6).question != group[0].question


@pytest.mark.parametrize("task", ["hotpotqa", "msmarco"])
def test_three_samples_show_the_same_passages_in_three_orders(task: str) -> None:
    group = make_samples(task, 3)
    assert len({sample.question for sample in group}) == 1
    assert len({frozenset(passages(sample)) for sample in group}) == 1
    assert len({tuple(passages(sample)) for sample in group}) == 3
    assert make_sample(task, 4096, 3).question != group[0].question


def test_six_samples_ask_one_object_for_six_keys() -> None:
    group = make_samples("json_kv", 6)
    (context,) = {sample.context for sample in group}
    pairs = list(json.loads(context).items())
    places = [pairs.index((sample.question, sample.references[0])) for sample in group]
    assert places == [round(depth * (len(pairs) - 1)) for depth in DEPTHS]
    assert len({*dict(pairs), *dict(pairs).values()}) == 2 * len(pairs)
    assert make_sample("json_kv", 4096, 6).context != context


@pytest.mark.parametrize("task", sorted(set(HELMET) - {*RAG, "hotpotqa", "msmarco", "json_kv"}))
def test_all_other_samples_stand_alone(task: str) -> None:
    assert HELMET[task].group == 1
    assert len({sample.context for sample in make_samples(task, 2, 8192)}) == 2


@pytest.mark.parametrize("task", ICL)
def test_shots_come_in_rounds_with_numbers_of_their_own_in_every_sample(task: str) -> None:
    classes = len(GENERATED.data_set(task).labels)
    first, second = (make_sample(task, 8192, index, kind="pieces") for index in range(2))
    shown = [
        [int(number) for number in re.findall(r"^label: (\d+)$", one.context, re.MULTILINE)] for one in (first, second)
    ]
    for numbers in shown:
        assert set(numbers) == set(range(classes))
        rounds = [numbers[start : start + classes] for start in range(0, len(numbers) - classes + 1, classes)]
        # The text to classify is left out of the shots.
        assert sum(set(one) == set(range(classes)) for one in rounds) >= len(rounds) - 1
    assert len({drawn.question for drawn in drafts(task, 12, token_budget=0, length=8192)}) == 12
    for sample in (first, second):
        assert sample.question not in sample.context.split("\n")


# --- demonstrations ---


def demonstrations(sample: Sample) -> str:
    """Return the text before the context, without the instruction."""
    before = sample.prompt.text.partition(sample.context)[0]
    return before.partition("\n\n")[2]


def solved(sample: Sample) -> int:
    """Return the number of answers shown, after their prefix at the start of a line."""
    return len(re.findall(rf"^{re.escape(sample.answer_prefix)} \S", demonstrations(sample), re.MULTILINE))


@pytest.mark.parametrize("task", sorted(set(HELMET) - {*ICL, *NEEDLES}))
def test_two_solved_questions_come_first_and_never_the_samples_own(task: str) -> None:
    group = HELMET[task].group
    for length, counts in ((4096 if task != "infbench_sum" else 5003, {0, 1, 2}), (8192, {2})):
        drawn = [make_sample(task, length, index) for index in range(0, 4 * group, max(1, group - 1))]
        assert {solved(one) for one in drawn} <= counts
        assert not any(one.question and one.question in demonstrations(one) for one in drawn)
        assert len({demonstrations(one) for one in drawn}) == len({one.index // group for one in drawn})


@pytest.mark.parametrize("task", sorted({*ICL, *NEEDLES}))
def test_shots_and_needles_have_no_demonstrations(task: str) -> None:
    assert solved(make_sample(task, 8192)) == 0


@pytest.mark.parametrize("task", sorted(set(HELMET) - {*ICL, *NEEDLES, "json_kv"}))
def test_demonstrations_are_chosen_by_the_question(task: str) -> None:
    """Not by how many samples there are, nor by how long they are."""
    first, longer = (
        re.findall(r"^(?:Question|Query): .*$", demonstrations(make_sample(task, n)), re.MULTILINE)
        for n in (8192, 16384)
    )
    assert first == longer


@pytest.mark.parametrize("task", sorted(HELMET))
def test_without_demonstrations_only_the_solved_examples_go(task: str) -> None:
    bare, shown = load_tasks(demonstrations=0)[task], make_sample(task, 8192)
    sample = bare.sample(8192, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
    assert solved(sample) == 0
    assert fill_ratio(sample) >= bare.least_fill
    if task not in (*SUMMARIES, "narrativeqa", "infbench_qa", "infbench_mc", "json_kv"):
        # Those have another question for every length of their text.
        assert sample.question == shown.question
    has_none = task in {*ICL, *NEEDLES}
    assert (keyed_wording(load_tasks(demonstrations=0))[task] == keyed_wording(TASKS)[task]) == has_none
    assert keyed_wording(load_tasks())[task] == keyed_wording(TASKS)[task]


# --- framing ---


@every_task
def test_the_answer_begins_in_the_models_turn(task: str) -> None:
    chat = chat_framing()
    length = 8192 if task == "infbench_sum" else 4096
    sample = HELMET[task].sample(length, 0, seed=0, tokenizer=chat, corpora=GENERATED)
    assert sample.prompt.text.startswith(f"{BOS}<user>")
    assert re.search(rf"<end><answer> ?{re.escape(sample.answer_prefix)}$", sample.prompt.text)
    assert sample.prompt.text.count("<answer>") == 1
    assert sample_problems(sample, HELMET[task], chat) == []


@every_task
def test_without_a_chat_template_the_prefix_stands_on_a_line_of_its_own(task: str) -> None:
    sample = make_sample(task, 8192)
    separator = " " if task in NEEDLES else "\n"
    assert sample.prompt.text.endswith(f"{separator}{sample.answer_prefix}")
    assert not sample.prompt.text.removesuffix(f"{separator}{sample.answer_prefix}").endswith(("\n", " "))
