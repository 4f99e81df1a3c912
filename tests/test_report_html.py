"""The page as a file: nothing in it reaches out, nothing that was said becomes markup, and it stays small."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import LENGTHS, NASTY, cases_of, finished, options_of, result_of
from queues import judge as judge_of
from queues import scope_of, thresholds
from test_regression import MANY

from fixtures.excerpts import excerpt_of
from fixtures.records import CaseResult, FailureKind, Prompt, Sample
from plugins.gates.curves import curves
from plugins.gates.thresholds import Gate
from plugins.report.details import details
from plugins.report.document import Finished, document
from plugins.report.html.charts import SHADES, difference_class, floor_of, line, shade, shade_rules
from plugins.report.html.page import embedded, page
from plugins.report.html.views import failures, headline, score_charts
from plugins.report.markdown import markdown
from plugins.report.samples import ANSWER_CHARACTERS, EXCERPTS_PER_CASE, RIGHT_PER_CASE, samples_of
from plugins.report.text import one_line, visible

ANY_TEXT = st.text(st.characters(), max_size=60) | st.text("<>&/script!-\u2028\ud800\x00", max_size=20)


class Reader(HTMLParser):
    """Tags with their attributes, and the content of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.raw.append((dict(attributes).get("type") or tag, ""))
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside:
            kind, text = self.raw[-1]
            self.raw[-1] = (kind, text + data)


def page_of(run: Finished) -> str:
    return page(document(run), details(run))


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.fixture(scope="module")
def nasty() -> str:
    run = finished(texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192), model=NASTY[0] + NASTY[3])
    return page_of(run)


def test_nothing_in_the_page_has_an_address_to_load_from(nasty: str) -> None:
    reader = read(nasty)
    for _, attributes in reader.tags:
        assert {"src", "srcset", "data", "action", "poster", "style"}.isdisjoint(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    style = next(text for kind, text in reader.raw if kind == "style")
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(nasty: str) -> None:
    reader = read(nasty)
    (policy,) = [each["content"] for tag, each in reader.tags if each.get("http-equiv") == "Content-Security-Policy"]
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in reader.raw
        if kind in ("style", "script")
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_what_a_model_says_is_never_markup(nasty: str) -> None:
    reader = read(nasty)
    assert [kind for kind, _ in reader.raw] == ["style", "application/json", "script"]
    assert "img" not in {tag for tag, _ in reader.tags}
    rows = json.loads(dict(reader.raw)["application/json"])["rows"]
    longest = max(NASTY, key=len)
    assert {row["got"] for row in rows} == {visible(text, 400 if text == longest else None) for text in NASTY}
    assert {row["end"] for row in rows if "end" in row} == {longest[-200:]}
    assert {row.get("more") for row in rows} == {None, len(longest) - 600}
    nasty.encode("utf-8")
    assert not [sign for sign in nasty if unicodedata.category(sign) in ("Cc", "Cf", "Cs") and sign not in "\n\t"]


@given(ANY_TEXT)
def test_embedded_data_comes_back_and_holds_no_sign_of_markup(text: str) -> None:
    found = str(embedded({"rows": [text]}))
    assert found.isascii()
    assert not set("<>&") & set(found)
    assert json.loads(found) == {"rows": [text]}


@given(ANY_TEXT)
def test_visible_text_can_be_written_and_has_no_hidden_sign(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not [sign for sign in shown if unicodedata.category(sign)[0] == "C" and sign not in "\n\t"]
    assert visible(shown) == shown
    assert "\n" not in one_line(text, 20)
    assert len(one_line(text, 20)) <= 20


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=40))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def row_of(text: str, *references: str, depths: tuple[float, ...] = ()) -> dict[str, Any]:
    """The page's row of a wrong sample that was answered like this."""
    options = options_of(samples=1, suite="ruler", lengths=(4096,))
    case = cases_of(options)[0]
    result = result_of(case, options.lengths, (text,), paired=False)
    outcome = replace(
        result.outcomes[0],
        references=references,
        depths=depths,
        score=replace(result.outcomes[0].score, value=0.5, parts=dict.fromkeys(references[:1], 1.0), failure="wrong"),
    )
    (row,) = samples_of([case], {case.id: replace(result, outcomes=(outcome,))}).rows
    return dict(row)


