"""Canaries notice another model under the same name, and sampling."""

from collections.abc import Callable

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.canaries import (
    TEXTS,
    AnswerStep,
    Canary,
    CanaryCheck,
    SteppedAnswer,
    first_answers,
)
from longctx.fixtures.records import Prompt
from tests.helpers.clients import asking, echo, endpoint_of, engine_of
from tests.helpers.servers import ChatServer, Request, Response, text_completion

PROMPTS = asking(*TEXTS)


def answered(*values: float, text: str = "a", best: float = -9.0) -> SteppedAnswer:
    steps = tuple(AnswerStep(text=text, best={"ab".replace(text, ""): best, text: value}) for value in values)
    return SteppedAnswer(text=text * len(values), steps=steps)


def begun(ask: Callable[[Prompt], SteppedAnswer | None]) -> tuple[tuple[Canary, ...], tuple[str, ...]]:
    return first_answers(ask, PROMPTS)


def check_of(before: SteppedAnswer, now: Callable[[Prompt], SteppedAnswer | None]) -> CanaryCheck:
    canaries, notes = begun(lambda _: before)
    assert notes == ()
    return CanaryCheck(now, canaries, "http://x/v1")


def test_answers_are_not_used_once_another_model_answers(server: ChatServer) -> None:
    canaries, notes = first_answers(engine_of(server).ask_canary, PROMPTS)
    assert (len(canaries), notes) == (2, ())
    engine = engine_of(server, endpoint=endpoint_of(server, canaries=canaries))
    assert [answer.text for answer in engine.generate(asking("one two"))] == [" two"]
    server.answer = lambda request: text_completion(" other", read=len(str(request.prompt).split()))
    for _ in range(2):
        answers = engine.generate(asking("three four"))
        with pytest.raises(EngineError, match="the model was replaced during the run"):
            next(answers)


def test_answers_are_confirmed_together_while_that_costs_less_than_a_hundredth(server: ChatServer) -> None:
    canaries, _ = first_answers(engine_of(server).ask_canary, PROMPTS)
    engine = engine_of(server, endpoint=endpoint_of(server, canaries=canaries), batch_size=1)
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


def test_another_token_in_a_near_tie_is_the_same_model() -> None:
    check_of(answered(-0.7, best=-0.8), lambda _: answered(-0.7, text="b", best=-0.8)).check()
    with pytest.raises(EngineError, match="replaced"):
        check_of(answered(-0.7, best=-3.0), lambda _: answered(-0.7, text="b", best=-3.0)).check()


def test_one_other_text_without_probabilities_is_a_near_tie_and_two_are_another_model() -> None:
    same, other = SteppedAnswer(text="same", steps=()), SteppedAnswer(text="other", steps=())
    check_of(same, lambda prompt: other if prompt.text == TEXTS[0] else same).check()
    with pytest.raises(EngineError, match="replaced"):
        check_of(same, lambda _: other).check()


def test_a_server_that_samples_or_gives_no_reply_is_told_of() -> None:
    check_of(answered(-1.0), lambda _: None).check()
    texts = iter(map(str, range(9)))
    for ask, note in (
        (lambda _: None, "gave no answer to the short prompts"),
        (lambda _: SteppedAnswer(text=next(texts)), "it samples, or several models answer"),
    ):
        canaries, notes = begun(ask)
        assert canaries == ()
        assert note in notes[0]


def test_a_server_that_refuses_log_probabilities_is_asked_without_them(server: ChatServer) -> None:
    def answer(request: Request) -> Response:
        return Response(status=400) if "logprobs" in request.body else echo(request)

    server.answer = answer
    canaries, _ = first_answers(engine_of(server).ask_canary, PROMPTS)
    assert [canary.answer.text for canary in canaries] == [" and", " 25,"]
    assert sum("logprobs" in request.body for request in server.requests) == 1
