"""--only-samples and its errors."""

from dataclasses import replace

import pytest

from longctx.plugins.config.cases import only_samples
from longctx.plugins.config.invocation import ConfigError
from tests.helpers.queues import case

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
