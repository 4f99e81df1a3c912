"""Thoughts of reasoning models have their own budget, are never scored, and are reported if unfinished."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.engines.answers import StopTracker
from longctx.fixtures.engines.openai.endpoint import ServerSettings
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.records import Generation, Prompt
from longctx.fixtures.thinking import THINK, strip_opening
from tests.golden.engines import Letters
from tests.helpers.clients import endpoint_of
from tests.helpers.servers import ChatServer, Response, chat_completion, in_json, text_completion

END = 0
BUDGET = 90


def prompt_of(text: str = "Q", **changes: Any) -> Prompt:
    ids = tuple(map(ord, text))
    return Prompt(text=text, token_ids=ids, length_tokens=len(ids), generation_tokens=10, **changes)


def by_server(
    server: ChatServer,
    response: Response,
    prompt: Prompt,
    api: str = "completions",
    *,
    budget: int = BUDGET,
    tokenizer: Letters | None = None,
) -> Generation:
    settings = ServerSettings(endpoint=endpoint_of(server, api=api, prefix="instruction"), thinking_tokens=budget)
    engine = OpenAIEngine(settings, tokenizer or Letters())
    server.answer = lambda _: response
    (generation,) = engine.generate([prompt])
    return generation


def by_tokens(
    written: str, prompt: Prompt, *, ends: bool = True, tokenizer: Letters | None = None
) -> tuple[str, str | None]:
    """Return the text and finish reason of the hf engine for an answer with one token per character."""
    answer = StopTracker(prompt, tokenizer or Letters(), {END}, thinking_tokens=BUDGET)
    for character in written:
        answer.add_token(ord(character))
    if ends:
        answer.add_token(END)
    return answer.text, answer.finish


WRITTEN = {
    "a thought and an answer": ("<think>so</think>\n\n42", "Q", "42", "stop"),
    "a blank before the thought": ("\n<think>so</think>42", "Q", "42", "stop"),
    "a thought that the prompt opens": ("so\n</think>\n42", "Q<think>\n", "42", "stop"),
    "an empty thought": ("<think></think>42", "Q", "42", "stop"),
    "no thought": ("42", "Q", "42", "stop"),
    "nothing": ("", "Q", "", "stop"),
    "nothing after the thought": ("<think>so</think>", "Q", "", "stop"),
    "a thought that ends with the text": ("<think>so", "Q", "", "thinking"),
    "an opened thought that ends with the text": ("so", "Q<think>", "", "thinking"),
    "a stop string in the thought": ("<think>a\nb</think>42\n43", "Q", "42", "stop"),
    "a mark that opens nothing": ("4 </think>2", "Q", "4 </think>", "length"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_both_engines_return_the_text_after_the_thought(server: ChatServer, name: str) -> None:
    written, question, text, finish = WRITTEN[name]
    prompt = prompt_of(question, stop=("\n",))
    generation = by_server(server, text_completion(written, read=len(question)), prompt)
    assert (generation.text, generation.finish) == (text, finish)
    assert by_tokens(written, prompt) == (text, finish)


class Templated(Letters):
    """A tokenizer whose chat template shows the marks of a format; special tokens are not decoded as text."""

    def __init__(self, template: str, special: str = ""):
        self.chat_template = template
        self.special = special

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        text = super().decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text.replace(self.special, "") if self.special and skip_special_tokens else text


HARMONY = "<|channel|>analysis<|message|>"
# Template, output, prompt, and the answer; a thought that does not end gives none.
FORMS = {
    "brackets": ("[THINK]", "[THINK]so[/THINK]42", "Q", "42"),
    "brackets, unfinished": ("[THINK]", "[THINK]so 41", "Q", None),
    "triangles": ("◁think▷", "◁think▷so◁/think▷42", "Q", "42"),
    "triangles, unfinished": ("◁think▷", "◁think▷so 41", "Q", None),
    "seed": ("<seed:think>", "<seed:think>so</seed:think>42", "Q", "42"),
    "seed, unfinished": ("<seed:think>", "<seed:think>so 41", "Q", None),
    "harmony": (HARMONY, f"{HARMONY}so<|end|><|channel|>final<|message|>42", "Q", "42"),
    "harmony, unfinished": (HARMONY, f"{HARMONY}so 41", "Q", None),
    "harmony without special tokens": (HARMONY, "analysisso 41assistantfinal42", "Q", "42"),
    "harmony without special tokens, unfinished": (HARMONY, "analysisso 41", "Q", None),
    "another format's word in an answer": ("{% <think> %}", "analysis 42", "Q", "analysis 42"),
}


@pytest.mark.parametrize("name", FORMS)
def test_both_engines_read_the_thoughts_of_the_format_that_the_template_shows(server: ChatServer, name: str) -> None:
    template, written, question, text = FORMS[name]
    tokenizer, prompt = Templated(template), replace(prompt_of(question), generation_tokens=20)
    generation = by_server(server, text_completion(written, read=len(question)), prompt, tokenizer=tokenizer)
    finish = "thinking" if text is None else "stop"
    assert (generation.text, generation.finish) == (text or "", finish)
    assert by_tokens(written, prompt, tokenizer=tokenizer) == (text or "", finish)


def test_marks_that_are_special_tokens_end_a_thought_on_this_machine() -> None:
    for mark in ("[THINK]", "[/THINK]"):
        tokenizer = Templated("[THINK]", special=mark)
        assert by_tokens("[THINK]so[/THINK]42", prompt_of(), tokenizer=tokenizer) == ("42", "stop")


def test_a_thought_adds_to_the_token_budget_and_stop_strings_wait_for_its_end(server: ChatServer) -> None:
    by_server(server, text_completion("<think>a</think>b", read=1), prompt_of(stop=("\n",)))
    (request,) = server.requests
    assert request.body["max_tokens"] == 10 + BUDGET
    assert "stop" not in request.body


def test_a_thought_that_takes_both_budgets_is_unfinished(server: ChatServer) -> None:
    endless = f"<think>{'x' * 2 * BUDGET}"
    generation = by_server(server, text_completion(endless, read=1, finish="length"), prompt_of())
    assert (generation.text, generation.finish) == ("", "thinking")
    answer = StopTracker(prompt_of(), Letters(), {END}, thinking_tokens=BUDGET)
    for character in endless:
        answer.add_token(ord(character))
    assert (answer.finish, len(answer.tokens)) == ("thinking", 10 + BUDGET)


def test_tokens_that_a_thought_leaves_unused_do_not_extend_the_answer(server: ChatServer) -> None:
    written = "<think>a</think>0123456789too much"
    generation = by_server(server, text_completion(written, read=1), prompt_of())
    assert (generation.text, generation.finish) == ("0123456789", "length")
    assert by_tokens(written, prompt_of(), ends=False) == ("0123456789", "length")


def test_a_thought_in_a_field_of_its_own_is_not_part_of_the_answer(server: ChatServer) -> None:
    for field in ("reasoning_content", "reasoning"):
        reply = chat_completion("42", read=1, **{field: "so </think> 41"})
        assert by_server(server, reply, prompt_of(turns=("Q", "")), "chat").text == "42"


def counting_thoughts(content: str | None, *, finish: str, thought: int) -> Response:
    """Return a chat completion that counts the tokens of a thought but does not show it."""
    body = json.loads(chat_completion(content, read=1, finish=finish).body)
    body["usage"]["completion_tokens_details"] = {"reasoning_tokens": thought}
    return in_json(body)


@pytest.mark.parametrize("budget", [0, BUDGET])
@pytest.mark.parametrize("content", ["", "\n", None])
@pytest.mark.parametrize("sign", ["reasoning_content", "reasoning", "only a count"])
def test_a_thought_that_takes_all_tokens_is_unfinished_rather_than_an_empty_answer(
    server: ChatServer, sign: str, content: str | None, budget: int
) -> None:
    """Reasoning models also think without a budget, and hosted ones hide their thoughts."""
    prompt = prompt_of(turns=("Q", ""))

    def finish(reason: str, thought: int) -> str:
        if sign == "only a count":
            response = counting_thoughts(content, finish=reason, thought=thought)
        else:
            response = chat_completion(content, read=1, finish=reason, **{sign: "so"})
        return by_server(server, response, prompt, "chat", budget=budget).finish

    assert finish("length", 10) == "thinking"
    if sign == "only a count" and not budget and content is not None:
        assert finish("length", 0) == "length"
    # A parser of thoughts takes an answer without the mark that ends a thought for one.
    assert finish("stop", 10) == ("stop" if sign == "only a count" else "thinking")


def test_the_instructed_opening_words_are_removed_from_the_answer(server: ChatServer) -> None:
    prompt = prompt_of(opening="It is", stop=("\n",))
    for written in ("<think>a</think>\nIt is 42\n", "<think>a</think>42\n"):
        text = by_server(server, text_completion(written, read=1), prompt).text
        assert text.strip() == "42"
        assert by_tokens(written, prompt)[0] == text


@pytest.mark.parametrize(
    ("opening", "stop", "sent"),
    [
        ("It is", "\n", ["\n"]),
        ("", "```", ["```"]),
        ("```tsv\n", "```", None),
        ("Step by step:\n", "\n\n", None),
        ("Step by step:\n", "</a>", ["</a>"]),
    ],
)
def test_no_stop_string_ends_an_answer_within_the_words_that_it_has_to_begin_with(
    opening: str, stop: str, sent: list[str] | None, server: ChatServer
) -> None:
    """A server applies stop strings to all that it writes; the answer is cut at them behind its opening words."""
    prompt = replace(prompt_of(opening=opening, stop=(stop,)), generation_tokens=90)
    text = by_server(server, text_completion(f"{opening}42{stop}so", read=1), prompt, budget=0).text
    assert server.requests[-1].body.get("stop") == sent
    assert text == "42"


@given(thought=st.text(alphabet="ab <", max_size=12), answer=st.text(alphabet="xyz ", max_size=10))
def test_no_text_of_a_thought_reaches_the_answer(thought: str, answer: str) -> None:
    written = f"<think>{thought}</think>{answer}"
    assert THINK.answer(written, inside=False) == answer.lstrip()
    assert THINK.answer(written.removeprefix("<think>"), inside=True) == answer.lstrip()
    assert by_tokens(written, prompt_of())[0] == answer.lstrip()[:10]
    assert strip_opening(f"go {answer}", "go") == f" {answer}"