@given(st.text("ab .", max_size=2000), st.text("ab", min_size=1, max_size=20))
def test_nothing_of_a_long_answer_is_left_out_in_silence(text: str, reference: str) -> None:
    row = row_of(text, reference)
    shown = row["got"] + row.get("end", "")
    assert len(shown) + row.get("more", 0) + row.get("rest", 0) == len(text)
    assert len(shown) <= ANSWER_CHARACTERS
    assert text.startswith(row["got"])
    assert row.get("end", "") in text
    if "rest" not in row:
        assert text.endswith(row.get("end", ""))


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_of_a_long_answer_the_place_of_a_reference_is_shown(before: int, after: int) -> None:
    """As when a model thinks aloud before and after it."""
    row = row_of(f"{'hmm ' * before}Value-77 {'well ' * after}", "value-77")
    assert "Value-77" in (row["got"], row.get("end", ""))[0] + row.get("end", "")


def test_all_places_are_told_where_there_are_several() -> None:
    assert row_of("x", "a", "b", depths=(0.1, 0.9))["depths"] == [0.1, 0.9]
    assert "depths" not in row_of("x", "a", depths=(0.1,))


def test_every_case_has_its_share_of_a_small_budget() -> None:
    options = options_of(samples=40)
    cases = cases_of(options)
    results = {case.id: result_of(case, LENGTHS, ("wrong " * 80, "<&>" * 200), paired=True) for case in cases}
    found = samples_of(cases, results, budget_bytes=400_000)
    assert len(embedded(found.rows)) <= 400_000 + 200
    assert len(embedded(found.rows)) > 350_000
    shown = {(row["task"], row["length"]) for row in found.rows}
    assert shown == {(case.task, case.length) for case in cases}
    outcomes = [outcome for result in results.values() for outcome in result.outcomes]
    assert found.all == len(outcomes) == len(cases) * 40
    assert found.wrong == sum(outcome.score.value < 1 for outcome in outcomes)
    assert found.wrong_shown == sum(row["score"] < 100 for row in found.rows) < found.wrong
    assert found.left_out == found.wrong - found.wrong_shown


def test_without_need_nothing_wrong_is_left_out_and_few_are_right() -> None:
    run = finished(samples=12, paired=True)
    found = details(run).samples
    assert found.left_out == 0
    assert found.flipped_shown == found.flipped > 0
    for case in run.judge.measured.scope.cases:
        rows = [row for row in found.rows if (row["task"], row["length"]) == (case.task, case.length)]
        assert sum(row["score"] == 100 and "flip" not in row for row in rows) <= RIGHT_PER_CASE
        assert sum("excerpt" in row for row in rows) <= EXCERPTS_PER_CASE + RIGHT_PER_CASE


def test_the_page_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(samples=20, suite="ruler")
    few = samples_of(run.run.cases, run.judge.measured.results, budget_bytes=60_000)
    text = page(document(run), replace(details(run), samples=few))
    assert f"{few.left_out:,} wrong ones were left out to keep it small" in text
    assert few.left_out > 0


def test_the_largest_run_has_a_page_below_eight_megabytes() -> None:
    """All wrong, with long answers that take six bytes a sign: the samples' budget is full."""
    options = options_of(samples=40, lengths=tuple(1024 * 2**at for at in range(8)))
    cases = cases_of(options)
    longest = next(case for case in cases if (case.task, case.length) == ("cwe", options.lengths[-1]))
    one = result_of(longest, options.lengths, ("\u4e2d<" * 300,), paired=False)
    wrong = tuple(outcome for outcome in one.outcomes if outcome.score.value < 1)
    results = {case.id: replace(one, case=case, outcomes=wrong) for case in cases}
    found = samples_of(cases, results)
    assert len(cases) == 34 * 8
    run = finished(samples=2, lengths=options.lengths, paired=True)
    text = page(document(run), replace(details(run), samples=found))
    assert len(embedded(found.rows)) > 4_000_000
    assert len(text.encode()) < 8_000_000


@pytest.mark.parametrize(
    ("changed", "word"),
    [({}, "fail"), ({"claimed": 4096}, "pass")],
)
def test_the_headline_follows_the_exit_code(changed: dict[str, Any], word: str) -> None:
    run = finished(samples=20, suite="ruler", lengths=(4096,) if changed else LENGTHS)
    assert headline(document(run), details(run))["word"] == word
    assert f'<p class="verdict {word}">' in page_of(run)


