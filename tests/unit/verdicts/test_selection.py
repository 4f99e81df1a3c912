"""Gates by their printed names: which cases they need, and what -k means."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from longctx.plugins.verdicts.selection import (
    NamedGate,
    SelectionError,
    choose,
    named_gates,
    read_keyword,
    required_cases,
    restrict,
)
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, scope_of, thresholds

MEAN = replace(LEVEL, name="mean")
REACH = replace(LEVEL, name="effective length", kind="effective_length")
TRACING = replace(LEVEL, name="tracing", aspect="tracing", lengths=(1024, 8192))
GATES = thresholds(REACH, MEAN, TRACING)
CASES = tuple(case(task, length) for task in ASPECTS for length in LENGTHS)


def named(*, has_baseline: bool = False) -> Mapping[str, NamedGate]:
    return named_gates(GATES, scope_of(CASES, has_baseline=has_baseline))


def test_every_gate_has_the_names_that_are_printed() -> None:
    levels = ["mean at 1k", "mean at 2k", "mean at 4k", "tracing at 1k", "tracing at 8k"]
    assert list(named()) == ["effective length", *levels]
    compared = [f"regression at {length}" for length in ("1k", "2k", "4k")]
    assert list(named(has_baseline=True)) == ["effective length", *levels, *compared]


def test_a_gate_needs_the_cases_of_its_tasks_at_its_lengths() -> None:
    assert required_cases(choose(named(), ["effective length"])) == tuple(case.id for case in CASES)
    assert required_cases(choose(named(), ["gate[tracing at 1k]"])) == ("test_ruler[vt-1024]",)
    assert required_cases(choose(named(has_baseline=True), ["regression at 2k"])) == tuple(
        case.id for case in CASES if case.length == 2048
    )


def test_a_gate_whose_cases_are_not_in_the_run_is_refused() -> None:
    with pytest.raises(SelectionError, match="the gate 'tracing at 8k' needs vt-8k, which this run does not have"):
        required_cases(choose(named(), ["tracing at 8k"]))


def test_an_unknown_gate_is_refused_with_one_that_is_alike_or_the_known_ones() -> None:
    with pytest.raises(SelectionError, match=r"no gate is named 'mean at 3k'; did you mean 'mean at 4k'\?"):
        choose(named(), ["gate[mean at 3k]"])
    with pytest.raises(SelectionError, match="no gate is named 'xyz'; the gates of this run are effective len"):
        choose(named(), ["gate[xyz]"])


@pytest.mark.parametrize(
    ("keyword", "names", "is_negated"),
    [
        ("effective length", ["effective length"], False),
        ("gate[effective length]", ["effective length"], False),
        ("thresholds.toml::gate[mean at 2k]", ["mean at 2k"], False),
        ("gate[mean]", ["mean at 1k", "mean at 2k", "mean at 4k"], False),
        ("mean at 1k or gate[tracing at 1k]", ["mean at 1k", "tracing at 1k"], False),
        ("not gate[mean at 1k]", ["mean at 1k"], True),
        ("not mean at 1k", ["mean at 1k"], True),
    ],
)
def test_k_selects_gates_by_their_ids(keyword: str, names: list[str], is_negated: bool) -> None:
    selection = read_keyword(keyword, named())
    assert selection is not None
    assert [gate.name for gate in selection.gates] == names
    assert selection.is_negated == is_negated


@pytest.mark.parametrize("keyword", ["", "mean", "not mean", "tracing", "n1 or n2", "n1 and not 1k", "mean or tracing"])
def test_k_remains_a_keyword_of_tests_for_all_other_words(keyword: str) -> None:
    """Aspects and categories are marks of cases too."""
    assert read_keyword(keyword, named()) is None


def test_k_selects_gates_or_tests_but_not_both() -> None:
    with pytest.raises(SelectionError, match="-k: 'gate\\[mean\\] or n1' selects gates and tests"):
        read_keyword("gate[mean] or n1", named())


def test_the_other_gates_and_lengths_are_left_out() -> None:
    gates = restrict(GATES, choose(named(), ["mean at 1k", "mean at 4k", "effective length"])).gates
    assert gates == (REACH, replace(MEAN, lengths=(1024, 4096)))
