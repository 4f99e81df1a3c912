"""thresholds.toml is read strictly."""

import json
from pathlib import Path

import msgspec
import pytest

from longctx.fixtures.tasks import FAMILIES
from longctx.plugins.thresholds.records import (
    SHIPPED,
    RegressionSettings,
    Thresholds,
    ThresholdsError,
    VerdictSettings,
    doubtful_units,
    load_thresholds,
)

LEVEL = '[[gate]]\nname = "g"\nkind = "level"\nabove = 85.6\n'
REACH = LEVEL.replace("level", "effective_length") + "at_least = {}\n"
CATEGORY = "[[gate]]\nname = 'c'\nkind = 'category'\n"
# tests/golden/recorded/commands/errors has the wrong values of every key.
BROKEN = {
    "[[gate]]\nname = 'g'\nkind = 'regression'\n": "'g': give drop, in points, or relative_drop, in percent",
    "[[gate]]\nname = 'g'\nkind = 'regression'\ndrop = 0\n": "drop is 0; write a number from 0.1 to 100",
    "[[gate]]\nname = 'g'\nkind = 'regression'\ndrop = 1\nrelative_drop = 1\n": "give drop, in points, or",
    "[[gate]]\nname = 'g'\nkind = 'regression'\ndrop = 1\nabove = 3\n": "has no key 'above'; it is one of level",
    "[[gate]]\nname = 'g'\nkind = 'regression'\ndrop = 1\ntasks = ['vt']\ncategory = 'rag'\n": "not several of them",
    "[[gate]]\nname = 'g'\nkind = 'change'\n": "changed is missing; write a number from 0.1 to 100",
    "[[gate]]\nname = 'g'\nkind = 'change'\nchanged = 5\ndrop = 2\n": "has no key 'drop'; it is one of regression",
    "[[gate]]\nname = 'change'\nkind = 'change'\nchanged = 5\n": "'change': its name is that of the comparison",
    "[[gate]]\nname = 'regression at 4k'\nkind = 'regression'\ndrop = 1\n": "write another one",
    CATEGORY + "category = 'rag'\nabove = 40\naspect = 'qa'\n": "kind 'category' has no key 'aspect'",
    LEVEL + "category = 'rag'\n": "kind 'level' has no key 'category'; it is one of category, likelihood",
    LEVEL + "categry = 'rag'\n": "unknown key 'categry'; known are name, kind",
    CATEGORY + "category = 'retrieval'\nabove = 40\n": "RULER's retrieval, tracing, aggregation, qa are each an aspect",
    LEVEL + "tasks = ['none']\n": "unknown task 'none'; known are niah_single_1, niah_single_2, niah_single_3, niah_",
    LEVEL + "tasks = ['vt', 'nq']\n": "tasks of rag and ruler have no common mean; write a gate for each",
    "[refs]\n": "unknown key 'refs'; known are reference, verdict, regression, floor, gate",
    "[verdict]\ninconclusive = false\n": "[verdict]: inconclusive is False; write one of fail, pass",
    "[verdict]\ndrop = 2\n": "[verdict] has an unknown key 'drop'; known are confidence, zone, precision, undecided",
    "[regression]\nundecided = 'error'\n": "[regression]: undecided is 'error'; write one of pass, fail",
    "[regression]\nzone = 1\n": "[regression] has an unknown key 'zone'; known are drop, changed, undecided, about",
    "[[verdict]]\nzone = 1\n": "write a table",
}


def load(tmp_path: Path, text: str) -> Thresholds:
    path = tmp_path / "t.toml"
    path.write_text(text)
    return load_thresholds(path, known_tasks=FAMILIES)


def test_the_shipped_file_holds_the_papers_figures() -> None:
    shipped = load_thresholds(SHIPPED, known_tasks=FAMILIES)
    assert shipped.references["aligned"].scores == {
        "mean": 85.6, "retrieval": 96.9, "tracing": 89.7, "aggregation": 84.8, "qa": 49.7
    }  # fmt: skip
    assert shipped.references["base"].scores == {
        "mean": 79.4, "retrieval": 90.9, "tracing": 58.8, "aggregation": 73.1, "qa": 48.6
    }  # fmt: skip
    assert [gate.name for gate in shipped.gates if gate.blocking] == ["effective length"]
    assert (shipped.verdict, shipped.regression) == (VerdictSettings(), RegressionSettings())


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
        load_thresholds(tmp_path / "nowhere.toml", known_tasks=FAMILIES)


