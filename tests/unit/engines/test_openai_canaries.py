"""Canaries notice another model under the same name, sampling, and stored replies."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.canaries import (
    NUMBER_TEXT,
    REPEATED_TURN_TOKENS,
    TEXTS,
    Canary,
    CanaryAnswer,
    CanaryCheck,
    choice_notes,
    first_answers,
    limit_note,
    stop_note,
)
from longctx.fixtures.engines.openai.log_probabilities import AnswerStep
from longctx.fixtures.records import Prompt
from tests.helpers.clients import asking, echo, engine_of
from tests.helpers.servers import ChatServer, Request, Response, text_completion

MOST_TOKENS = 32


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving


def make_prompt(text: str, beginning: str, tokens: int) -> Prompt:
    (prompt,) = asking(f"{text} {beginning}".strip())
    assert tokens <= REPEATED_TURN_TOKENS
    return prompt


def answered(*values: float, text: str = "a") -> CanaryAnswer:
    steps = tuple(AnswerStep(text=text, log_probability=value, best={text: value, "b": -9.0}) for value in values)
    return CanaryAnswer(text=text * len(values), steps=steps)


def begun(ask: Callable[[Prompt], CanaryAnswer | None]) -> tuple[tuple[Canary, ...], tuple[str, ...]]:
    return first_answers(ask, make_prompt, "http://x/v1")


def check_of(before: CanaryAnswer, now: Callable[[Prompt], CanaryAnswer | None]) -> CanaryCheck:
    canaries, notes = begun(lambda _: before)
    assert notes == ()
    return CanaryCheck(now, canaries, "http://x/v1")


def test_answers_are_not_used_once_another_model_answers(server: ChatServer) -> None:
    first = engine_of(server)
    canaries, notes = first_answers(first.ask_canary, make_prompt, server.url)
    assert (len(canaries), notes) == (3, ())
    engine = engine_of(server, canaries=canaries)
    assert [answer.text for answer in engine.generate(asking("one two"))] == [" two"]
    server.answer = lambda request: text_completion(" other", read=len(str(request.prompt).split()))
    for _ in range(2):
        answers = engine.generate(asking("three four"))
        with pytest.raises(EngineError, match="the model was replaced during the run"):
            next(answers)


def test_answers_are_confirmed_together_while_that_costs_less_than_a_hundredth(server: ChatServer) -> None:
    canaries, _ = first_answers(engine_of(server).ask_canary, make_prompt, server.url)
    engine = engine_of(server, canaries=canaries, batch_size=1)
    before = len(server.requests)
    texts = [f"text {number} " + "word " * 900 for number in range(4)]
    assert len(list(engine.generate(asking(*texts)))) == 4
    # Two answers of 900 tokens are more than a hundred times a canary of ten.
    assert len(server.requests) - before == 4 + 2


@pytest.mark.parametrize("shift", [0.6, -0.6, float("nan")])
def test_a_probability_that_moves_more_than_number_formats_explain_is_another_model(shift: float) -> None:
    check_of(answered(-1.0, -2.0), lambda _: answered(-1.1, -2.1)).check()
    with pytest.raises(EngineError, match="replaced during the run"):
        check_of(answered(-1.0, -2.0), lambda _: answered(-1.0, -2.0 + shift)).check()


def test_a_difference_that_does_not_repeat_is_noise() -> None:
    given = iter([answered(-1.0, -5.0), answered(-1.0, -2.0)])
    check_of(answered(-1.0, -2.0), lambda _: next(given)).check()


def test_one_other_text_without_probabilities_is_a_near_tie_and_most_are_another_model() -> None:
    same, other = CanaryAnswer(text="same", steps=()), CanaryAnswer(text="other", steps=())
    flipping = make_prompt("The old lighthouse keeper opened the letter and", "", 8)
    check_of(same, lambda prompt: other if prompt.text == flipping.text else same).check()
    with pytest.raises(EngineError, match="replaced"):
        check_of(same, lambda _: other).check()


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_another_text_in_a_near_tie_has_the_other_canaries_asked(shift: float) -> None:
    def answer(text: str, other: str) -> CanaryAnswer:
        step = AnswerStep(text=text, log_probability=-0.7, best={text: -0.7, other: -0.8})
        return CanaryAnswer(text=text, steps=(step,))

    asked: list[str] = []

    def now(prompt: Prompt) -> CanaryAnswer:
        asked.append(prompt.text)
        return answer("b", "a") if len(asked) == 1 else answered(-0.7 - shift)

    check = check_of(answer("a", "b"), now)
    if shift:
        with pytest.raises(EngineError, match=r"replaced during the run.*\(0.6 nats apart\)"):
            check.check()
    else:
        check.check()
        assert asked == list(TEXTS)


def test_no_reply_to_a_canary_raises_nothing() -> None:
    check_of(answered(-1.0), lambda _: None).check()


def test_a_server_that_samples_is_told_of() -> None:
    texts = iter(map(str, range(9)))
    canaries, notes = begun(lambda _: CanaryAnswer(text=next(texts), steps=()))
    assert canaries == ()
    assert "it samples, or several models answer" in notes[0]


def test_a_stored_reply_is_an_error() -> None:
    with pytest.raises(EngineError, match="gives a stored reply"):
        begun(lambda _: CanaryAnswer(text="a", steps=(), reply_id="cmpl-12345"))


@pytest.mark.parametrize(
    ("new_seconds", "waiting", "is_stored"),
    [
        ((0.1,) * 3, 0, True),
        ((0.005,) * 3, 0, False),
        ((0.1, 0.005), 0, False),
        ((0.1,) * 3, 1, True),
        ((0.1,) * 3, 2, False),
    ],
)
def test_replies_to_known_prompts_that_come_without_computing_are_stored(
    new_seconds: tuple[float, ...], waiting: int, is_stored: bool
) -> None:
    """One slow reply to a new prompt, or to two known ones, proves nothing: they may have had to wait."""
    times, asked = iter(new_seconds), Counter[str]()

    def ask(prompt: Prompt) -> CanaryAnswer:
        asked[prompt.text] += 1
        if prompt.text not in TEXTS:
            return CanaryAnswer(text="a", steps=(), seconds=next(times))
        waits = asked[prompt.text] == 3 and TEXTS.index(prompt.text) < waiting
        return CanaryAnswer(text="a", steps=(), seconds=0.2 if waits else 0.001)

    if is_stored:
        with pytest.raises(EngineError, match="less than 10% of the time of new ones, so it gives stored replies"):
            begun(ask)
    else:
        assert len(begun(ask)[0]) == len(TEXTS)


@pytest.mark.parametrize(
    ("plain", "penalized", "said"),
    [
        ("red " * 24, "red red.", None),
        ("red " * 24, "red " * 24, "ignores the penalties of requests"),
        # No model has to repeat a word so often.
        ("red red.", "red red.", None),
    ],
)
def test_a_word_that_is_repeated_under_penalties_shows_that_they_are_ignored(
    plain: str, penalized: str, said: str | None
) -> None:
    plain_answer, penalized_answer = (CanaryAnswer(text=text, steps=()) for text in (plain, penalized))
    notes = choice_notes(lambda _: plain_answer, lambda _: penalized_answer, make_prompt, ())
    assert (notes == ()) == (said is None)
    assert said is None or said in notes[0]


@pytest.mark.parametrize("penalized_from", [0, 100])
def test_a_server_that_penalizes_all_answers_does_not_go_on_with_a_repeated_word(penalized_from: int) -> None:
    """Short answers may be all that a model says, and repeat no token that could be penalized."""

    def ask(prompt: Prompt, *, written: int = 24, obeys: bool = False, penalty: float = 0) -> CanaryAnswer:
        penalizes = prompt.length_tokens >= penalized_from or (obeys and penalty)
        return CanaryAnswer(text=" Rebel." if penalizes else " red" * 24, steps=(), written=written)

    def notes(*, continues: bool = True, **how: Any) -> tuple[str, ...]:
        said, penalized = partial(ask, **how), partial(ask, penalty=2, **how)
        return choice_notes(said, penalized, make_prompt, (), continues=continues, length=200)

    (note,) = notes(obeys=True)
    assert note.startswith(
        "answers the request to repeat a word with ' Rebel.', under the strongest penalties as without"
    )
    assert notes(obeys=True, written=5) == ()
    if penalized_from == 0:
        assert notes(continues=False, written=47) == ()
        assert notes(continues=False, written=48) == (note,)


def test_tokens_that_are_not_the_most_probable_ones_are_told_of() -> None:
    step = AnswerStep(text="a", log_probability=-3.0, best={"a": -3.0, "b": -0.1})
    answer = CanaryAnswer(text="a", steps=(step,))
    (note,) = choice_notes(lambda _: answer, lambda _: answer, make_prompt, ())
    assert note.startswith("wrote 1 tokens in answers to short prompts although")
    assert choice_notes(lambda _: answered(-0.1), lambda _: answer, make_prompt, ()) == ()


@pytest.mark.parametrize(("written", "is_stored"), [(8, True), (1, False), (64, False)])
def test_an_answer_that_a_smaller_limit_does_not_shorten_is_stored(written: int, is_stored: bool) -> None:
    """An answer of one token is no proof, and a server that ignores limits shows it otherwise."""
    answer = CanaryAnswer(text="a b", steps=(), written=written)
    if is_stored:
        with pytest.raises(EngineError, match="same 8 tokens when one token is requested, so it gives stored replies"):
            begun(lambda _: answer)
    else:
        begun(lambda _: answer)


@pytest.mark.parametrize("limited_text", ["4815162", "4"])
def test_a_model_that_answers_nothing_else_is_asked_to_repeat_a_number(limited_text: str) -> None:
    """A cache of replies behind a calibration checkpoint shows itself there."""

    def ask(prompt: Prompt) -> CanaryAnswer:
        if not prompt.text.startswith(NUMBER_TEXT):
            return CanaryAnswer(text="", steps=(), written=1)
        return CanaryAnswer(text="4815162" if prompt.generation_tokens > 1 else limited_text, steps=(), written=8)

    if limited_text == "4815162":
        with pytest.raises(EngineError, match="when one token is requested, so it gives stored replies"):
            begun(ask)
    else:
        assert len(begun(ask)[0]) == len(TEXTS)


def test_another_fingerprint_with_the_same_answers_is_told_of() -> None:
    before, now = (CanaryAnswer(text="a", steps=(), system_fingerprint=name) for name in ("fp_1", "fp_2"))
    check = check_of(before, lambda _: now)
    check.check()
    assert "changed its system_fingerprint during the run, from 'fp_1' to 'fp_2'" in check.notes[0]


@pytest.mark.parametrize(
    ("ends", "is_told"),
    [((16, 16, 16), True), ((16, 16, 17), False), ((None,) * 3, False), ((3, 3, 3), False), ((40, 40, 40), False)],
)
def test_texts_that_end_after_the_same_tokens_show_a_limit(ends: tuple[int | None, ...], is_told: bool) -> None:
    given = iter([CanaryAnswer(text="a", steps=(), ended_after=end) for end in ends])
    note = limit_note(lambda _: next(given), make_prompt, MOST_TOKENS)
    assert (note is not None) == is_told
    assert note is None or "after exactly 16 tokens of 32" in note


def continue_series(prompt: Prompt) -> str:
    """Return twelve more items of the series at the end of a prompt, as a model that reads it would."""
    last = prompt.text.removesuffix(",").rpartition(" ")[2]
    if last.isdigit():
        return "".join(f" {int(last) + step}," for step in range(1, 13))
    first = "a" if last.islower() else "A"
    return "".join(f" {chr(ord(first) + (ord(last) - ord(first) + step) % 26)}," for step in range(1, 13))


@pytest.mark.parametrize("character", string.digits + string.ascii_letters)
def test_a_stop_string_of_the_server_shows_in_two_series(character: str) -> None:
    def stopped(prompt: Prompt, *, is_kept: bool = False) -> CanaryAnswer:
        text, stop, _ = continue_series(prompt).partition(character)
        assert stop
        return CanaryAnswer(text=text + stop * is_kept, steps=(), ended_after=3)

    def whole(prompt: Prompt) -> CanaryAnswer:
        return CanaryAnswer(text=continue_series(prompt), steps=())

    note = stop_note(stopped, make_prompt, character)
    assert note is not None
    assert f"2 lists of {'numbers' if character.isdigit() else 'letters'} where {character!r} comes next" in note
    assert stop_note(whole, make_prompt, character) is None
    # A model may end its answer behind a whole letter, but not within a number.
    kept = stop_note(partial(stopped, is_kept=True), make_prompt, character)
    assert (kept is not None) == character.isdigit()


@pytest.mark.parametrize("text", ["", " 9", " and so on", " 124"])
def test_a_model_that_ends_series_elsewhere_is_not_said_to_be_stopped(text: str) -> None:
    answer = CanaryAnswer(text=text, steps=(), ended_after=1)
    assert [stop_note(lambda _: answer, make_prompt, character) for character in "4b-\u00e9"] == [None] * 4


def test_a_server_that_refuses_log_probabilities_is_asked_without_them(server: ChatServer) -> None:
    def answer(request: Request) -> Response:
        return Response(status=400) if "logprobs" in request.body else echo(request)

    server.answer = answer
    canaries, _ = first_answers(engine_of(server).ask_canary, make_prompt, server.url)
    assert [canary.answer.text for canary in canaries] == [" and", " 25,", " return"]
    assert sum("logprobs" in request.body for request in server.requests) == 1
