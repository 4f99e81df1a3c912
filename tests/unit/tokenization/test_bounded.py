"""Templates and tokenizers of others fail in one line, and each call ends within limits of time, memory and output."""

import os
import signal
import time
from typing import Any

import pytest
from tokenizers import Regex, decoders, normalizers

from longctx.fixtures.tokenization import bounded
from longctx.fixtures.tokenization.bounded import BoundedCalls, OutsideCallError
from longctx.fixtures.tokenization.load import TokenizerError
from longctx.fixtures.tokenization.prompts import MESSAGE, PromptFormatter
from tests.helpers.tiny_tokenizers import with_template

TURN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
PART = "{% if p.type == 'text' %}{{ p.text }}{% endif %}"
PARTS = f"{{% for m in messages %}}{{% for p in m.content %}}{PART}{{% endfor %}}{{% endfor %}}"


def raises() -> None:
    raise KeyError("x")


def recurses() -> None:
    recurses()


def fills_memory() -> int:
    return len(b"a" * 3 * 10**9)


def ends_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CALLS = BoundedCalls({"raises": raises, "recurses": recurses, "adds": lambda a, b: a + b})


def test_a_call_returns_what_the_function_returns() -> None:
    assert CALLS.call("adds", [1], [2, 3], characters=0) == [1, 2, 3]
    text = "\ud800" + "a" * 2_000_000
    assert CALLS.call("adds", text, "b", characters=len(text)) == text + "b"


@pytest.mark.parametrize(("name", "problem"), [("raises", "fails .'x'."), ("recurses", "fails .maximum recursion")])
def test_a_call_that_fails_is_named_and_the_next_one_works(name: str, problem: str) -> None:
    with pytest.raises(OutsideCallError, match=problem):
        CALLS.call(name, characters=0)
    assert CALLS.call("adds", 1, 2, characters=0) == 3


@pytest.mark.parametrize("function", [fills_memory, ends_itself])
def test_a_call_that_ends_its_process_fails_for_good(function: Any) -> None:
    calls = BoundedCalls({"ends": function, "adds": lambda: 1})
    for name in ("ends", "adds"):
        with pytest.raises(OutsideCallError, match="does not end within 10 s and 512 MiB on a text of 7 characters"):
            calls.call(name, characters=7)


def test_an_endless_call_is_stopped_and_the_next_ones_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 1)
    calls = BoundedCalls({"loops": lambda: all(iter(lambda: 1, 0)), "adds": lambda: 1})
    started = time.monotonic()
    for name in ("loops", "adds", "adds"):
        with pytest.raises(OutsideCallError, match="does not end within 1 s"):
            calls.call(name, characters=0)
    assert time.monotonic() - started < 5


def test_a_process_that_waits_for_a_core_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 1)
    assert BoundedCalls({"waits": time.sleep}).call("waits", 1.5, characters=0) is None


def test_a_forked_copy_of_the_process_calls_one_of_its_own() -> None:
    assert CALLS.call("adds", 1, 1, characters=0) == 2
    child = os.fork()
    if child == 0:
        os._exit(CALLS.call("adds", 3, 4, characters=0))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert CALLS.call("adds", 1, 1, characters=0) == 2


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ 1 // 0 }}", r"fails \(integer division or modulo by zero\)"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails .maximum recursion depth exceeded"),
        ("{{ 'a' * 10**6 }}", "makes 1,000,000 characters of a message of 1,952"),
        ("{{ messages[-1].content | replace('a', 'a' * 9999) }}", "makes 641,824 characters of a message of 1,952"),
        ("{{ '\ud800' }}" + TURN, "fails .*surrogates not allowed"),
        ("{{ messages[0].role }}", "drops or changes the user's text"),
        ("{{ messages[0].content[:99] }}", "drops or changes the user's text"),
        ("{{ messages[0].content | upper }}", "drops or changes the user's text"),
        ("{{ messages[0].content | e }}", "drops or changes the user's text"),
        ("{{ messages[0].content | tojson }}", "drops or changes the user's text"),
        ("{{ messages[0].content | replace('\n\n', '\n') }}", "drops or changes the user's text"),
    ],
)
def test_a_bad_template_is_refused_before_a_run(template: str, problem: str) -> None:
    with pytest.raises(TokenizerError, match=f"--chat: the chat template {problem}.*; use --chat off") as raised:
        PromptFormatter(with_template(template))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("'needle' in messages[0].content", "a needle"),
        ("messages | length == 3", "a word"),
        ("messages[0].content | length > 20000", "many words " * 2000),
    ],
)
def test_a_template_that_loops_on_some_texts_is_stopped_there(
    condition: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 1)
    made = PromptFormatter(with_template(f"{{% if {condition} %}}{LOOP}{{% endif %}}{TURN}"))
    earlier = (("user", "One."), ("assistant", "Two.")) if "== 3" in condition else ()
    with pytest.raises(TokenizerError, match=r"--chat: the chat template does not end within [12] s"):
        made.prompt(text, "", generation_tokens=1, earlier=earlier)