def test_gates_alone_use_the_shipped_yardstick(tmp_path: Path) -> None:
    thresholds = load(tmp_path, LEVEL)
    assert thresholds.references["aligned"].scores["mean"] == 85.6
    assert thresholds.gates[0].blocking


def test_a_file_that_says_nothing_of_it_has_the_documented_certainty(tmp_path: Path) -> None:
    for text in (LEVEL, "[verdict]\n[regression]\n[floor]\n" + LEVEL):
        found = load(tmp_path, text)
        assert found.verdict == VerdictSettings(confidence=0.99, indifference_zone=0.0)
        assert found.regression == RegressionSettings(drop=2.0, blocking=True, false_discoveries=0.05, cases="report")
        assert found.floors == {}


def test_the_certainty_of_a_file_is_read(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
        [verdict]
        confidence = 0.95
        zone = 1
        undecided = "pass"
        [regression]
        drop = 3
        undecided = "fail"
        blocking = false
        false_discoveries = 0.1
        cases = "fail"
        about = "samples"
        [floor]
        vt = 50
        niah_single_1 = 99.5
        """,
    )
    assert found.verdict == VerdictSettings(confidence=0.95, indifference_zone=1.0, undecided="pass")
    assert found.regression == RegressionSettings(
        drop=3.0, undecided="fail", blocking=False, false_discoveries=0.1, cases="fail", about="samples"
    )
    assert found.floors == {"vt": 50.0, "niah_single_1": 99.5}


@pytest.mark.parametrize(
    "text",
    [
        "[verdict]\nconfidence = 0.5\nzone = 0\n",
        "[verdict]\nconfidence = 0.9999\nzone = 50.0\n",
        "[regression]\ndrop = 0.1\nfalse_discoveries = 0.0001\n",
        "[regression]\ndrop = 100\nfalse_discoveries = 0.5\n",
        "[floor]\nvt = 0\nqa_1 = 100\n",
    ],
)
def test_the_ends_of_a_range_belong_to_it(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (LEVEL.replace("85.6", "0.85"), ["gate 'g': above is 0.85, but scores run from 0 to 100; 85 may be meant"]),
        (LEVEL.replace("85.6", "2"), ["gate 'g': above is 2, but scores run from 0 to 100; 100 may be meant"]),
        (
            LEVEL.replace("85.6", "0") + "[floor]\nvt = 0.5\n",
            ["[floor]: vt is 0.5, but scores run from 0 to 100; 50 may be meant"],
        ),
        (LEVEL.replace("85.6", "2.5"), []),
        (REACH.format(2), ["gate 'g': at_least is 2 tokens; 2k may be meant"]),
        (REACH.format(512), []),
        ("[[gate]]\nname = 'g'\nkind = 'likelihood'\nmeasure = 'gain'\nabove = 0.5\n", []),
    ],
)
def test_a_threshold_that_looks_like_a_share_is_named(text: str, lines: list[str], tmp_path: Path) -> None:
    file = tmp_path / "gates.toml"
    file.write_text(text)
    assert doubtful_units(load_thresholds(file, known_tasks=FAMILIES)) == lines


@pytest.mark.parametrize(
    ("table", "key", "value", "replaced"),
    [
        ("verdict", "inconclusive", '"fail"', {}),
        ("verdict", "inconclusive", '"pass"', {"undecided": "pass"}),
        ("verdict", "near", '"pass"', {"about": "model"}),
        ("regression", "inconclusive", '"fail"', {"undecided": "fail"}),
        ("regression", "lost_here", '"fail"', {"about": "samples"}),
        ("regression", "underpowered", '"report"', {"extend": False, "undecided": "pass"}),
        ("regression", "population", "true", {}),
    ],
)
def test_an_old_key_is_read_with_a_line(
    table: str, key: str, value: str, replaced: dict[str, object], tmp_path: Path
) -> None:
    found = load(tmp_path, f"[{table}]\n{key} = {value}\n{LEVEL}")
    settings = getattr(found, table)
    assert settings == msgspec.structs.replace(type(settings)(), **replaced)
    (line,) = found.notes
    new = " and ".join(f"{name} = {json.dumps(to)}" for name, to in replaced.items()) or "the default"
    assert line == f"[{table}]: {key} = {value} is an old key; write {new}"


def test_a_gate_has_the_effect_of_its_table_unless_it_has_its_own(tmp_path: Path) -> None:
    text = f'[verdict]\nundecided = "pass"\n{LEVEL}undecided = "fail"\n' + LEVEL.replace('"g"', '"h"')
    assert [gate.undecided for gate in load(tmp_path, text).gates] == ["fail", "pass"]
