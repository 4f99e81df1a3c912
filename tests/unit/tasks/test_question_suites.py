"""The shipped tasks files: files in the form of every published set give the right score."""

import re
from pathlib import Path

import pytest

from longctx import tasks as longctx_tasks
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.tasks.questions.read_tasks import read_tasks, shipped_suites, tasks_path
from longctx.fixtures.versions import QUESTION_METRICS
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.paths import REPOSITORY
from tests.helpers.question_files import (
    byte_formatter,
    load_tasks_file,
    published_score,
    sample_of,
    write_tasks,
)
from tests.helpers.suite_files import write_suite

PAGE = REPOSITORY / "docs" / "suites.md"
LENGTH = 65536
SETS = {"babilong": 20, "infinitebench": 9, "longbench": 16, "longbench2": 2}
# Those that need no data.
GENERATED = ("ruler_sweeps", "twins")


def test_every_suite_is_shipped() -> None:
    assert shipped_suites() == (*SETS, *GENERATED)


@pytest.mark.parametrize("suite", SETS)
def test_right_blank_and_wrong_answers_to_every_set_get_their_scores(suite: str, tmp_path: Path) -> None:
    path = tasks_path(suite, tmp_path)
    wrong = write_suite(read_tasks(path), tmp_path, length="64k")
    tasks = load_tasks_file(path, tmp_path)
    assert len(tasks) == SETS[suite]
    for task in tasks:
        sample = sample_of(task, LENGTH)
        assert task.missing_data is not None
        assert task.missing_data(Corpora(), LENGTH) is None
        assert sample_problems(sample, task, byte_formatter()) == [], task.name
        assert task.score(sample, task.perfect_answer(sample)).value == 1, task.name
        assert task.score(sample, "").value == 0, task.name
        assert task.score(sample, wrong[task.name]).value <= 0.5, task.name
        assert published_score(task, sample, wrong[task.name]).value <= 0.5, task.name


@pytest.mark.parametrize("suite", SETS)
def test_sets_without_their_files_say_how_to_get_them(suite: str, tmp_path: Path) -> None:
    for task in load_tasks_file(tasks_path(suite, tmp_path), tmp_path):
        assert task.missing_data is not None
        reason = task.missing_data(Corpora(), 4096)
        assert reason is not None
        assert re.fullmatch(rf"{task.name}: .* is missing; longctx fetch {suite} --to DIR gets it", reason)


def test_every_set_and_every_metric_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for suite in SETS:
        for definition in read_tasks(tasks_path(suite, REPOSITORY)):
            name = definition.dataset.name
            own = name.removeprefix(f"{suite}_")
            assert f"`{own}`" in text or suite == "babilong", name
            assert definition.dataset.metric.name in QUESTION_METRICS
    pages = text + (REPOSITORY / "docs" / "own-questions.md").read_text(encoding="utf-8")
    firsts = " ".join(re.findall(r"^\| ([^|]+) \|", pages, re.MULTILINE))
    assert set(QUESTION_METRICS) - {"string_match_all"} <= set(re.findall(r"`(\w+)`", firsts))


def test_values_of_a_dollar_template_are_not_filled_again(tmp_path: Path) -> None:
    path = tasks_path("longbench2", tmp_path)
    write_suite(read_tasks(path), tmp_path)
    text = sample_of(load_tasks_file(path, tmp_path)[0], LENGTH).prompt.text
    assert text.endswith("there. $Q$\nWhat stood there?\n(A) A A lamp (B) A B lamp (C) A C lamp (D) A D lamp")


def test_the_list_of_tasks_fits_a_terminal_and_says_what_each_task_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert longctx_tasks.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert {*SETS} <= {line.partition(",")[0] for line in lines}
    assert "infinitebench_passkey" in " ".join(lines).split()
    assert [line for line in lines if line.startswith("  ") and line[2] != " " and ": " not in line] == []


def test_the_list_of_tasks_has_those_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert longctx_tasks.main(["--tasks-file", str(write_tasks(tmp_path))]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == ["  lookup", "    rooms"]
    assert longctx_tasks.main(["--tasks-file", "none.toml"]) == 4