def test_the_headline_names_the_gates_that_decided_it() -> None:
    run = finished(samples=20, suite="ruler")
    found = headline(document(run), details(run))
    (gate,) = [gate for gate in document(run)["gates"] if gate["blocking"]]
    assert found["because"] == [("effective length", gate["reason"])]
    head = page_of(run).partition("</header>")[0]
    assert html.escape(gate["reason"]) in head
    passing = finished(samples=20, suite="ruler", lengths=(4096,))
    assert headline(document(passing), details(passing))["because"] == []


def test_of_many_deciding_gates_the_headline_names_a_few_and_counts_the_rest() -> None:
    run = finished(samples=2, paired=True)
    found = details(run)
    names = tuple(gate["name"] for gate in document(run)["gates"] if gate["blocking"])
    told = headline(document(run), replace(found, failing=names))
    assert len(told["because"]) + told["more"] == len(names) > len(told["because"]) == 4
    assert f"and {told['more']} more</a>" in page(document(run), replace(found, failing=names))


def test_every_kind_of_failure_has_its_place_and_colour() -> None:
    run = finished(samples=60, suite="ruler", lengths=(4096, 131072))
    found = document(run)
    seen = {kind for case in found["cases"] for kind in case["failures"]}
    assert seen == set(get_args(FailureKind))
    for each in failures(found):
        assert sum(each["counts"].values()) == each["total"]
        assert sum(width for _, _, width in each["parts"]) == pytest.approx(300, abs=0.1)
    text = page_of(run)
    style = next(content for kind, content in read(text).raw if kind == "style")
    for kind in seen:
        name = f"k-{kind.replace(' ', '-')}"
        assert f'<rect class="{name}"' in text
        assert f".{name}{{fill:" in style


def test_charts_side_by_side_have_one_scale() -> None:
    run = finished(samples=20, suite="ruler")
    drawn = score_charts(document(run), details(run))
    assert len(drawn) == 5
    assert len({chart.line.ticks_y for chart in drawn}) == 1
    assert (floor_of([99.0, None, 53.0]), floor_of([99.0, 51.0]), floor_of([None])) == (50, 0, 0)


def test_a_case_that_was_hardly_seen_is_marked_as_in_the_terminal() -> None:
    run = finished(samples=200, suite="ruler", lengths=(4096,), most=60, full=False)
    rough = [case for case in document(run)["cases"] if 0 < case["samples"] < 10]
    assert rough
    assert page_of(run).count(" rough") == len(rough) == markdown(document(run), holds=True).count("| \\~")
    assert "~ is from fewer than 10 samples" in page_of(run)
    assert "~ is from" not in page_of(finished(samples=20, suite="ruler", lengths=(4096,)))


def test_an_error_is_told_and_fails() -> None:
    whole = finished(samples=4, suite="ruler", lengths=(4096,))
    results = dict(whole.judge.measured.results)
    broken = next(iter(results))
    results[broken] = CaseResult(case=results[broken].case, outcomes=(), seconds=0.0, error="<b>out of memory</b>")
    run = finished(samples=4, suite="ruler", lengths=(4096,), results=results)
    found = headline(document(run), details(run))
    assert found["word"] == "fail"
    assert "1 case without a score" in found["said"]
    assert html.escape("<b>out of memory</b>") in page_of(run)


LEVEL = Gate(
    name="level", kind="level", aspect=None, category=None, tasks=(), above=70.0, blocking=True, lengths=(),
    at_least=None, rising=False,
)  # fmt: skip


@pytest.mark.parametrize("share", [0.95, 0.4])
def test_evidence_reaches_its_bar_where_the_verdict_was_reached(share: float) -> None:
    scope = scope_of(MANY)
    found = judge_of(thresholds(LEVEL), scope, dict.fromkeys(scope.lengths, share))
    verdicts = {verdict.name: verdict for verdict in found.verdicts()}
    drawn = curves(found)
    assert drawn.keys() == verdicts.keys()
    for name, (curve,) in drawn.items():
        assert curve.decided == verdicts[name].samples == curve.seen[-1] < curve.of
        winner, loser = (curve.above, curve.below) if share > 0.7 else (curve.below, curve.above)
        assert winner[-1] >= curve.bar - 0.01 > loser[-1]
        assert not curve.exact


