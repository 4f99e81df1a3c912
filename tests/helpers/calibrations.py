"""Loaded calibration checkpoints, and the command that builds them."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from longctx.fixtures.calibration.tokenizer import TokenRoles, token_roles
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines.hf.engine import HfEngine, load_hf_engine
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.records import Prompt, Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A loaded checkpoint."""

    engine: HfEngine
    formatter: PromptFormatter
    tokenizer: Any
    roles: TokenRoles

    def sample(self, task: str, length: int, index: int) -> Sample:
        return TASKS[task].sample(length, index, seed=0, tokenizer=self.formatter, corpora=Corpora())

    def answers(self, prompt: Prompt) -> str:
        (generation,) = self.engine.generate([prompt])
        return generation.text

    def solves(self, sample: Sample) -> bool:
        return TASKS[sample.task].score(sample, self.answers(sample.prompt)).value == 1

    def distance(self, sample: Sample) -> int:
        """Return the number of tokens from the value's first token to the prompt's end, both included."""
        starts = sample.prompt.text.index(sample.references[0])
        return len(sample.prompt.token_ids) - self._token_at(sample.prompt, starts)

    def key_class(self, sample: Sample) -> int:
        """Return the class of the last token of the key."""
        return self.roles.classes[self.key_token(sample)]

    def key_token(self, sample: Sample) -> int:
        """Return the last token of the key in the answer prefix."""
        last = sample.prompt.text.rindex(sample.question) + len(sample.question) - 1
        return sample.prompt.token_ids[self._token_at(sample.prompt, last)]

    def _token_at(self, prompt: Prompt, character: int) -> int:
        encoded = self.tokenizer(prompt.text, add_special_tokens=False, return_offsets_mapping=True)
        lead = len(prompt.token_ids) - len(encoded["input_ids"])
        return lead + next(place for place, (_, end) in enumerate(encoded["offset_mapping"]) if end > character)


@cache
def ready(spec: str) -> Calibrated:
    path = calibration_checkpoint(spec)
    tokenizer: Any = load_tokenizer(str(path))
    return Calibrated(
        engine=load_hf_engine(read_checkpoint(str(path)), HfSettings(device="cpu"), tokenizer=tokenizer),
        formatter=PromptFormatter(tokenizer),
        tokenizer=tokenizer,
        roles=token_roles(Tokenizer.from_file(str(path / "tokenizer.json"))),
    )


def content(folder: Path) -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(preloaded("longctx")), "calibration", *arguments],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
