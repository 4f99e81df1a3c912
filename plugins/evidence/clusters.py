"""Samples grouped into clusters, the independent units of evidence.

Samples that share a context are not independent, so a statistic must count them once: a cluster is all samples of a
case on one context, and its value is the mean of their scores.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, groupby
from typing import NamedTuple

import numpy as np

from longctx.fixtures.records import Case
from longctx.plugins.evidence.e_process import Floats, Strata
from longctx.plugins.evidence.haystacks import CaseValues, Ints
from longctx.plugins.evidence.statistics import stratified_interval

# No verdict is reached on fewer clusters than these: on a queue of one case, and on one of several cases.
MIN_CLUSTERS_ONE_CASE = 8
MIN_CLUSTERS = 26
# An estimate is tested for its precision after every so many clusters.
CLUSTERS_PER_LOOK = 4
# The error probability of the interval around an estimate. No verdict rests on it, so 95 % is enough.
ESTIMATE_ALPHA = 0.05


UnitName = tuple[str, int]
"""The task of a unit of evidence, empty for a text that tasks share, and its haystack."""
UnitSums = defaultdict[UnitName, float]


class SampleRef(NamedTuple):
    """A reference to one sample of a case; its place in a queue and the key of its score."""

    case_id: str
    sample_index: int


def cluster_of(ref: SampleRef, cases: Mapping[str, Case]) -> tuple[str, int]:
    """Return the cluster of a sample as its case id and the number of the context within the case."""
    return ref.case_id, ref.sample_index // cases[ref.case_id].group


class ClusteredQueue:
    """A queue of samples by clusters, each with a weight of at most 1.

    A panel's mean is the mean of its cases' means. If the cases differ in size, a cluster of a smaller case weighs
    more. `scale` times the mean of all weighted cluster means is the panel's mean, so a threshold on the panel is
    tested as threshold / scale on the weighted means, which stay within [0, 1].

    Clusters are drawn into the queue at rates proportional to their weights, in a uniform queue at equal rates.
    """

    def __init__(self, refs: Sequence[SampleRef], cases: Mapping[str, Case], *, is_uniform: bool = False):
        self.refs = tuple(refs)
        self._cases = cases
        self._is_uniform = is_uniform
        clusters = groupby(refs, key=lambda ref: cluster_of(ref, cases))
        self.clusters = tuple(tuple(refs) for _, refs in clusters)
        self._case_of = [cluster[0].case_id for cluster in self.clusters]
        sizes = Counter(self._case_of)
        smallest = min(sizes.values(), default=1)
        self.scale = len(self.clusters) / (len(sizes) * smallest) if sizes else 1.0
        self._weights = {case_id: smallest / size for case_id, size in sizes.items()}
        self._ends = (0, *accumulate(map(len, self.clusters)))
        firsts = map(self._case_of.index, sizes)
        self.covering_clusters = 1 + max(firsts, default=0)
        """The length of the shortest prefix, in clusters, that has a cluster of every case."""
        fewest = MIN_CLUSTERS if len(sizes) > 1 else MIN_CLUSTERS_ONE_CASE
        self.min_clusters = max(self.covering_clusters, fewest)
        """The number of clusters before which no verdict is reached."""

    @cached_property
    def strata(self) -> Strata:
        """The cases of all clusters, in queue order."""
        numbers = {case_id: number for number, case_id in enumerate(self._weights)}
        stratum = np.array([numbers[case_id] for case_id in self._case_of], dtype=np.intp)
        weights = np.array(list(self._weights.values()))
        rates = np.ones(weights.size) if self._is_uniform else weights
        return Strata(stratum=stratum, weights=weights, rates=rates)

    @cached_property
    def drawn_strata(self) -> Strata:
        """The strata of all clusters if they were drawn at different rates; else a single one."""
        return Strata.single(len(self.clusters)) if self.strata.has_equal_rates else self.strata

    def mean_difference(self, differences: Floats) -> float:
        """Return the estimate of the panel's mean difference from the weighted differences of the first clusters."""
        return self.scale * self.drawn_strata.mean(differences)

    @cached_property
    def _cases_about_same_texts(self) -> frozenset[str]:
        """The ids of the cases that have a text with another case in common."""
        texts = {}
        for case_id, (_, own) in self._by_case.items():
            if self._cases[case_id].texts:
                texts[case_id] = set(own.tolist())
        cases = Counter(chain.from_iterable(texts.values()))
        shared = {text for text, count in cases.items() if count > 1}
        return frozenset(case_id for case_id, own in texts.items() if own & shared)

    @cached_property
    def _unit_names(self) -> list[UnitName]:
        """The name of every cluster's unit of evidence, in queue order.

        A unit is a text, in all tasks and at all lengths; else a task's haystack of one number at all lengths.
        """
        names = []
        for case_id, own in zip(self._case_of, self._own_haystacks.tolist(), strict=True):
            case = self._cases[case_id]
            names.append(("" if case.texts else case.task, own))
        return names

    @cached_property
    def units(self) -> Ints:
        """The number of the unit of evidence, from 0, of every cluster in queue order."""
        numbers: dict[UnitName, int] = {}
        for name in self._unit_names:
            numbers.setdefault(name, len(numbers))
        return np.array([numbers[name] for name in self._unit_names], dtype=np.intp)

    def add_unit_sums(self, means: Floats, sums: UnitSums, largest: UnitSums) -> None:
        """Add by unit of evidence the first clusters' values, and the largest that they can be.

        The sums of all units add up to the panel's mean if all clusters are there, so units of several panels can be
        added.
        """
        share = self.scale / max(1, len(self.clusters))
        names = self._unit_names[: means.size]
        for name, case_id, mean in zip(names, self._case_of, means.tolist(), strict=False):
            sums[name] += share * mean
            largest[name] += share * self._weights[case_id]

    def unit_count(self, clusters: int) -> int:
        return len(set(self._unit_names[:clusters]))

    def values_by_case(self, means: Floats) -> list[CaseValues]:
        """Return the values and the haystacks of the first clusters by case, of cases whose samples share haystacks."""
        shared = [case_id for case_id, (_, own) in self._by_case.items() if np.unique(own).size < own.size]
        return self._values_of(shared, means)

    def case_strata(self, means: Floats) -> list[list[CaseValues]]:
        """Return the values and the haystacks of the first clusters by case.

        Cases about the same texts are one stratum.
        """
        sharing = self._cases_about_same_texts
        alone = [self._values_of([case_id], means) for case_id in self._weights if case_id not in sharing]
        together = self._values_of([case_id for case_id in self._weights if case_id in sharing], means)
        return [stratum for stratum in (*alone, together) if stratum]

    def _values_of(self, case_ids: Iterable[str], means: Floats) -> list[CaseValues]:
        """Return the values and the haystacks of the first clusters of some cases, for each case that has one."""
        values = []
        for case_id in case_ids:
            places, own = self._by_case[case_id]
            first = places[: np.searchsorted(places, means.size)]
            if first.size:
                values.append((means[first] / self._weights[case_id], own[: first.size]))
        return values

    @cached_property
    def _by_case(self) -> Mapping[str, tuple[Ints, Ints]]:
        """The places and the haystacks of every case's clusters, in queue order."""
        by_case = {}
        for number, case_id in enumerate(self._weights):
            places = np.flatnonzero(self.strata.stratum == number)
            by_case[case_id] = places, self._own_haystacks[places]
        return by_case

    @cached_property
    def _own_haystacks(self) -> Ints:
        """The number of the haystack within its case of every cluster."""
        own = [self._cases[first.case_id].haystack(first.sample_index) for first, *_ in self.clusters]
        return np.array(own, dtype=np.intp)

    def weighted_means(self, scores: Mapping[SampleRef, float], stop: int | None = None) -> Floats:
        """Return the weighted mean of every cluster up to number `stop` or the first unfinished one.

        The values run from 0 to 1, for differences from -1 to 1.
        """
        means = []
        for case_id, cluster in zip(self._case_of[:stop], self.clusters[:stop], strict=True):
            values = [scores[ref] for ref in cluster if ref in scores]
            if len(values) < len(cluster):
                break
            means.append(self._weights[case_id] * sum(values) / len(values))
        return np.array(means)

    def sample_count(self, clusters: int) -> int:
        """Return the number of samples in the first clusters; more clusters than there are count as all."""
        return self._ends[min(clusters, len(self.clusters))]


def first_precise_look(means: Floats, queue: ClusteredQueue, precision: float, *, after: int = 0) -> int | None:
    """Return the number of clusters, more than `after`, at which the panel's mean is known to within `precision`.

    Returns None if it is not. Looks are at fixed numbers of clusters, so the result does not depend on when the
    function is called.
    """
    width = 2 * precision / queue.scale
    for clusters in range(queue.covering_clusters, len(means) + 1, CLUSTERS_PER_LOOK):
        if clusters > after and _interval_width(means[:clusters].tobytes(), queue.strata) <= width:
            return clusters
    return None


@lru_cache(maxsize=4096)
def _interval_width(means: bytes, strata: Strata) -> float:
    """Return the width of the interval around a mean; workers test the same prefix of a queue again and again."""
    low, high = stratified_interval(np.frombuffer(means), strata, alpha=ESTIMATE_ALPHA)
    return high - low
