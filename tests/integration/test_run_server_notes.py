"""A run tells of a server that changes answers, after it has asked what a sound server would answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.helpers.runs import calibration_checkpoint, run_pytest
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, needles_within, text_completion

Fault = Callable[[str, int, float], str]
"""Returns what a server writes, given the model's text, the tokens of the prompt and the penalty that was requested."""


def sound(text: str, _: int, penalty: float) -> str:
    return " Rebel. It is a long story" if penalty and "red red" in text else text


def stopped(text: str, tokens: int, penalty: float) -> str:
    return sound(text, tokens, penalty).partition("4")[0]


def penalized_if_long(text: str, tokens: int, penalty: float) -> str:
    return " Rebel. It is a long story" if tokens > 200 else sound(text, tokens, penalty)


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (stopped, "2 lists of numbers where '4' comes next"),
        (penalized_if_long, "answers the request to repeat a word with ' Rebel. It is a long story'"),
    ],
)
def test_a_run_with_wrong_answers_tells_of_the_fault(
    fault: Fault, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_keys(monkeypatch)
    checkpoint = calibration_checkpoint("full")
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    find = needles_within(10**6, checkpoint)

    def model(request: Request, prompt: str) -> str:
        if prompt.endswith("red red"):
            return " red" * 24
        if series := re.search(r"list of numbers in order.* (\d+),$", prompt, re.DOTALL):
            return "".join(f" {int(series[1]) + step}," for step in range(1, 9))
        return str(json.loads(find(request).body)["choices"][0]["text"])

    def answer(request: Request) -> Response:
        sent = request.prompt
        ids = tokenizer.encode(sent).ids if isinstance(sent, str) else sent
        penalty = request.body.get("frequency_penalty", 0)
        text = fault(model(request, tokenizer.decode(ids).strip()), len(ids), penalty)
        return text_completion(text, read=len(ids), written=len(text.split()))

    with ChatServer().serving() as server:
        server.answer = answer
        run_pytest(
            tmp_path, f"--model={checkpoint}", f"--base-url={server.url}", "--lengths=512", "--samples=12",
            "--full", "-k", "niah_single_2", f"--report-json={tmp_path}/report.json",
        )  # fmt: skip
    notes = json.loads((tmp_path / "report.json").read_text())["server"]["notes"]
    assert [said for said in notes if note in said], notes
