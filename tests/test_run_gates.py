"""Gates at work: which checkpoint passes, what fails the run, and what a narrowed run can still say."""

from __future__ import annotations

import pytest
from runs import NEEDLES, ONLY_NEEDLES, Finished, finished_run

GATES = """
[[gate]]
name = "reach"
kind = "effective_length"
tasks = {tasks}
above = 85.6
at_least = "{at_least}"

[[gate]]
name = "needles"
kind = "level"
tasks = {tasks}
above = 99
blocking = false

[[gate]]
name = "suite"
kind = "level"
above = "reference"
"""
WINDOW = "512"
LENGTHS = ("512", "1k")


def gated_run(factory: pytest.TempPathFactory, at_least: str, *arguments: str) -> Finished:
    """The six needle tasks with a checkpoint that reaches 512 tokens, measured at that length and twice as far."""
    thresholds = GATES.format(tasks=list(NEEDLES), at_least=at_least)
    model = ("--model", f"calibration:{WINDOW}", "--lengths", ",".join(LENGTHS))
    return finished_run(factory, *model, *ONLY_NEEDLES, *arguments, thresholds=thresholds)


@pytest.fixture(scope="module")
def enough(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Asks for what the checkpoint reaches; in one process."""
    return gated_run(tmp_path_factory, WINDOW, "--samples", "1", "-n", "0")


@pytest.fixture(scope="module")
def too_little(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Asks for twice of what it reaches; with two workers and more samples."""
    return gated_run(tmp_path_factory, "1k", "--samples", "2", "-n", "2")


def test_a_checkpoint_that_reaches_what_is_asked_passes(enough: Finished) -> None:
    assert enough.code == 0
    reach = enough.gates["reach"]
    assert (reach["verdict"], reach["measured"], reach["required"]) == ("pass", 512, 512)


def test_a_checkpoint_that_does_not_reach_it_fails_the_run(too_little: Finished) -> None:
    assert too_little.code == 1
    reach = too_little.gates["reach"]
    assert (reach["verdict"], reach["measured"], reach["required"]) == ("fail", 512, 1024)


def test_a_gate_that_does_not_block_fails_without_failing_the_run(enough: Finished) -> None:
    assert enough.gates["needles at 512"]["verdict"] == "pass"
    beyond = enough.gates["needles at 1k"]
    assert (beyond["verdict"], beyond["blocking"]) == ("fail", False)
    assert enough.code == 0


def test_a_narrowed_run_says_what_it_did_not_measure(enough: Finished) -> None:
    for length in LENGTHS:
        suite = enough.gates[f"suite at {length}"]
        assert (suite["verdict"], suite["measured"], suite["blocking"]) == ("not measured", None, True)
        assert "not run at" in suite["reason"]
    assert enough.report["run"]["partial"] is True
    assert enough.report["ruler"]["effective_length"] is None


def test_gates_are_counted_as_tests(enough: Finished, too_little: Finished) -> None:
    cases = len(NEEDLES) * len(LENGTHS)
    # reach and needles at 512 pass; needles at 1k is only reported; both of suite are not measured.
    assert enough.counts == {"passed": cases + 2, "skipped": 2, "xfailed": 1, "deselected": 14}
    # xdist deselects in its workers and does not count.
    assert too_little.counts == {"passed": cases + 1, "failed": 1, "skipped": 2, "xfailed": 1}


@pytest.mark.parametrize("run", ["enough", "too_little"])
def test_each_gate_is_a_test_of_the_junit_file(run: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(run)
    assert len(finished.junit) == len(NEEDLES) * len(LENGTHS) + len(finished.gates)
    for name, gate in finished.gates.items():
        told = finished.junit[f"gate[{name}]"]
        outcomes = [child.tag for child in told if child.tag != "properties"]
        wanted = {"pass": [], "not measured": ["skipped"], "fail": ["failure" if gate["blocking"] else "skipped"]}
        assert outcomes == wanted[gate["verdict"]]


@pytest.mark.parametrize("run", ["enough", "too_little"])
def test_a_gates_facts_are_properties_of_its_junit_test(run: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(run)
    for name, gate in finished.gates.items():
        told = {each.get("name"): each.get("value") for each in finished.junit[f"gate[{name}]"].iter("property")}
        assert told["verdict"] == gate["verdict"]
        assert float(told["required"] or "nan") == gate["required"]


def test_a_failing_gate_says_in_one_line_what_was_asked(too_little: Finished) -> None:
    failure = too_little.junit["gate[reach]"].find("failure")
    assert failure is not None
    assert failure.text == "reach: fail: 512 above 85.6, asks for 1024"
    assert too_little.output.count("Traceback") == 0


def test_what_was_run_counts_the_planned_samples(too_little: Finished) -> None:
    reach = too_little.gates["reach"]
    assert (reach["samples"], reach["of"]) == (24, 24)


def test_workers_and_more_samples_change_no_answer(enough: Finished, too_little: Finished) -> None:
    """A sample depends on its task, length and index alone: not on the process, nor on how many there are."""
    alone, together = enough.results, too_little.results
    assert alone.keys() == together.keys()
    for name, result in alone.items():
        shared = together[name].outcomes[: len(result.outcomes)]
        told = [
            (each.index, each.score, each.generation.text, each.references, each.depths) for each in result.outcomes
        ]
        assert told == [(each.index, each.score, each.generation.text, each.references, each.depths) for each in shared]
    failures = [outcome.score.failure for result in alone.values() for outcome in result.outcomes]
    assert 0 < failures.count(None) < len(failures)