def test_evidence_of_a_comparison_reaches_its_bar() -> None:
    run = finished(samples=200, suite="ruler", lengths=(4096,), paired=True)
    (curve,) = curves(run.judge)["regression at 4k"]
    (verdict,) = [each for each in run.verdicts if each.kind == "regression"]
    assert (curve.decided is None) == (verdict.verdict == "inconclusive")
    assert curve.of == 200 * 13


def test_a_run_that_ended_early_shows_how_sure_it_is() -> None:
    run = finished(samples=200, suite="ruler", lengths=(4096, 32768), most=400, full=False)
    text = page_of(run)
    assert 'class="band"' in text
    assert "of a full run" in text
    low, high = document(run)["ruler"]["intervals"]["32768"]
    assert high - low > 1
    assert f"{low:.1f} to {high:.1f}" in text
    assert re.search(r"decided at \d+ of 2,600", text)
    assert '<span class="word fail">' in text


def test_a_run_of_single_samples_has_a_page() -> None:
    """A task alone in its panel has one piece of evidence, which is all of it."""
    run = finished(samples=1, suite="ruler", lengths=(4096,))
    drawn = curves(run.judge)
    assert "tracing at 4k" not in drawn
    assert len(drawn["mean at 4k"]) == 1
    assert "tracing" in page_of(run)


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=30))
def test_marks_stay_within_the_chart(scores: list[float | None]) -> None:
    labels = [str(at) for at in range(len(scores))]
    drawn = line(labels, scores, [None if each is None else (each, each) for each in scores], threshold=50.0)
    assert len(drawn.points) == sum(score is not None for score in scores)
    assert all(0 <= point.x <= 360 and 20 <= point.y <= 190 for point in drawn.points)
    known = [
        (point.y, score)
        for point, score in zip(drawn.points, [score for score in scores if score is not None], strict=True)
    ]
    assert sorted(known, key=lambda each: (each[1], -each[0])) == sorted(known, key=lambda each: (-each[0], each[1]))


def test_numbers_are_readable_on_every_colour() -> None:
    """WCAG's 4.5 to 1, and steps that grow lighter one after the other."""
    rules = re.findall(r"\.s(\d+)\{background:#(\w{6});color:#(\w+)\}", shade_rules())
    assert [int(step) for step, _, _ in rules] == list(range(SHADES + 1))
    lights = []
    for _, background, ink in rules:
        channels = [int(background[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert (1.05 / (light + 0.05) if ink == "fff" else (light + 0.05) / 0.05) >= 4.5
        lights.append(light)
    assert lights == sorted(lights)
    assert (shade(0), shade(99.9), shade(100)) == (0, SHADES - 1, SHADES)
    assert [difference_class(points) for points in (0, -0.4, -3, 12, -50)] == ["d0", "d0", "w2", "b4", "w5"]


def sample(context: str, references: tuple[str, ...], depths: tuple[float, ...]) -> Sample:
    text = f"Read this.\n{context}\nWhat is the value of k?\nAnswer:"
    return Sample(
        task="t", length=1024, index=0, seed=0, source="archive", context=context, question="k",
        answer_prefix="Answer:", references=references, depths=depths, rank=None, distractors=(),
        prompt=Prompt(text=text, token_ids=(), length_tokens=0, generation_tokens=1),
    )  # fmt: skip


def test_an_excerpt_holds_the_needle_that_was_asked_for_and_not_its_double() -> None:
    filler = "All work and no play. " * 2000
    context = f"The value is 77 early. {filler}The value is 77 late. {filler}End."
    depth = context.index("77 late") / len(context)
    found = excerpt_of(sample(context, ("77",), (depth,)))
    assert found.question == "What is the value of k?\nAnswer:"
    assert (found.needle, found.after[:5]) == ("77", " late")
    assert found.before.endswith("The value is ")
    assert (found.head, found.tail) == (context[:160], context[-160:])


@pytest.mark.parametrize(("references", "depths"), [((), ()), (("gone",), (0.5,)), (("x",), ())])
def test_an_excerpt_without_a_place_has_no_needle(references: tuple[str, ...], depths: tuple[float, ...]) -> None:
    found = excerpt_of(sample("one x two", references, depths))
    assert (found.before, found.needle, found.after) == ("", "", "")
    assert found.head == "one x two"
