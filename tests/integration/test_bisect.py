"""`longctx bisect` from its command line to its files: results, messages and exit codes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from longctx.ci.bisect import __main__ as bisect
from longctx.ci.bisect import compare
from tests.helpers.checkpoint_chains import CASE, SAMPLES, Chain
from tests.helpers.pages import tables_of

Search = Callable[..., str]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Search:
    """Return a function that searches a chain, and returns what is printed. It ends with this exit code."""

    def run_search(chain: Chain, *more: str, code: int = 0) -> str:
        monkeypatch.setattr(compare, "run_suite", chain.run_suite)
        last = len(chain.solved) - 1
        ends = ["--good", f"{chain.folder}/step-0", "--bad", f"{chain.folder}/step-{last}"]
        rest = ["--checkpoints", f"{chain.folder}/step-*", "--out", f"{chain.folder}/out", "--samples", str(SAMPLES)]
        assert bisect.main([*ends, *rest, *more]) == code
        printed = capsys.readouterr()
        return printed.err or printed.out

    return run_search


def test_the_first_bad_step_is_named_with_the_last_good(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 9 + [65] * 7)
    lines = search(chain).splitlines()
    assert lines[0] == "16 checkpoints from step-0 (good) to step-15 (bad)"
    ends = f"endpoints  {CASE.id}: 94.9 to 69.2, -25.6 [-50.6, -1.0] over 39 pairs"
    assert lines[1] == ends
    assert "first bad step 9 (last good 8), 99.9 %" in lines
    assert any(line.startswith("between them -") and line.endswith("of -25.6 between the endpoints") for line in lines)
    assert not any("perhaps two losses" in line or "not monotone" in line for line in lines)
    written = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert (written["first_bad"], written["last_good"], written["monotone"]) == (9, 8, True)
    steps = [step["step"] for step in written["steps"]]
    assert steps[0] == 7
    assert (written["probability"], written["range"]) == (0.999, None)
    assert written["most_likely"] == 9
    assert all(step["bad_probability"] > 0.99 or step["bad_probability"] < 0.01 for step in written["steps"])
    assert f"not measured: {14 - len(steps)} of 16 steps; a dip among them goes unnoticed" in lines
    flips = {(flip["expected"][0], flip["answer_after"]) for flip in written["flips"]}
    assert flips == {("4711", "said by step-9")}
    assert 5 <= len(written["flips"]) <= 30
    page = (tmp_path / "out" / "bisect.html").read_text(encoding="utf-8")
    tables = tables_of(page)
    assert len(re.findall(r'class="mark( fail)?"', page)) == len(steps) + 2
    assert "The loss begins at step 9" in page
    marked = {row[0] for row in tables["steps"][1:] if "good" in row[0] or "bad" in row[0]}
    assert marked == {"8 last good", "9 first bad"}
    assert len(tables["flips"]) - 1 == len(written["flips"])


def test_the_results_of_converted_checkpoints_tell(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 9 + [65] * 7, raw=True)
    output = search(chain, "--convert", "convert {checkpoint} {out}")
    written = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert written["first_bad"] == 9
    assert written["flips"]
    assert "first bad step 9 (last good 8), 99.9 %" in output


def test_several_steps_at_a_time_name_the_same_step(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 9 + [65] * 7)
    lines = search(chain, "--parallel", "3").splitlines()
    assert "searching  14 steps between them, about 6 to measure" in lines
    assert "first bad step 9 (last good 8), 99.9 %" in lines
    steps = [step["step"] for step in json.loads((tmp_path / "out" / "bisect.json").read_text())["steps"]]
    assert sorted(steps[:3]) == [4, 7, 11]
    # Three runs share each of the two comparisons of the endpoints through the journal.
    assert chain.measured[:7].count("step-15") == 6


def test_a_dip_is_distinguished_from_the_permanent_loss(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 7 + [60] * 3 + [95] * 4 + [60] * 3)
    output = search(chain, "--parallel", "3")
    assert "first bad step 14 (last good 13), 99.9 %" in output
    assert "not monotone: bad from 8 on (good at 4), good again at 12" in output
    assert json.loads((tmp_path / "out" / "bisect.json").read_text())["monotone"] is False


@pytest.mark.parametrize(
    ("solved", "edge", "drop"),
    [([95] * 4 + [80] * 6 + [45] * 6, (10, 9), (0, 9)), ([95] * 4 + [60] * 6 + [45] * 6, (4, 3), (4, 15))],
    ids=["before the edge", "behind the edge"],
)
def test_a_second_drop_is_reported_with_the_options_that_find_it(
    solved: list[int], edge: tuple[int, int], drop: tuple[int, int], tmp_path: Path, search: Search
) -> None:
    chain = Chain(tmp_path, solved)
    output = search(chain)
    assert f"first bad step {edge[0]} (last good {edge[1]}), 99." in output
    assert f"perhaps two losses: another one from step {drop[0]} to {drop[1]}, " in output, output
    assert f"; search it with --good {tmp_path}/step-{drop[0]} --bad {tmp_path}/step-{drop[1]}" in output


def test_a_broken_checkpoint_is_skipped_with_the_reason(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 5 + [60] * 12, broken=[8])
    output = search(chain)
    assert "first bad step 5 (last good 4), 99.9 %" in output
    assert f"skipped step 8: {tmp_path}/step-8: no weights" in output
    assert "step-8" not in chain.measured


def test_a_broken_checkpoint_at_the_edge_is_named_as_a_candidate(tmp_path: Path, search: Search) -> None:
    chain = Chain(tmp_path, [95] * 5 + [60] * 4, broken=[5])
    line = "first bad step 6, or one of the skipped steps before it: 5 (last good 4), 99.9 %"
    assert line in search(chain, code=2)


@pytest.mark.parametrize(
    ("first", "last", "line"),
    [
        (95, 95, "--bad step-3 is not shown to be worse than --good step-0"),
        (95, 94, "--bad step-3 is not shown to be worse than --good step-0"),
        (3, 2, "--good step-0 is no better than --bad step-3"),
        (40, 95, "--bad step-3 is better than --good step-0"),
    ],
)
def test_endpoints_without_a_loss_end_the_search(
    first: int, last: int, line: str, tmp_path: Path, search: Search
) -> None:
    chain = Chain(tmp_path, [first, first, last, last])
    errors = search(chain, code=1)
    assert line in errors
    assert errors.count("\n") == 1
    assert set(chain.measured) == {"step-3"}


def test_a_gate_is_searched_on_the_mean_of_its_cases(tmp_path: Path, search: Search) -> None:
    gates = tmp_path / "gates.toml"
    gates.write_text('[[gate]]\nname = "needles"\nkind = "level"\ntasks = ["niah_single_2"]\nabove = 85\n')
    (tmp_path / "run").mkdir()
    chain = Chain(tmp_path / "run", [95, 95, 60, 60])
    assert "first bad step 2 (last good 1)" in search(chain, "--gate", "needles", "--thresholds", str(gates))
    assert f"--gate: no gate 'neddles' in {gates}; known gates: needles" in search(
        chain, "--gate", "neddles", "--thresholds", str(gates), code=4
    )


@pytest.mark.parametrize(
    ("bad", "among", "line"),
    [("last", "step-*", "last has no clear step in its name"), ("step-5", "*-*", "step-1 is step 1 like ")],
)
def test_steps_that_are_not_clear_are_refused(
    bad: str, among: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("step-0", "step-1", "step-5", "checkpoint-1", "last"):
        (tmp_path / name).mkdir()
    ends = ["--good", f"{tmp_path}/step-0", "--bad", f"{tmp_path}/{bad}"]
    assert bisect.main([*ends, "--checkpoints", f"{tmp_path}/{among}"]) == 4
    assert line in capsys.readouterr().err
