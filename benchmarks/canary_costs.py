"""Count the tokens that a server reads and writes for canaries, as a share of all tokens of a run.

    python -m benchmarks.canary_costs [--lengths 1k,4k] [--samples 60] [--batch-size 8]

The run measures the six needle tasks against a scripted server that counts every prompt with the tokenizer of the
calibration checkpoint, and stops early as every run does. The table has the tokens of the samples, of the short
canaries, and of the prompts that are sent once, before the run or after wrong answers. Exits 1 if the short canaries
take 1 % or more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.engines.openai.canaries import ENDLESS_TEXTS, NUMBER_OPENING, REPEATED_WORD, TEXTS
from longctx.fixtures.engines.openai.endpoint import LONG, SHORT
from longctx.fixtures.engines.openai.whole_prompts import LIST_TASK, WORDS
from tests.helpers.servers import ChatServer, Request, Response, needles_within

LIMIT = 0.01
# What only long prompts with known answers have.
LIST_MARK, FOUND_MARK = LIST_TASK.partition(":")[0], WORDS.rpartition(" are")[0]


def kind_of(prompt: str | list[int], tokenizer: Tokenizer) -> str:
    """Return what a prompt is for."""

    def plain(text: str) -> str:
        return str(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids)).strip()

    text = plain(prompt) if isinstance(prompt, str) else str(tokenizer.decode(prompt)).strip()
    if any(text.endswith(plain(canary)) for canary in (*TEXTS, NUMBER_OPENING)):
        return "short canaries"
    if plain(LIST_MARK) in text or plain(FOUND_MARK) in text:
        return "long, once"
    if any(text.endswith(plain(sent)) for sent in (*ENDLESS_TEXTS, f" {REPEATED_WORD} {REPEATED_WORD}")):
        return "once"
    return "probe" if text.endswith(plain(SHORT)) or plain(LONG) in text else "samples"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1k,4k")
    parser.add_argument("--samples", default="60")
    parser.add_argument("--batch-size", default="8")
    given = parser.parse_args()
    tokens: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ChatServer().serving() as server:
        checkpoint = build(parse_spec("full"), Path(folder) / "checkpoint")
        tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        answer = needles_within(10**6, checkpoint)

        def counted(request: Request) -> Response:
            prompt = request.prompt
            response = answer(request)
            usage = json.loads(response.body)["usage"]
            kind = kind_of(prompt, tokenizer)
            tokens[kind] += usage["prompt_tokens"] + usage["completion_tokens"]
            return response

        server.answer = counted
        command = [
            sys.executable, "-m", "longctx", "run", "--model", str(checkpoint), "--base-url", server.url,
            "--suite", "ruler", "--lengths", given.lengths, "--samples", given.samples, "-k", "single or multikey",
            "--batch-size", given.batch_size, "--journal", f"{folder}/journal", "-n", "0",
        ]  # fmt: skip
        environment = os.environ | {"NO_PROXY": "127.0.0.1"}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    whole = tokens.total()
    for kind, count in tokens.most_common():
        sys.stdout.write(f"{kind:22}{count:>12,}{count / whole:>10.2%}\n")
    return int(tokens["short canaries"] >= LIMIT * whole)


if __name__ == "__main__":
    raise SystemExit(main())
