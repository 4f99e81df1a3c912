"""`longctx watch`: every checkpoint is measured once, failures are delivered, and restarts lose nothing."""

import errno
import html
import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from longctx.ci.suite_process import SuiteRun
from longctx.ci.watch import __main__ as watch
from longctx.ci.watch import measure
from tests.helpers.checkpoints import CONFIG, write_step, write_steps
from tests.helpers.fake_suite import FakeSuite

Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that watches the folder `run` until everything is measured."""

    def run_watch(suite: FakeSuite, *more: str) -> int:
        monkeypatch.setattr(measure, "run_suite", suite)
        monkeypatch.setattr(watch, "check_suite_options", lambda *_: None)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        fixed = ["--every", "0.01s", "--once", "--out", str(tmp_path / "out")]
        return watch.main([str(tmp_path / "run"), *fixed, *more])

    return run_watch


def events(folder: Path) -> list[dict[str, Any]]:
    """Return what happened to checkpoints."""
    lines = [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "measured"]


def test_a_step_is_compared_with_the_last_good_one_only_if_that_is_better_than_the_anchor(
    tmp_path: Path, start: Start
) -> None:
    write_steps(tmp_path / "run", 1, 2, 3, 4, 5)
    # The allowed loss is 2 points.
    suite = FakeSuite(failing=[4], scores={1: 80.0, 2: 81.9, 3: 82.0, 4: 82.0, 5: 81.0})
    assert start(suite) == 1
    # A step that fails against the anchor is not compared with the last good one.
    assert suite.runs == [(1, None), (2, "1"), (3, "1"), (4, "1"), (5, "1"), (5, "3")]
    # The comparisons of each of 100 checkpoints share its probability of error, and the last good step was chosen from
    # four.
    assert suite.series == ["100", "200", "200", "400", "400", "1600"]
    # Nothing is known of a step that was compared with another anchor.
    named = FakeSuite()
    write_steps(tmp_path / "run", 6, 7)
    assert start(named, "--anchor", "2") == 1
    assert named.runs == [(6, "2"), (6, "5"), (7, "2")]


def test_the_anchor_is_the_lowest_step_that_passed_whenever_it_was_measured(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 1000)
    first = FakeSuite()
    assert start(first) == 0
    write_steps(tmp_path / "run", 500, 1500, 250)
    suite = FakeSuite(failing=[250])
    assert start(suite) == 1
    # The last good step was compared with no anchor.
    assert suite.runs == [(250, None), (500, None), (1500, "500"), (1500, "1000")]
    write_step(tmp_path / "run", 2000)
    last = FakeSuite()
    assert start(last) == 1
    assert last.runs == [(2000, "500")]


def test_a_seed_for_every_step_compares_on_new_samples(tmp_path: Path, start: Start) -> None:
    """A report knows answers to other samples only, so the checkpoints themselves are compared."""
    write_steps(tmp_path / "run", 1, 2)
    suite = FakeSuite()
    assert start(suite, "--seed", "step", "--lengths", "4k") == 0
    assert suite.seeds == ["1", "2"]
    assert suite.baselines == [None, str(tmp_path / "run" / "step-1")]
    shutil.rmtree(tmp_path / "run" / "step-1")
    write_step(tmp_path / "run", 3)
    assert start(suite, "--seed", "step") == 1
    assert suite.baselines[2:] == [str(tmp_path / "run" / "step-2")]
    last = [line for line in events(tmp_path) if line["lost"] is None][-1]
    assert (last["step"], last["word"]) == (3, "error")
    assert "the anchor, step 1, is gone" in last["failed"][0]


def test_a_suspected_loss_takes_more_samples_until_it_is_shown_or_refuted(
    tmp_path: Path, start: Start, capsys: Any
) -> None:
    write_steps(tmp_path / "run", 1, 2, 3, 4)
    lost = "not shown"
    suite = FakeSuite(suspected={2: [lost, "pass"], 3: [lost, lost, lost], 4: [lost, lost, "fail"]})
    assert start(suite) == 1
    # Half of the probability of error of a checkpoint belongs to its first look.
    looks = [(None, "200"), ("200", "400"), ("400", "400")]
    assert suite.asked == [
        (1, None, "100"), *((2, *look) for look in looks[:2]), *((3, *look) for look in looks),
        *((4, *look) for look in looks),
    ]  # fmt: skip
    lines = events(tmp_path)
    assert [(line["step"], line["word"], line["suspected"], line["most_samples"]) for line in lines] == [
        (1, "pass", False, None), (2, "pass", False, 200), (3, "undecided", True, 400), (4, "fail", False, 400)
    ]  # fmt: skip
    assert Path(lines[3]["report"]).parent == tmp_path / "out" / "samples-400"
    printed = capsys.readouterr().out
    assert "step 3: undecided: a loss is suspected, but not shown" in printed
    assert "measured on up to 400 samples of each case, because a loss was suspected" in printed
    page = (tmp_path / "out" / "index.html").read_text()
    assert "a loss is suspected, but not shown" in page
    assert re.findall(r'href="([^"]*)">on fewer samples', page) == [
        f"{name}.html" for name in (Path(line["report"]).stem for line in reversed(lines)) if "step-1-" not in name
    ]


def test_a_suspected_loss_takes_no_more_samples_where_they_would_tell_nothing(tmp_path: Path, start: Start) -> None:
    write_steps(tmp_path / "run", 1, 2, 3)
    lost = "not shown"
    # All questions of the case are planned already.
    short = FakeSuite(suspected={2: [lost], 3: ["fail"]}, most_samples=60)
    assert start(short) == 1
    # An alert is open for the case, so its later losses are no news; and the anchor's checkpoint is gone.
    known, gone = FakeSuite(suspected={4: [lost]}), FakeSuite(suspected={5: [lost]})
    write_step(tmp_path / "run", 4)
    start(known)
    shutil.rmtree(tmp_path / "run" / "step-1")
    for step in (2, 3, 4):
        shutil.rmtree(tmp_path / "run" / f"step-{step}")
    write_step(tmp_path / "run", 5)
    start(gone, "--out", str(tmp_path / "out"))
    off = FakeSuite(suspected={6: [lost]})
    write_step(tmp_path / "run", 6)
    start(off, "--doublings", "0")
    for suite in (short, known, gone, off):
        assert [samples for _, samples, _ in suite.asked] == [None] * len(suite.asked)
    suspected = [line["suspected"] for line in events(tmp_path) if line["lost"] is None]
    assert suspected == [False, True, False, True, True, True]


def test_a_look_at_more_samples_that_fails_takes_nothing_back(tmp_path: Path, start: Start) -> None:
    write_steps(tmp_path / "run", 1, 2)
    assert start(FakeSuite(suspected={2: ["not shown", "short baseline"]})) == 0
    (_, line) = events(tmp_path)
    assert (line["word"], line["suspected"], line["most_samples"]) == ("undecided", True, None)
    assert line["failed"][1].startswith("not measured on 200 samples of each case: ")


def test_a_checkpoint_whose_engine_fails_a_property_is_not_measured(tmp_path: Path, start: Start, capsys: Any) -> None:
    write_steps(tmp_path / "run", 1, 2, 3)
    suite = FakeSuite(forgetful=[2])
    assert start(suite, "--invariance") == 1
    assert suite.checked == [1, 2, 3]
    assert suite.runs == [(1, None), (3, "1")]
    line = (
        "invariance: warm: niah_single_2 of 1024 tokens, 0: token 2 of the answer: logits differ by 0.5:"
        " ' 17' instead of ' 12'"
    )
    second = next(event for event in events(tmp_path) if event.get("step") == 2)
    assert (second["word"], second["failed"]) == ("fail", [line])
    assert Path(second["report"]).parent == tmp_path / "out" / "invariance"
    assert line in " ".join(capsys.readouterr().out.split())
    assert line in html.unescape((tmp_path / "out" / "index.html").read_text())


def test_scores_are_printed_with_their_changes_and_the_index_links_every_page(
    tmp_path: Path, start: Start, capsys: Any
) -> None:
    write_steps(tmp_path / "run", 1, 2)
    assert start(FakeSuite(scores={1: 90.0, 2: 91.5}, samples={1: 38, 2: 500})) == 0
    output = capsys.readouterr().out
    assert "    ruler 8k: 90.0 on 38 samples\n" in output
    assert "    ruler 8k: 91.5 on 500 samples; +1.5 against the anchor on 38 pairs\n" in output
    assert "2 checkpoints: 2 pass" in output
    measured = events(tmp_path)[1]
    assert measured["panels"] == {"ruler 8k": {"score": 91.5, "samples": 500, "points": 1.5, "pairs": 38}}
    index = (tmp_path / "out" / "index.html").read_text()
    for page in (tmp_path / "out").glob("step-*.html"):
        assert page.name in index


@pytest.mark.parametrize(("first", "then"), [("bad", "good"), ("good", "bad")])
def test_the_newest_checkpoint_of_a_directory_counts(first: str, then: str, tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 1)
    place = write_step(tmp_path / "run", 2)
    assert start(FakeSuite(failing=[2] if first == "bad" else [])) == (first == "bad")
    (place / "config.json").write_text(json.dumps(CONFIG | {"rewritten": True}))
    again = FakeSuite(failing=[2] if then == "bad" else [])
    assert start(again) == (then == "bad")
    assert again.runs == [(2, "1")]
    words = ["fail" if word == "bad" else "pass" for word in (first, then)]
    assert [(line["step"], line["word"], line["lost"]) for line in events(tmp_path)][2:] == [
        (2, words[0], "replaced"), (2, words[1], None)
    ]  # fmt: skip
    _, _, rows = (tmp_path / "out" / "index.html").read_text().partition('id="checkpoints"')
    assert rows.count('<th scope="row">2</th>') == 1
    nothing = FakeSuite()
    assert (start(nothing), nothing.runs) == (int(then == "bad"), [])


def test_a_failure_whose_checkpoint_is_gone_fails_and_notifies_no_more(
    tmp_path: Path, start: Start, capsys: Any
) -> None:
    write_steps(tmp_path / "run", 1, 2)
    log = tmp_path / "log"
    assert start(FakeSuite(failing=[2]), "--on-failure", f"echo $LONGCTX_STEP >> {log}; exit 1") == 1
    assert log.read_text() == "2\n"
    shutil.rmtree(tmp_path / "run" / "step-2")
    capsys.readouterr()
    assert start(FakeSuite(), "--on-failure", f"echo $LONGCTX_STEP >> {log}") == 0
    assert log.read_text() == "2\n"
    output = capsys.readouterr().out
    assert output.count(f"step 2: deleted: {tmp_path}/run/step-2\n") == 1
    assert "2 checkpoints: 1 pass, 1 gone" in output
    assert events(tmp_path)[-1] == events(tmp_path)[1] | {"lost": "deleted"}
    page = html.unescape((tmp_path / "out" / "index.html").read_text())
    assert "deleted since it was measured<br>mean at 8k: fail: 70.1 is not" in page
    # It comes back, and is measured again.
    write_step(tmp_path / "run", 2)
    assert start(FakeSuite(failing=[2]), "--on-failure", f"echo $LONGCTX_STEP again >> {log}") == 1
    assert log.read_text() == "2\n2 again\n"


class LosingSuite(FakeSuite):
    """A fake of the suite during whose runs of step 2 a checkpoint is lost."""

    def __init__(self, checkpoint: Path, lose: Callable[[Path], object], **more: Any):
        super().__init__(**more)
        self.checkpoint, self.lose = checkpoint, lose

    def __call__(self, arguments: Sequence[str], **more: Any) -> SuiteRun:
        result = super().__call__(arguments, **more)
        if self.runs[-1][0] == 2 and self.checkpoint.is_dir():
            self.lose(self.checkpoint)
        return result


@pytest.mark.parametrize(
    ("lose", "word"),
    [
        (shutil.rmtree, "deleted"),
        (lambda place: (place / "tokenizer.json").unlink(), "incomplete"),
        (lambda place: (place / "config.json").write_text(json.dumps(CONFIG | {"step": 9})), "replaced"),
    ],
    ids=["deleted", "incomplete", "replaced"],
)
@pytest.mark.parametrize("ended", ["broken", "failing", "passing"])
def test_a_checkpoint_that_is_lost_while_it_is_measured_is_gone_whatever_the_run_says(
    ended: str, lose: Callable[[Path], object], word: str, tmp_path: Path, start: Start, capsys: Any
) -> None:
    write_steps(tmp_path / "run", 1, 2)
    of_step_2 = {} if ended == "passing" else {ended: [2]}
    suite = LosingSuite(tmp_path / "run" / "step-2", lose, **of_step_2)
    log = tmp_path / "log"
    # The checkpoint that replaced it is measured too, and still fails.
    code = int(word == "replaced" and ended != "passing")
    assert start(suite, "--on-failure", f"echo $LONGCTX_VERDICT >> {log}") == code
    assert log.exists() == bool(code)
    second = [line for line in events(tmp_path) if line.get("step") == 2]
    if ended == "passing":
        assert [(line["word"], line["lost"]) for line in second[:2]] == [("pass", None), ("pass", word)]
    else:
        assert (second[0]["word"], second[0]["lost"]) == ("not measured", word)
        assert second[0]["failed"][0] == f"{word} while it was measured"
        assert ("8kb" in str(second[0])) is False
    assert len(second) == {"replaced": 2 + (ended == "passing")}.get(word, 1 + (ended == "passing"))
    assert word in capsys.readouterr().out


def test_several_checkpoints_are_measured_at_a_time_once_there_is_an_anchor(tmp_path: Path, start: Start) -> None:
    """Let each of three runs wait until all three have started; the run of the anchor is alone."""
    write_steps(tmp_path / "run", 1, 2, 3, 4)
    barrier = threading.Barrier(3)

    class WaitingSuite(FakeSuite):
        def __call__(self, arguments: Sequence[str], **more: Any) -> SuiteRun:
            if "--baseline" in arguments:
                barrier.wait(timeout=60)
            return super().__call__(arguments, **more)

    suite = WaitingSuite()
    assert start(suite, "--parallel", "3", "--gpus", "0,1,2,3,4,5") == 0
    assert suite.runs[0] == (1, None)
    assert sorted(suite.runs[1:]) == [(2, "1"), (3, "1"), (4, "1")]
    gpus = [environment["CUDA_VISIBLE_DEVICES"] for environment in suite.environments[1:] if environment]
    assert sorted(gpus) == ["0,3", "1,4", "2,5"]
    assert sorted(line["step"] for line in events(tmp_path)) == [1, 2, 3, 4]


def test_an_error_of_one_measurement_stops_the_others(tmp_path: Path, start: Start) -> None:
    write_steps(tmp_path / "run", 1, 2, 3)
    began = threading.Event()
    stopped: list[int] = []

    class StoppedSuite(FakeSuite):
        def __call__(self, arguments: Sequence[str], **more: Any) -> SuiteRun:
            step = int(arguments[list(arguments).index("--model") + 1].rpartition("-")[2])
            if step == 2:
                began.wait(60)
                raise OSError(errno.ENOSPC, "No space left on device")
            if step == 3:
                began.set()
                stopped.extend([step] if more["executor"].cancelled.wait(60) else [])
            return super().__call__(arguments, **more)

    with pytest.raises(OSError, match="No space left on device"):
        start(StoppedSuite(), "--parallel", "2")
    assert stopped == [3]


def test_a_watch_sleeps_for_short_times(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM just before a sleep does not end it."""
    (tmp_path / "run").mkdir()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert start(FakeSuite(), "--every", "1h") == 0
    assert slept == [1.0] * 3


