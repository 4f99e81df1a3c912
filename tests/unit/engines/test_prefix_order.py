"""Visiting order, common prefixes and token counts agree with a token-by-token trie."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.engines.prefix_order import branch_depths, common_prefix, visiting_order
from tests.helpers.counts import prefill_token_counts

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)
PROMPTS = st.lists(IDS, min_size=1, max_size=8)


def nodes(prompts: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {ids[:end] for ids in prompts for end in range(1, len(ids) + 1)}


@given(PROMPTS, IDS)
def test_prompts_are_visited_once_and_share_most_with_the_one_before(
    prompts: list[tuple[int, ...]], read: tuple[int, ...]
) -> None:
    order = visiting_order(prompts, read)
    assert sorted(order) == list(range(len(prompts)))
    seen = [read]
    for index in order:
        ids = prompts[index]
        assert common_prefix(seen[-1], ids) == max(common_prefix(earlier, ids) for earlier in seen)
        seen.append(ids)


@given(PROMPTS, IDS)
def test_only_last_tokens_are_computed_twice(prompts: list[tuple[int, ...]], read: tuple[int, ...]) -> None:
    counts = prefill_token_counts(prompts, read)
    assert [count.computed + count.reused for count in counts] == [len(ids) for ids in prompts]
    new = len(nodes([*prompts, read])) - len(read)
    # The last token is computed again for a prompt that is cached already or that others continue.
    assert new <= sum(count.computed for count in counts) <= new + len(prompts)


@given(PROMPTS)
def test_branch_depths_contain_the_prefix_of_every_later_prompt(prompts: list[tuple[int, ...]]) -> None:
    ordered = [prompts[index] for index in visiting_order(prompts)]
    available: set[int] = set()
    before: tuple[int, ...] = ()
    for ids, depths in zip(ordered, branch_depths(ordered), strict=True):
        depth = common_prefix(before, ids)
        assert depth in {0, *available}
        available = {old for old in available if old <= depth} | {new for new in depths if new >= depth}
        before = ids


def test_a_chain_of_a_thousand_prompts_needs_no_deep_recursion() -> None:
    chain = [tuple([0] * length) for length in range(1, 1200)]
    assert visiting_order(chain) == tuple(range(1199))


def test_a_prefix_is_reused_in_whole_chunks() -> None:
    context = tuple(range(1000))
    prompts = [(*context, 5000), (*context, 6000), (*context[:300], 7000), context[:256], context[:256]]
    counts = prefill_token_counts(prompts, chunk_tokens=128)
    assert [count.reused for count in counts] == [0, 896, 256, 128, 256]