@pytest.mark.parametrize(
    "rules",
    [
        {"normalizer": normalizers.Prepend("a" * 50_000_000)},
        {"normalizer": normalizers.Sequence([normalizers.Replace("o", "oooooooooo") for _ in range(9)])},
        {"normalizer": normalizers.Replace(Regex("."), "a" * 99_999)},
        {"decoder": decoders.Replace("o", "o" * 50_000_000)},
    ],
    ids=["prepends", "multiplies", "replaces", "decodes"],
)
def test_a_tokenizer_that_blows_up_is_refused_before_a_run(rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 2)
    with pytest.raises(TokenizerError, match=r"the tokenizer .*; copy its files from their source again") as raised:
        PromptFormatter(with_template(TURN, **rules))
    assert "\n" not in str(raised.value)


def test_a_template_that_reads_parts_gets_parts() -> None:
    made = PromptFormatter(with_template(PARTS))
    assert made.form.has_parts
    assert made.prompt("Which one?", "It is", generation_tokens=1).text == "Which one? It is"
    assert not PromptFormatter(with_template(TURN)).form.has_parts


@pytest.mark.parametrize("setting", ["enable_thinking", "thinking"])
def test_a_thought_that_a_template_opens_is_closed_by_its_setting(setting: str) -> None:
    opening = f"<think>\n{{% if {setting} is defined and not {setting} %}}\n</think>\n\n{{% endif %}}"
    made = PromptFormatter(with_template(TURN + opening))
    assert made.form.settings == {setting: False}
    assert made.prompt("Which?", "It is", generation_tokens=1).text == "[user] Which?\n<think>\n</think>\n\nIt is"
    thinking = PromptFormatter(with_template(TURN + opening), thinks=True)
    assert thinking.prompt("Which?", "", generation_tokens=1).text == "[user] Which?\n<think>\n"
    assert thinking.fingerprint != made.fingerprint


@pytest.mark.parametrize(
    ("opening", "mark"),
    [("<think>\n", "<think>"), ("[THINK]", "[THINK]"), ("<thinking>\n\n", "<thinking>"), ("", ""),
     ("<|START_THINKING|>", "<|START_THINKING|>"), ("<reasoning> ", "<reasoning>"), ("<think></think>", ""),
     ("<thought>\n", "<thought>"), ("<Think>", "<Think>"), ("<|thinking|>", "<|thinking|>"),
     ("<think>\nOkay, let me see.\n", "<think>"), ("[THINK]First, ", "[THINK]"), ("◁think▷◁/think▷", ""),
     ("<scratchpad>", "<scratchpad>"), ("<thoughts></thoughts>", ""), ("<answer>", "")],
)  # fmt: skip
def test_a_thought_that_no_setting_closes_is_named(opening: str, mark: str) -> None:
    assert PromptFormatter(with_template(TURN + opening)).form.open_thought == mark


def test_a_long_text_may_take_longer() -> None:
    made, text = PromptFormatter(with_template(TURN)), MESSAGE * 100
    assert text in made.prompt(text, "", generation_tokens=1).text
