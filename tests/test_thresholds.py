"""thresholds.toml is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.tasks import TASKS
from plugins.gates.thresholds import SHIPPED, Thresholds, ThresholdsError, load_thresholds

LEVEL = '[[gate]]\nname = "g"\nkind = "level"\nabove = 85.6\n'
BROKEN = {
    "[[gate]\n": "is not TOML",
    "[[gate]]\nname = 'g'\nkind = 'level'\nabove = 856\n": "above is 856; write a score from 0 to 100",
    "[[gate]]\nname = 'g'\nkind = 'level'\nabove = '85'\n": "above is '85'",
    "[[gate]]\nname = 'g'\nkind = 'level'\nabove = true\n": "above is True",
    "[[gate]]\nname = 'g'\nkind = 'level'\nabove = nan\n": "above is nan",
    "[[gate]]\nname = 'g'\nkind = 'level'\n": "above is missing",
    "[[gate]]\nkind = 'level'\nabove = 1\n": "name is missing",
    "[[gate]]\nname = 'g'\nkind = 'levels'\nabove = 1\n": "kind is 'levels'; write one of level, effective_length",
    LEVEL + "treshold = 3\n": "unknown key 'treshold'; known are name, kind",
    LEVEL + "at_least = '4k'\n": "unknown key 'at_least'",
    LEVEL + "tasks = []\n": "tasks is empty",
    LEVEL + "tasks = ['niah']\n": "unknown task 'niah'; known are niah_single_1",
    LEVEL + "tasks = ['vt']\naspect = 'qa'\n": "give aspect or tasks, not both",
    LEVEL + "aspect = 'reading'\n": "aspect is 'reading'",
    LEVEL + "lengths = ['8kb']\n": "lengths has '8kb'",
    LEVEL + "lengths = '8k'\n": "lengths is '8k'; write a list",
    LEVEL + "blocking = 'no'\n": "blocking is 'no'; write true or false",
    LEVEL + LEVEL: "two gates are named 'g'",
    "[[gate]]\nname = 'g'\nkind = 'effective_length'\nabove = 85.6\n": "at_least is missing",
    "[[gate]]\nname = 'g'\nkind = 'effective_length'\nabove = 85.6\nat_least = 'all'\n": "at_least has 'all'",
    "[[gate]]\nname = 'g'\nkind = 'weighted_average'\nabove = 1\n": "weights is None; write one of rising, falling",
    "[[gate]]\nname = 'g'\nkind = 'level'\nabove = 'reference'\ntasks = ['vt']\n": "has no score for a list of tasks",
    "gate = 3\n": "write each gate as a [[gate]] table",
    "[reference.aligned]\nmean = 3\n": "must both be there",
    "[refs]\n": "unknown key 'refs'; known are reference, gate",
}


def load(tmp_path: Path, text: str) -> Thresholds:
    path = tmp_path / "t.toml"
    path.write_text(text)
    return load_thresholds(path, known_tasks=TASKS)


def test_the_shipped_file_holds_the_papers_figures() -> None:
    shipped = load_thresholds(SHIPPED, known_tasks=TASKS)
    assert shipped.references["aligned"].scores == {
        "mean": 85.6, "retrieval": 96.9, "tracing": 89.7, "aggregation": 84.8, "qa": 49.7
    }  # fmt: skip
    assert shipped.references["base"].scores == {
        "mean": 79.4, "retrieval": 90.9, "tracing": 58.8, "aggregation": 73.1, "qa": 48.6
    }  # fmt: skip
    assert [gate.name for gate in shipped.gates if gate.blocking] == ["effective length"]


@pytest.mark.parametrize("text", BROKEN, ids=BROKEN.values())
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ThresholdsError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert BROKEN[text] in message
    assert message.startswith("--thresholds: ")
    assert str(tmp_path / "t.toml") in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ThresholdsError, match=r"cannot read .*nowhere.toml \(No such file"):
        load_thresholds(tmp_path / "nowhere.toml", known_tasks=TASKS)


def test_gates_alone_use_the_shipped_yardstick(tmp_path: Path) -> None:
    thresholds = load(tmp_path, LEVEL)
    assert thresholds.references["aligned"].scores["mean"] == 85.6
    assert thresholds.gates[0].blocking
