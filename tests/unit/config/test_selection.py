"""--only-samples and its errors; the order of samples is decided once, from an earlier checkpoint, and then kept."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from longctx.fixtures.records import Case
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.run import Run
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.config.selection import DRAW_RATES, only_samples, with_draw_rates
from longctx.plugins.journal import Subject
from longctx.plugins.thresholds.read import load_thresholds
from longctx.plugins.thresholds.records import SHIPPED
from tests.helpers.journals import entry, write_journal
from tests.helpers.queues import case
from tests.helpers.reports import CHECKPOINT
from tests.helpers.workers import options_of

CASES = (case("n1", 1024, 40), case("vt", 1024, 40), case("n1", 2048, 40))
EARLIER, LATER = "a" * 64, "b" * 64


def run_of(directory: Path, fingerprint: str = LATER, **changed: bool) -> Run:
    return Run(
        options=options_of("model", journal=str(directory), **{"full": False, **changed}),
        checkpoint=replace(CHECKPOINT, fingerprint=fingerprint),
        cases=CASES,
        samples="s",
        thresholds=load_thresholds(SHIPPED, known_tasks={}),
    )


def rates_of(run: Run, *, narrowed: bool = False) -> dict[str, float]:
    invocation = Invocation(
        arguments=Namespace(plan=False), root=Path(), directory=Path(), local_workers=1, is_narrowed=narrowed,
        add_cleanup=lambda cleanup: None,
    )  # fmt: skip
    return with_draw_rates(run, invocation).draw_rates


def measure(directory: Path, fingerprint: str, samples: int, cases: tuple[Case, ...] = CASES) -> None:
    """Journal scores of which the tracing case's differ most."""
    run = run_of(directory, fingerprint)
    subject = Subject(model="earlier", fingerprint=fingerprint, execution={"engine": "fake"})
    entries = []
    for of in cases:
        for index in range(samples):
            item = entry(run.key(of, index), prompt=f"{of.task}-{of.length}-{index}".encode().hex(), case=of.id)
            score = msgspec.structs.replace(item.outcome.score, value=float(of.task != "vt" or index % 2))
            entries.append(msgspec.structs.replace(item, outcome=msgspec.structs.replace(item.outcome, score=score)))
    write_journal(directory, *entries, subject=subject)


def test_the_first_checkpoint_of_a_journal_has_a_uniform_order(tmp_path: Path) -> None:
    assert rates_of(run_of(tmp_path / "new")) == {}
    assert not (tmp_path / "new").exists()


def test_the_next_checkpoint_draws_by_the_spread_of_the_scores_before_it(tmp_path: Path) -> None:
    measure(tmp_path, EARLIER, 10)
    rates = rates_of(run_of(tmp_path))
    assert rates.keys() == {CASES[0].id, CASES[1].id}, "a panel of one case has nothing to choose from"
    assert rates[CASES[0].id] < rates[CASES[1].id] == 1.0


def test_the_order_stays_whatever_is_measured_later(tmp_path: Path) -> None:
    measure(tmp_path, EARLIER, 10)
    before = rates_of(run_of(tmp_path))
    measure(tmp_path, LATER, 20)
    measure(tmp_path, EARLIER, 40)
    assert rates_of(run_of(tmp_path)) == before
    assert rates_of(run_of(tmp_path), narrowed=True) == before


def test_another_checkpoint_takes_over_the_order(tmp_path: Path) -> None:
    measure(tmp_path, EARLIER, 10)
    before = rates_of(run_of(tmp_path))
    measure(tmp_path, LATER, 40, CASES[:1])
    assert rates_of(run_of(tmp_path, "c" * 64)) == before


def test_a_checkpoint_that_was_begun_in_uniform_order_keeps_it(tmp_path: Path) -> None:
    measure(tmp_path, LATER, 1)
    measure(tmp_path, EARLIER, 10)
    assert rates_of(run_of(tmp_path)) == {}


@pytest.mark.parametrize("samples", [0, 7])
def test_a_checkpoint_with_few_results_suggests_no_order(tmp_path: Path, samples: int) -> None:
    measure(tmp_path, EARLIER, samples)
    assert rates_of(run_of(tmp_path)) == {}


def test_runs_that_gain_nothing_keep_the_uniform_order(tmp_path: Path) -> None:
    measure(tmp_path, EARLIER, 10)
    run = run_of(tmp_path)
    baseline = Baseline(name="earlier", fingerprint=EARLIER, journal=str(tmp_path))
    assert rates_of(replace(run, baseline=baseline)) == {}
    assert rates_of(run_of(tmp_path, full=True)) == {}
    assert rates_of(run, narrowed=True) == {}
    assert not (tmp_path / DRAW_RATES).exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 2.0}', '{"a": "b"}', '{"a": NaN}'])
def test_a_damaged_record_leaves_the_uniform_order(tmp_path: Path, content: str) -> None:
    measure(tmp_path, EARLIER, 10)
    assert rates_of(run_of(tmp_path))
    (record,) = (tmp_path / DRAW_RATES).iterdir()
    record.write_text(content)
    assert rates_of(run_of(tmp_path)) == {}


FIRST = case("niah_single_1", samples=20)
SECOND = case("niah_single_2", samples=20)


def test_only_the_named_cases_and_samples_are_planned() -> None:
    chosen = only_samples([FIRST, SECOND], [f"{SECOND.id}:17,3", f"{SECOND.id}:4"])
    assert [(each.id, tuple(each.planned)) for each in chosen] == [(SECOND.id, (3, 4, 17))]


def test_without_the_option_all_samples_are_planned() -> None:
    assert only_samples([FIRST], []) == (FIRST,)
    assert list(FIRST.planned) == list(range(20))


def test_samples_that_share_a_context_come_together() -> None:
    (chosen,) = only_samples([replace(FIRST, group=5)], [f"{FIRST.id}:7"])
    assert tuple(chosen.planned) == (5, 6, 7, 8, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{FIRST.id}", "write CASE:INDEX,INDEX"),
        (f"{FIRST.id}:1,", "write CASE:INDEX,INDEX"),
        (f"{FIRST.id}:-1", "write CASE:INDEX,INDEX"),
        (f"{FIRST.id}:" + "9" * 30, "write CASE:INDEX,INDEX"),
        ("test_ruler[other-1k]:1", "the run has no such case; --collect-only lists the ids"),
        (f"{FIRST.id}:3,20", "the case has no sample 20, only 0 to 19; see --samples"),
    ],
)
def test_wrong_use_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--only-samples: ") as raised:
        only_samples([FIRST], [text])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