def test_a_failure_after_an_error_is_notified_too(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 7)
    log = tmp_path / "log"
    facts = "$LONGCTX_EVENT $LONGCTX_STEP $LONGCTX_VERDICT $LONGCTX_FAILED"
    for suite in (FakeSuite(broken=[7]), FakeSuite(broken=[7]), FakeSuite(failing=[7]), FakeSuite()):
        assert start(suite, "--on-failure", f'echo "{facts}" >> {log}') == 1
    error, failure = log.read_text().splitlines()
    assert error.startswith("begun 7 error --lengths: unknown '8kb'")
    assert failure == "begun 7 fail mean at 8k: fail: 70.1 is not"


def test_a_command_that_failed_is_run_again_at_the_next_start(tmp_path: Path, start: Start, capsys: Any) -> None:
    write_step(tmp_path / "run", 7)
    log = tmp_path / "log"
    command = f'test -e {tmp_path}/ready && echo "$LONGCTX_HEADLINE $LONGCTX_REPORT" >> {log}'
    start(FakeSuite(failing=[7]), "--on-failure", command)
    assert " ended with code 1; it will be retried" in capsys.readouterr().out
    (tmp_path / "ready").touch()
    start(FakeSuite(), "--on-failure", command)
    start(FakeSuite(), "--on-failure", command)
    (line,) = log.read_text().splitlines()
    assert re.fullmatch(r"qa_1-8k failed at step 7 .*\.json", line)
