"""The state of every panel of a run, as the journals show it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Likelihood, Outcome
from longctx.plugins.config.run import Run
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.sequential import Pairs
from longctx.plugins.journal import Journal, likelihood_key
from longctx.plugins.verdicts.hypotheses import PanelKey, build_panels
from longctx.plugins.verdicts.likelihood_gates import build_rules
from longctx.plugins.verdicts.panels import Comparison, ModelRole, NextSamples, Panel, PanelStatus, SharedLook
from longctx.plugins.verdicts.regression import PanelPairs, by_gate, decide_together, shared_looks

# By comparison of a panel, the next look at all panels together.
PanelLooks = Mapping[Comparison, SharedLook]
Keys = Mapping[SampleRef, str]
"""The journal keys of samples."""
Inputs = tuple[object, ...]
"""All that the status of a panel depends on."""
# The largest number of a case's samples whose answers are shown beside the baseline's because the scores differ.
MOST_FLIPPED = 100
ANSWER_CHARACTERS = 2000


class PanelState:
    """The panels of a run over its journals: workers choose samples by it, the controller evaluates it."""

    def __init__(
        self,
        run: Run,
        selected: Sequence[Case],
        journals: Mapping[ModelRole, Journal],
        *,
        baseline_is_final: bool = False,
    ):
        self.run = run
        self.journals = journals
        self.baseline_is_final = baseline_is_final
        """True if nobody adds to the baseline's journal."""
        scope = run.scope(selected, self.executions)
        self.panels = build_panels(run.thresholds, scope)
        self._likelihood_rules = build_rules(run.thresholds, scope, self.panels)
        self._keys: dict[PanelKey, Keys] = {}
        self._likelihood_keys: dict[PanelKey, Keys] = {}
        for place, panel in self.panels.items():
            self._keys[place], self._likelihood_keys[place] = self._keys_of(panel)
        # A waiting worker calls `status` of every panel again and again, mostly without a new result in between.
        self._statuses: dict[Inputs, tuple[Inputs, PanelStatus]] = {}
        self._looks: tuple[list[PanelStatus], Mapping[PanelKey, PanelLooks]] | None = None

    def _keys_of(self, panel: Panel) -> tuple[Keys, Keys]:
        """Return the journal keys of the answers to all samples of a panel, and of the likelihoods that are read."""
        keys, gold_keys = {}, {}
        reads_likelihoods = self.run.options.signal != "answers"
        for ref in panel.order:
            case = panel.cases[ref.case_id]
            key = keys[ref] = self.run.key(case, ref.sample_index)
            if reads_likelihoods and case.has_gold:
                gold_keys[ref] = likelihood_key(key)
        return keys, gold_keys

    @property
    def executions(self) -> dict[str, Mapping[str, str]]:
        return {role: journal.subject.execution for role, journal in self.journals.items()}

    def keys(self, panel: Panel) -> Keys:
        return self._keys[panel.family, panel.length]

    def refresh(self, *, thorough: bool = False) -> None:
        """Read the new lines of all journals, see `Journal.refresh`; raise JournalError."""
        for journal in self.journals.values():
            journal.refresh(thorough=thorough)

    def scores(self, panel: Panel, role: ModelRole = "model") -> dict[SampleRef, float]:
        """Return the scores, 0 to 1, of all finished samples of the panel."""
        entries = self.journals[role].entries
        return {sample: entries[key].score for sample, key in self.keys(panel).items() if key in entries}

    def likelihood_keys(self, panel: Panel) -> Keys:
        """Return the journal keys of the likelihoods of the panel's gold answers; none for a run of answers alone."""
        return self._likelihood_keys[panel.family, panel.length]

    def likelihoods(self, panel: Panel, role: ModelRole = "model") -> dict[SampleRef, Likelihood]:
        known = self.journals[role].likelihoods
        return {ref: known[key].likelihood for ref, key in self.likelihood_keys(panel).items() if key in known}

    def all_likelihoods(self, role: ModelRole) -> dict[SampleRef, Likelihood]:
        """Return the likelihoods of gold answers that are known, on all panels."""
        known: dict[SampleRef, Likelihood] = {}
        for panel in self.panels.values():
            known |= self.likelihoods(panel, role)
        return known

    def final_baseline(self) -> dict[SampleRef, float] | None:
        """Return all scores of a baseline that is not run again; None for any other baseline and without one."""
        if not self.baseline_is_final:
            return None
        scores: dict[SampleRef, float] = {}
        for panel in self.panels.values():
            scores |= self.scores(panel, "baseline")
        return scores

    def likelihood_counts(self, panel: Panel) -> Counter[str]:
        """Return how many likelihoods of the model are known, by case id."""
        return Counter(ref.case_id for ref in self.likelihoods(panel))

    def next_likelihoods(self, panel: Panel) -> NextSamples:
        """Return the samples whose gold answers are to be measured next, each with the model; empty at the end."""
        rule = self._likelihood_rules.get((panel.family, panel.length))
        if rule is None:
            return ()
        known: dict[ModelRole, Mapping[SampleRef, Likelihood]] = {"model": self.likelihoods(panel)}
        if "baseline" in self.journals and not self.baseline_is_final:
            known["baseline"] = self.likelihoods(panel, "baseline")
        return rule.next_samples(known, self.failures(panel))

    def failures(self, panel: Panel) -> dict[str, str]:
        """Return the reasons why cases failed in this run, by case id.

        An error of the baseline is an error of the case too, because it spoils the comparison.
        """
        failures: dict[str, str] = {}
        for journal in self.journals.values():
            failures |= {case: reason for case, reason in journal.failures.items() if case in panel.cases}
        return failures

    def status(self, panel: Panel, *, failed: Collection[str] | None = None) -> PanelStatus:
        """Return the status after the last refresh, without the `failed` cases, by default those of the journal."""
        return self._status(panel, failed, self._shared_looks().get((panel.family, panel.length), {}))

    def doubtful_panels(self) -> list[Panel]:
        """Return the other panels whose pairs a loss of one panel still needs; empty if there is no such loss."""
        waiting = any(look.waits for looks in self._shared_looks().values() for look in looks.values())
        return [panel for panel in self._compared if self.status(panel).next_samples] if waiting else []

    @property
    def _compared(self) -> list[Panel]:
        return [panel for panel in self.panels.values() if panel.comparisons]

    def _shared_looks(self) -> Mapping[PanelKey, PanelLooks]:
        """Return by panel what it needs so that the loss of one of them can be tested on all together."""
        panels = self._compared if "baseline" in self.journals else []
        statuses = [self._status(panel, None, {}) for panel in panels]
        if self._looks is None or list(map(id, self._looks[0])) != list(map(id, statuses)):
            self._looks = statuses, self._next_looks(list(zip(panels, statuses, strict=True)))
        return self._looks[1]

    def _next_looks(self, statuses: Sequence[tuple[Panel, PanelStatus]]) -> Mapping[PanelKey, PanelLooks]:
        compared = []
        for panel, status in statuses:
            scores, baseline, failed = self.scores(panel), self.scores(panel, "baseline"), self.failures(panel)
            for comparison, analysis in status.comparisons.items():
                pairs = Pairs.of(panel.paired_queue(comparison, failed), scores, baseline)
                compared.append(PanelPairs(panel=panel, comparison=comparison, analysis=analysis, pairs=pairs))
        looks: dict[PanelKey, dict[Comparison, SharedLook]] = {}
        for group in by_gate(compared):
            for item, look in zip(group, self._looks_of(group), strict=True):
                looks.setdefault((item.panel.family, item.panel.length), {})[item.comparison] = look
        return looks

    def _looks_of(self, compared: Sequence[PanelPairs]) -> list[SharedLook]:
        """Return what each panel of one gate needs for the next look at all of them."""
        available = [self._available_clusters(item) for item in compared]
        least, is_open = 0.0, False
        for share in shared_looks(compared):
            least = share
            # A finished baseline may lack pairs for a look, which is left out then.
            needed = [min(item.needed(share), most) for item, most in zip(compared, available, strict=True)]
            is_open = any(len(item.pairs) < clusters for item, clusters in zip(compared, needed, strict=True))
            if is_open:
                break
        looks = []
        for item, decision in zip(compared, decide_together(compared), strict=True):
            # All panels are measured in step.
            waits = is_open and len(item.pairs) >= item.needed(least)
            looks.append(SharedLook(share=least, waits=waits, has_failed=decision.decision == "fail"))
        return looks

    def _available_clusters(self, item: PanelPairs) -> int:
        """Return the number of clusters that can be compared."""
        queue = item.pairs.queue
        if self.baseline_is_final:
            return len(queue.weighted_means(self.scores(item.panel, "baseline")))
        return len(queue.clusters)

    def _status(self, panel: Panel, failed: Collection[str] | None, looks: PanelLooks) -> PanelStatus:
        left_aside = set(self.failures(panel) if failed is None else failed)
        scores = self.scores(panel)
        baseline = self.scores(panel, "baseline") if "baseline" in self.journals else None
        place, inputs = (panel.family, panel.length, *looks.items()), (scores, baseline, left_aside)
        if place not in self._statuses or self._statuses[place][0] != inputs:
            control = baseline if self.baseline_is_final else None
            status = panel.status(scores, baseline=baseline, final_baseline=control, failed=left_aside, looks=looks)
            self._statuses[place] = inputs, status
        return self._statuses[place][1]

    def result(self, case: Case, panel: Panel, status: PanelStatus) -> CaseResult:
        """Return the case's part of the samples that the panel's evidence rests on, with the baseline's answers."""
        keys = [self.keys(panel)[ref] for ref in panel.queue({case.id}).refs]
        counted, paired = status.evidence_counts.get(case.id, 0), status.paired_counts.get(case.id, 0)
        outcomes = self._outcomes("model", keys[:counted])
        others = self._outcomes("baseline", keys[:paired])
        changed = [other for one, other in zip(outcomes, others, strict=False) if one.score.value != other.score.value]
        flipped = {other.index: other for other in changed[:MOST_FLIPPED]}
        answers = []
        for other in flipped.values():
            text = other.generation.text[:ANSWER_CHARACTERS]
            answers.append(BaselineAnswer(index=other.index, text=text, failure=other.score.failure))
        return CaseResult(
            case=case,
            outcomes=tuple(_with_excerpt(outcome, flipped.get(outcome.index)) for outcome in outcomes),
            seconds=sum(outcome.generation.seconds for outcome in outcomes),
            baseline=tuple(other.score.value for other in others),
            baseline_endings=tuple(other.generation.has_ended for other in others),
            flipped=tuple(answers),
        )

    def _outcomes(self, role: ModelRole, keys: Sequence[str]) -> list[Outcome]:
        return [self.journals[role].entries[key].outcome for key in keys]


def _with_excerpt(outcome: Outcome, other: Outcome | None) -> Outcome:
    """Return an outcome with the excerpt of the baseline's wrong answer to the same prompt; right answers have none."""
    if other is None or outcome.excerpt is not None:
        return outcome
    return msgspec.structs.replace(outcome, excerpt=other.excerpt)
