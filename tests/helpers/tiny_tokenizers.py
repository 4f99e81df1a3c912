"""Small tokenizers of the kinds that checkpoints use, and samples made with them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any
from zlib import crc32

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from longctx.fixtures.corpora import Corpora
from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.corpora.synthetic.prose import sentence
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.sample_spec import Draft, SampleSpec
from longctx.fixtures.tokenization.prompts import PromptFormatter

BOS, EOS, UNKNOWN = "<s>", "</s>", "<unk>"
TOKENS = 10_000
GENERATED = Corpora()
# RULER's tasks and those that a team adds. HELMET and the frontier tasks have tests of their own.
RULER = {name: task for name, task in TASKS.items() if task.suite not in ("helmet", "frontier")}
FRONTIER = {name: task for name, task in TASKS.items() if task.suite == "frontier"}
HELMET = {name: task for name, task in TASKS.items() if task.suite == "helmet"}


class Pieces:
    """A tokenizer with up to four letters or digits per token. It has no trained table, so it never changes."""

    pattern = r" ?[A-Za-z0-9]{1,4}|\s|."
    bos_token_id = 1
    chat_template: Any = None

    def __call__(self, text: Any, *, add_special_tokens: bool, verbose: bool) -> Mapping[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self._ids(one, add_special_tokens) for one in text]}
        return {"input_ids": self._ids(text, add_special_tokens)}

    def apply_chat_template(
        self, conversation: Any, *, chat_template: Any, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        raise AssertionError("it has no chat template")

    def get_added_vocab(self) -> Mapping[str, int]:
        return {}

    def decode(self, token_ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return " ".join(map(str, token_ids))

    def _ids(self, text: str, special: bool) -> list[int]:
        pieces = re.findall(self.pattern, text, re.DOTALL)
        return [self.bos_token_id] * special + [2 + crc32(piece.encode()) % 60_000 for piece in pieces]


def byte_level() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE like those of GPT-2, Llama 3 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    _train(tokenizer, trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet, **_special()))
    return wrapped(tokenizer)


def llama_like() -> PreTrainedTokenizerFast:
    """Return a BPE over whole texts with visible spaces and byte fallback, like that of Llama 2."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    _train(tokenizer, trainers.BpeTrainer(vocab_size=TOKENS, **_special(*(f"<0x{byte:02X}>" for byte in range(256)))))
    # Merges never crossed a space in training; in use nothing keeps words apart.
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return wrapped(tokenizer)


def unigram() -> PreTrainedTokenizerFast:
    """Return a unigram model that drops line ends, like that of T5."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _train(tokenizer, trainers.UnigramTrainer(vocab_size=TOKENS, unk_token=UNKNOWN, **_special()))
    return wrapped(tokenizer)


KINDS: Mapping[str, Callable[[], Any]] = {
    "pieces": Pieces,
    "byte level": byte_level,
    "llama like": llama_like,
    "unigram": unigram,
}


def wrapped(tokenizer: Tokenizer, *, lead: tuple[str, ...] = (BOS,)) -> PreTrainedTokenizerFast:
    """Return the tokenizer as transformers loads it.

    The tokens of `lead` open every text. The first one is the BOS if it is `<s>`.
    """
    ids = [(token, tokenizer.token_to_id(token) or 0) for token in lead]
    if lead:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{' '.join(lead)} $A", special_tokens=ids)
    special = {"bos_token": BOS} if BOS in lead else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, **special)  # type: ignore[no-untyped-call]  # transformers leaves it untyped


@cache
def formatter(kind: str = "byte level") -> PromptFormatter:
    """Return the formatter of one of KINDS, without a chat template; trained once per process."""
    return PromptFormatter(KINDS[kind]())


@cache
def make_sample(task: str, length: int = 4096, index: int = 0, *, seed: int = 0, kind: str = "byte level") -> Sample:
    """Return a sample of generated text, made once per process."""
    return TASKS[task].sample(length, index, seed=seed, tokenizer=formatter(kind), corpora=GENERATED)


def make_samples(task: str, count: int, length: int = 4096) -> list[Sample]:
    return [make_sample(task, length, index) for index in range(count)]


def draft(task: str, index: int, *, token_budget: int, length: int = 1024) -> Draft:
    """Return a sample before it is fitted. That takes a fraction of the time and shows all draws."""
    chosen = TASKS[task]
    spec = SampleSpec(
        task=task,
        length=length,
        index=index,
        seed=0,
        input_tokens=length - chosen.generation_tokens,
        formatter=formatter(),
        corpora=GENERATED,
        prompts=chosen.prompts,
    )
    return chosen.compose(spec)(token_budget)


def drafts(task: str, count: int, *, token_budget: int, length: int = 1024) -> list[Draft]:
    return [draft(task, index, token_budget=token_budget, length=length) for index in range(count)]


def _special(*more: str) -> dict[str, Any]:
    return {"special_tokens": [BOS, EOS, UNKNOWN, *more], "show_progress": False}


def _train(tokenizer: Tokenizer, trainer: Any) -> None:
    tokenizer.train_from_iterator(_texts(), trainer)


def _texts() -> Iterator[str]:
    yield from map(sentence, range(1000))
    yield from (f" {word}" for word in vocabulary())
    yield from GENERATED.data_set("squad").paragraphs[:200]


def with_template(template: str | None, **rules: Any) -> Any:
    """Return the usual tokenizer with a chat template and other rules of its backend."""
    tokenizer: Any = deepcopy(formatter().tokenizer)
    tokenizer.chat_template = template
    for name, rule in rules.items():
        setattr(tokenizer.backend_tokenizer, name, rule)
    return tokenizer


def decoded(ids: Sequence[int]) -> str:
    text: str = formatter().tokenizer.decode(list(ids))  # type: ignore[attr-defined]  # prompts never decode
    return text


def encoded(text: str) -> list[int]:
    return list(formatter().tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
