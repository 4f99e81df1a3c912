"""Incremental ids equal the tokenizer's own for many tokenizers, for texts around split points, and for samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from longctx.fixtures.records import HAYSTACKS, Prompt, Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.incremental import (
    WholeTextEncoder,
    _WordEncoder,
    encoder_for,
    plain_ids,
)
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.fixtures.tokenization.split_points import find_split_points
from tests.helpers.tiny_tokenizers import BOS, GENERATED, KINDS, RULER, UNKNOWN, wrapped

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# GPT-4o's expression keeps contractions with the word before them.
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Two of DeepSeek's expressions: one joins a digit with the letters after it, the other is applied before it.
DIGIT_AND_LETTERS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS_FIRST = r"\p{N}{1,3}"
LENGTH = 16384
TEMPLATE = "{{ bos_token }}<|user|>{{ messages[0]['content'] }}<|end|>\n<|assistant|>"
TURNS = ("<|user|>", "<|end|>", "<|assistant|>")
# The few merges of the tokenizers below.
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "Ġ a", "o n", "r e", ". Ċ", "Ġ 1", "1 2", "- a")
# Merges across positions where a word may only be split if the expression splits it.
OVER_SPLIT_POINTS = ("4 b", "1 d", "d 9", "x '", "' s", "A .", ". B", "- d", "3 4", "34 5", "9 n", "a n")
# Digests of prompt.text and prompt.token_ids of sample(LENGTH, index, seed=5) with `bytes_of(LLAMA3)`. They were
# recorded with the tokenizer's own ids, or when the task last changed its draws, and may not change otherwise.
DIGESTS = {
    "niah_single_1": "a039f0fc1f8937fc",
    "niah_single_2": "0f007c9aa9168acd",
    "niah_single_3": "95b8eec2072f975b",
    "niah_multikey_1": "91a14a7d20084bc3",
    "niah_multikey_2": "a6d01f5ab69a479d",
    "niah_multikey_3": "b4835926f450ba97",
    "niah_multivalue": "098f65676880757e",
    "niah_multiquery": "9bb31d1e376bc429",
    "vt": "83e166ed7c463134",
    "cwe": "d6f669a8814e1321",
    "fwe": "4fd36766f8a25794",
    "qa_1": "490ebd3174aefc05",
    "qa_2": "3318a6c4913179b8",
}


def bytes_of(*patterns: str, normalizer: Any = None, prefix: bool = False, merges: Sequence[str] = MERGES) -> Any:
    """Return a byte-level BPE tokenizer with a fixed handful of merges."""
    pairs = [tuple(merge.split()) for merge in merges]
    tokens = [BOS, "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in pairs)]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, pairs))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([*TURNS])
    return wrapped(tokenizer)


def gpt2(*, prefix: bool) -> Any:
    tokenizer = bytes_of(LLAMA3)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
    )
    return tokenizer


def metaspace(prepend_scheme: Any, *, split: bool) -> Any:
    """Return a BPE tokenizer with visible spaces, over words with `split`, else over whole texts like Llama 2's."""
    tokenizer = visible_spaces(("▁", "a"), ("▁", "▁"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=split)
    tokenizer.add_special_tokens([*TURNS])
    return wrapped(tokenizer)


def gemma(*merges: tuple[str, str]) -> Any:
    """Return a BPE tokenizer over whole texts like Gemma's, where line ends are added tokens."""
    tokenizer = visible_spaces(("▁", "▁"), *merges)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens([*TURNS])
    tokenizer.add_tokens([AddedToken("\n" * count, normalized=False) for count in range(1, 9)])
    return wrapped(tokenizer)


def visible_spaces(*merges: tuple[str, str]) -> Tokenizer:
    """Return a BPE tokenizer with a token for every byte and a few merges, and without a pre-tokenizer."""
    letters = [chr(code) for code in range(0x21, 0x7F)]
    all_merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "n"), *merges]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [BOS, "</s>", UNKNOWN, *byte_tokens, "▁", *letters, *("".join(merge) for merge in all_merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return Tokenizer(models.BPE(vocabulary, all_merges, byte_fallback=True, fuse_unk=True, unk_token=UNKNOWN))


INCREMENTAL: dict[str, Callable[[], Any]] = {
    "llama 3": lambda: bytes_of(LLAMA3),
    "gpt 4o": lambda: bytes_of(GPT4O, merges=OVER_SPLIT_POINTS),
    "a digit with letters": lambda: bytes_of(DIGIT_AND_LETTERS, merges=OVER_SPLIT_POINTS),
    "digits first": lambda: bytes_of(DIGITS_FIRST, DIGIT_AND_LETTERS, merges=OVER_SPLIT_POINTS),
    "normalized": lambda: bytes_of(LLAMA3, normalizer=normalizers.Sequence([normalizers.NFKC()])),
    "lower case": lambda: bytes_of(LLAMA3, normalizer=normalizers.Lowercase()),
    "space before every piece": lambda: bytes_of(LLAMA3, prefix=True),
    "gpt 2": lambda: gpt2(prefix=False),
    "gpt 2 with a space before": lambda: gpt2(prefix=True),
    "metaspace": lambda: metaspace("always", split=True),
    "llama 2": lambda: metaspace("first", split=False),
    "gemma": lambda: gemma(("▁", "("), (".", "▁("), (".", "▁t"), (".▁t", "he")),
    "llama like": KINDS["llama like"],
    "unigram": KINDS["unigram"],
}


def _merging_over_spaces() -> Any:
    tokenizer = metaspace("first", split=False)
    merges = [("e", "▁")]
    vocabulary = tokenizer.get_vocab() | {"e▁": len(tokenizer.get_vocab())}
    tokenizer.backend_tokenizer.model = models.BPE(vocabulary, merges, unk_token=UNKNOWN)
    return tokenizer


def _with_token(token: AddedToken) -> Any:
    tokenizer = bytes_of(LLAMA3)
    tokenizer.backend_tokenizer.add_tokens([token])
    return tokenizer


WHOLE: dict[str, Callable[[], Any]] = {
    "no fast tokenizer": KINDS["pieces"],
    "merges over spaces": _merging_over_spaces,
    "an unknown expression": lambda: bytes_of(r"\w+ \w+|\s+"),
    "an unknown normalizer": lambda: bytes_of(LLAMA3, normalizer=normalizers.Replace("e ", "E")),
    "a token with a space": lambda: _with_token(AddedToken("the end")),
}
# Their tokens that end in a mark stand for other characters.
JOINED: dict[str, Callable[[], Any]] = {
    "a byte": lambda: gemma(("<0x41>", "▁")),
    "an unknown character": lambda: gemma((UNKNOWN, "▁")),
}
WORDS = st.sampled_from(
    ["the", "a", "end", "x's", "don't", "12", "3456789", "4b1d-99d0.", "tall-tree", "is:", "(see", "7).\nOne", "\n", "",
     "\t", "é", "naïve", "“so”", "…", "日本", "안녕", "e\u0301", "\u0301x", "\u00a0", "▁", "a▁b",
     "<s>", "<|user|>", "<|end|>", "x<|end|>", "<|end|>y",
     "</s>.", "\u017f", "ﬁ", "İ", "😀", "-a", ".\n\n", "\r\n", "\u0627", "²", "A.B-c", "'s", "_x_", "a-", "Z" * 210,
     "4b1d4b-1d9", "x9's", "345x", "9nd"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=12).flatmap(
    lambda words: st.lists(
        st.sampled_from([" ", " ", " ", "", "\n", "  "]), min_size=len(words), max_size=len(words)
    ).map(lambda joints: "".join(word + separator for word, separator in zip(words, joints, strict=True)))
)


@cache
def tokenizer_of(name: str) -> Any:
    return {**INCREMENTAL, **WHOLE}[name]()


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_tokenizer_with_split_points_encodes_words(name: str) -> None:
    assert isinstance(encoder_for(tokenizer_of(name), max_cached=1000), _WordEncoder)


@pytest.mark.parametrize("name", WHOLE)
def test_a_tokenizer_without_split_points_encodes_whole_texts(name: str) -> None:
    assert isinstance(encoder_for(tokenizer_of(name), max_cached=1000), WholeTextEncoder)


@pytest.mark.parametrize("name", JOINED)
def test_a_tokenizer_that_joins_something_else_than_a_mark_to_a_space_encodes_whole_texts(name: str) -> None:
    assert isinstance(encoder_for(JOINED[name](), max_cached=1000), WholeTextEncoder)


@pytest.mark.parametrize("name", [*INCREMENTAL, *WHOLE])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_incremental_ids_are_those_of_the_whole_text(name: str, texts: list[str]) -> None:
    tokenizer = tokenizer_of(name)
    encoder = encoder_for(tokenizer, max_cached=8) if name == "no fast tokenizer" else _encoder(name)
    whole = plain_ids(tokenizer, texts)
    assert [list(encoder.ids(text)) for text in texts] == whole
    assert encoder.lengths(texts) == [len(ids) for ids in whole]


@cache
def _encoder(name: str) -> Any:
    """Return an encoder that keeps its cache between examples."""
    return encoder_for(tokenizer_of(name), max_cached=8)


def test_a_mark_that_a_token_joins_to_the_space_behind_it_ends_no_word() -> None:
    tokenizer = tokenizer_of("gemma")
    text = "The end. (see the end. the end. An end."
    ids = plain_ids(tokenizer, [text])[0]
    assert tokenizer.convert_ids_to_tokens(ids).count(".▁(") == 1
    assert encoder_for(tokenizer, max_cached=8).ids(text) == ids


@pytest.mark.parametrize(
    ("task", "name", "chat"),
    [
        *((task, name, chat) for task in TASKS for name, chat in (("llama 3", False), ("llama 2", True))),
        *((task, name, chat) for task in RULER for name in ("gpt 2", "metaspace", "unigram") for chat in (False, True)),
    ],
)
def test_samples_hold_the_tokenizers_own_ids(task: str, name: str, chat: bool) -> None:
    """Every task with an expression that splits and with whole texts; the other tokenizers with RULER's texts."""
    formatter = _formatter(name, chat)
    tokenizer, counter = formatter.tokenizer, formatter.length_tokenizer
    # The formatter itself verifies the sample at index 0, but not the one at index 1.
    prompt = TASKS[task].sample(LENGTH, 1, seed=0, tokenizer=formatter, corpora=GENERATED).prompt
    text = prompt.text.removeprefix(BOS)
    assert prompt.token_ids == (tokenizer.bos_token_id, *plain_ids(tokenizer, [text])[0])
    assert prompt.length_tokens == len(plain_ids(counter, [prompt.text])[0] if counter else prompt.token_ids)


@cache
def _formatter(name: str, chat: bool) -> PromptFormatter:
    """Return a formatter that keeps its cache between tasks, as in a run."""
    tokenizer = deepcopy(tokenizer_of(name))
    tokenizer.chat_template = TEMPLATE if chat else None
    counter = tokenizer_of("llama 2" if name != "llama 2" else "gpt 2")
    return PromptFormatter(tokenizer, length_tokenizer=counter if chat else None)


@pytest.mark.parametrize("task", DIGESTS)
def test_prompts_equal_the_recorded_ones(task: str) -> None:
    formatter = PromptFormatter(tokenizer_of("llama 3"))
    prompts = [
        TASKS[task].sample(LENGTH, index, seed=5, tokenizer=formatter, corpora=GENERATED).prompt for index in (0, 1)
    ]
    assert digest(prompts) == DIGESTS[task]


def digest(prompts: list[Prompt]) -> str:
    return sha256(repr([(prompt.text, prompt.token_ids) for prompt in prompts]).encode()).hexdigest()[:16]


def test_a_prompt_that_fails_verification_ends_incremental_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample of a case reveals a tokenizer for which incremental encoding is wrong."""
    formatter = PromptFormatter(tokenizer_of("llama 3"))

    def sample(index: int) -> Sample:
        return TASKS["niah_single_1"].sample(LENGTH, index, seed=0, tokenizer=formatter, corpora=GENERATED)

    sound = sample(0)
    monkeypatch.setattr(_WordEncoder, "ids", lambda self, text: [7] * 100)
    assert sample(1).prompt.token_ids[1] == 7
    assert sample(0) == sound
    assert 7 not in sample(1).prompt.token_ids


def test_truncation_and_padding_of_the_fast_tokenizer_do_not_change_prompts() -> None:
    tokenizer = bytes_of(LLAMA3)
    formatter = PromptFormatter(tokenizer)
    expected = formatter.prompt("A number of words.", "It is", generation_tokens=1)
    other = PromptFormatter(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert other.prompt("A number of words.", "It is", generation_tokens=1) == expected


def test_texts_read_again_are_encoded_once() -> None:
    """Paragraphs of known words, and UUIDs of known parts, need no further encoding."""
    encoded: list[str] = []
    tokenizer = bytes_of(LLAMA3)
    split_points = find_split_points(tokenizer.backend_tokenizer)
    assert split_points is not None
    encoder = _WordEncoder(RecordingTokenizer(tokenizer.backend_tokenizer, encoded), split_points, max_cached=1000)
    encoder.ids("Document 1:\nThe end of 12ab-34cd. and 34ab-12ab.\n\nDocument 2:\nA tall tree.")
    encoded.clear()
    encoder.ids("Document 2:\nThe end of 34ab-34cd.\n\nDocument 1:\nA tall and tall tree.")
    assert encoded == []


@pytest.mark.parametrize("name", ["llama 3", "gemma"])
def test_samples_take_less_than_one_tokenization_each(name: str) -> None:
    """All characters that a formatter gives to the tokenizer, the finished prompts' for verification included.

    Of samples on one haystack, whose text is tokenized once.
    """
    encoded: list[str] = []
    tokenizer = deepcopy(tokenizer_of(name))
    tokenizer._tokenizer = RecordingTokenizer(tokenizer.backend_tokenizer, encoded)
    formatter = PromptFormatter(tokenizer)
    samples = [
        task.sample(LENGTH, index, seed=0, tokenizer=formatter, corpora=GENERATED)
        for task in RULER.values()
        for index in range(0, 3 * HAYSTACKS, HAYSTACKS)
    ]
    assert sum(map(len, encoded)) < sum(len(sample.prompt.text) for sample in samples)


class RecordingTokenizer:
    """A fast tokenizer that records the texts it encodes."""

    def __init__(self, fast: Any, encoded: list[str]) -> None:
        self._fast, self._encoded = fast, encoded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fast, name)

    def encode(self, text: str, **options: Any) -> Any:
        self._encoded.append(text)
        return self._fast.encode(text, **options)

    def encode_batch(self, texts: list[str], **options: Any) -> Any:
        self._encoded += texts
        return self._fast.encode_batch(texts, **options)
