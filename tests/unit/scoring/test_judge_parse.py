"""The verdict in a judge's reply is searched leniently and validated strictly."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.scoring.judge.grading import UnreadableReply, objects, read_verdict

LIMITS = {"fluency": 1, "correctness": 3}
COUNTS: dict[str, int | str] = {"supported": "sentences", "sentences": 10_000}
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda values: st.lists(values) | st.dictionaries(st.text(), values), max_leaves=8)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
WORDS = st.text().filter(lambda text: "{" not in text and "}" not in text)
VERDICTS = st.fixed_dictionaries({"fluency": st.integers(0, 1), "correctness": st.integers(0, 3)})
WRITTEN = st.sampled_from([json.dumps, str, lambda verdict: json.dumps(verdict, indent=2)])
# What judges put around a verdict, without saying anything.
FRAMES = st.sampled_from(["{}", "```json\n{}\n```", "**{}**", "`{}`.", '"{}"\n\n', "({})"])


@given(OBJECTS, WORDS, WORDS)
def test_any_object_in_any_text_is_parsed(parsed: dict[str, Any], before: str, after: str) -> None:
    text = f"{before}{json.dumps(parsed)}{after}"
    ((pairs, end),) = objects(text)
    assert [name for name, _ in pairs] == list(parsed)
    assert text[end:] == after
    assert json.loads(text[len(before) : end]) == parsed


@given(st.lists(VERDICTS, min_size=1), WORDS, st.text(), VERDICTS, WRITTEN, FRAMES)
def test_the_verdict_at_the_end_of_a_reply_counts(
    earlier: list[dict[str, int]], words: str, anything: str, verdict: dict[str, int], write: Any, frame: str
) -> None:
    """An answer can bring the judge to repeat verdicts that the answer made up."""
    said = words.join(json.dumps(verdict) for verdict in earlier)
    # Braces of a text before it could swallow the verdict; unbalanced ones on one line cannot.
    text = f"{said}\n{anything.replace('}', '')}\n{frame.replace('{}', write(verdict))}"
    assert read_verdict(text, LIMITS) == verdict


SCRAPS = st.lists(st.sampled_from(["{", "}", '"', "'", "fluency", ":", "1", ",", "[", "]", " ", "\\", "\n"]))


@given(st.text() | SCRAPS.map("".join))
def test_a_reply_is_a_verdict_or_unreadable_and_nothing_else(text: str) -> None:
    problem, verdict = "", {}
    try:
        verdict = read_verdict(text, {"fluency": 1})
    except UnreadableReply as error:
        problem = str(error)
    assert problem or verdict in ({"fluency": 0}, {"fluency": 1})
    assert "\n" not in problem


@pytest.mark.parametrize(
    "reply",
    [
        "{'fluency': 1, 'correctness': 2}",
        '{"fluency": 1, "correctness": 2,}',
        "{fluency: 1, correctness: 2}",
        '{{"fluency": 1, "correctness": 2}}',
        '{\n  "fluency" : 1 ,\n  "correctness" : 2\n}',
        "Output: `{'correctness': 2, 'fluency': 1,}`",
        '<think>{"fluency": 0}</think>\n{"fluency": 1, "correctness": 2}',
        'The set {a, b} and {"x": 1}; verdict {"fluency": 1, "correctness": 2} (the answer is half right).',
        '{"fluency": 1, "correctness": 2}\n\nThus {"fluency": 1, "correctness": 2} is my verdict',
        'The form was {"fluency": <0 or 1>, "correctness": <0, 1, 2 or 3>}. {"fluency": 1, "correctness": 2}',
    ],
)
def test_ways_in_which_judges_write_a_verdict(reply: str) -> None:
    assert read_verdict(reply, LIMITS) == {"fluency": 1, "correctness": 2}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("", "no JSON object"),
        ("fluency: 1, correctness: 2", "no JSON object"),
        ('{"fluency": 1, "correctness": 2', "no JSON object"),
        ('{"fluency": 1}', "the keys are"),
        ('{"fluency": 1, "correctness": 2, "note": ""}', "the keys are"),
        ('{"fluency": 1, "fluency": 0, "correctness": 2}', "the keys are"),
        ('{"Fluency": 1, "correctness": 2}', "the keys are"),
        ('{"fluency": true, "correctness": 2}', "fluency is 'true'"),
        ("{'fluency': True, 'correctness': 2}", "instead of a whole number"),
        ('{"fluency": 1.0, "correctness": 2}', "fluency is '1.0'"),
        ('{"fluency": "1", "correctness": 2}', "instead of a whole number"),
        ('{"fluency": null, "correctness": 2}', "instead of a whole number"),
        ('{"fluency": NaN, "correctness": 2}', "instead of a whole number"),
        ('{"fluency": 1, "correctness": 1e999}', "instead of a whole number"),
        ('{"fluency": 1, "correctness": 4}', "correctness is '4' instead of 0 to 3"),
        ('{"fluency": -1, "correctness": 3}', "fluency is '-1' instead of 0 to 1"),
        ('[{"fluency": 1, "correctness": 2}, {"fluency": 0}]', "the keys are"),
    ],
)
def test_other_replies_are_unreadable(reply: str, says: str) -> None:
    with pytest.raises(UnreadableReply) as raised:
        read_verdict(reply, LIMITS)
    assert says in str(raised.value)


def test_a_quoted_verdict_behind_the_judges_own_leaves_it_unclear_whose_counts() -> None:
    reply = '{"fluency": 1, "correctness": 0}. The answer demanded {"fluency": 1, "correctness": 3}, in vain.'
    with pytest.raises(UnreadableReply, match="several verdicts that differ"):
        read_verdict(reply, LIMITS)


@given(st.integers(-1, 12), st.integers(-1, 12))
def test_a_count_is_bounded_by_the_count_it_is_part_of(supported: int, sentences: int) -> None:
    reply = json.dumps({"supported": supported, "sentences": sentences})
    if 0 <= supported <= sentences:
        assert read_verdict(reply, COUNTS)["supported"] == supported
    else:
        with pytest.raises(UnreadableReply):
            read_verdict(reply, COUNTS)


@pytest.mark.parametrize("scrap", ['{"a":', "{", '{"', "{a:1", "{a:1,", "{a:1 ", '{"a":[', "{'a':'"])
def test_a_reply_of_scraps_is_read_in_no_time(scrap: str) -> None:
    started = time.process_time()
    with pytest.raises(UnreadableReply):
        read_verdict(scrap * 20_000, LIMITS)
    with pytest.raises(UnreadableReply):
        read_verdict(scrap + " " * 20_000, LIMITS)
    assert time.process_time() - started < 20
