"""Phase sweeps: the needle of a sample at every residue of its token position, and nothing else changed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.preflight import sample_problems
from longctx.fixtures.records import HAYSTACKS, Sample
from longctx.fixtures.tasks import TASKS, load_tasks
from longctx.fixtures.tasks.phases import FILLERS, SWEPT_TASKS, CannotSweep
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.fixtures.versions import PHASES
from tests.helpers.tiny_tokenizers import GENERATED, Pieces, formatter

LENGTH = 512
FILLER = FILLERS[0]
WITHOUT_FILLER = re.compile(rf"(?:\b{FILLER} )+(?=One of)|(?<=\.)(?: {FILLER}\b)+")


class Letters(Pieces):
    """A tokenizer of single characters, to which no word is one token."""

    pattern = r"."


def swept(task: str, modulus: int, index: int, tokenizer: PromptFormatter | None = None) -> Sample:
    name = f"{task}_mod{modulus}"
    sweep = load_tasks(sweeps=[name])[name]
    formatted_by = tokenizer or formatter("pieces")
    sample = sweep.sample(LENGTH, index, seed=0, tokenizer=formatted_by, corpora=GENERATED)
    assert sample_problems(sample, sweep, formatted_by) == []
    return sample


def value_position(sample: Sample) -> int:
    """Return the position of the value's first token, counted from the text alone; the BOS is a token too."""
    before = sample.prompt.text[: sample.prompt.text.index(sample.references[0])]
    return 1 + len(re.findall(Pieces.pattern, before.rstrip(" "), re.DOTALL))


@settings(max_examples=8)
@given(task=st.sampled_from(SWEPT_TASKS), modulus=st.sampled_from((2, 4, 8)), base=st.integers(0, 40))
def test_only_the_needle_moves(task: str, modulus: int, base: int) -> None:
    samples = [swept(task, modulus, base * modulus + residue) for residue in range(modulus)]
    assert [value_position(sample) % modulus for sample in samples] == list(range(modulus))
    assert len({len(sample.prompt.token_ids) for sample in samples}) == 1
    assert len({(sample.references, sample.question, sample.depths) for sample in samples}) == 1
    assert len({WITHOUT_FILLER.sub("", sample.context) for sample in samples}) == 1
    # All tokens that do not surround the needle keep their positions.
    ids = [sample.prompt.token_ids for sample in samples]
    differing = [place for place, column in enumerate(zip(*ids, strict=True)) if len(set(column)) > 1]
    needle_tokens = len(re.findall(Pieces.pattern, f" One of the special magic uuids for {'x' * 120}"))
    assert differing[-1] - differing[0] <= needle_tokens + modulus


def test_the_needle_is_that_of_the_tasks_own_sample() -> None:
    own = TASKS["niah_single_2"].sample(LENGTH, 3, seed=0, tokenizer=formatter("pieces"), corpora=GENERATED)
    sample = swept("niah_single_2", 4, 3 * 4 + 1)
    assert (sample.references, sample.question) == (own.references, own.question)


def test_no_two_swept_samples_share_a_haystack() -> None:
    plain = [TASKS["niah_single_2"].sample(LENGTH, index, seed=0, tokenizer=formatter("pieces"), corpora=GENERATED)
             for index in (0, HAYSTACKS)]  # fmt: skip
    rows = [swept("niah_single_2", 4, 4 * row) for row in (0, 1, HAYSTACKS)]
    assert len({_first_sentence(sample) for sample in rows}) == len(rows)
    assert len({_first_sentence(sample) for sample in plain}) == 1
    sweep = load_tasks(sweeps=["niah_single_2_mod4"])["niah_single_2_mod4"]
    assert (sweep.group, sweep.shares_haystacks) == (4, False)


def _first_sentence(sample: Sample) -> str:
    return sample.context.split(".")[0]


def test_sweeps_leave_the_keys_of_other_results_as_they_are() -> None:
    chosen = formatter("pieces")
    tasks, with_sweeps = load_tasks(), load_tasks(sweeps=["niah_single_1_mod64"])
    assert {*with_sweeps} - {*tasks} == {"niah_single_1_mod64"}
    assert samples_fingerprint(with_sweeps, GENERATED, chosen) == samples_fingerprint(tasks, GENERATED, chosen)
    assert (
        with_sweeps["niah_single_1_mod64"].case_version(LENGTH)
        == f"{tasks['niah_single_1'].case_version(LENGTH)}.{PHASES}"
    )


def test_a_tokenizer_without_words_is_refused_in_one_line() -> None:
    letters = PromptFormatter(Letters())
    refusal = r"^niah_single_1 at 512 tokens: no filler moves the needle of sample 0 by single tokens [^\n]+$"
    with pytest.raises(CannotSweep, match=refusal):
        [swept("niah_single_1", 4, residue, letters) for residue in range(4)]
