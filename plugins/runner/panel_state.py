"""What the journals say of each panel: for workers that go on from there, for reports, and for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fixtures.engines import execution_settings
from fixtures.records import BaselineAnswer, Case, CaseResult, Outcome
from plugins.config.run import Run
from plugins.gates.clusters import SampleRef
from plugins.gates.hypotheses import PanelKey, build_panels
from plugins.gates.panels import ModelRole, Panel, PanelStatus
from plugins.journal import Journal, Subject

# Of a case's samples on which the model and its baseline differ, so many are shown side by side.
MOST_FLIPPED = 100
ANSWER_CHARACTERS = 2000


def subject(run: Run, role: ModelRole = "model") -> Subject:
    """The name under which results stand that this run computes; raises EngineError. A baseline has a checkpoint."""
    checkpoint, name = run.checkpoint, run.options.model
    if role == "baseline":
        assert run.baseline is not None
        assert run.baseline.checkpoint is not None
        checkpoint, name = run.baseline.checkpoint, run.baseline.name
    how = execution_settings(checkpoint, **run.engine_settings(role))
    return Subject(model=name, fingerprint=checkpoint.fingerprint, execution=how)


class PanelState:
    """The panels of a run over the journals of the model and, where there is one, of the baseline.

    `baseline_is_final`: nobody adds to the baseline's journal.
    """

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
        self.panels = build_panels(run.thresholds, run.scope(selected))
        self._keys: dict[PanelKey, Mapping[SampleRef, str]] = {}
        # Whoever waits asks again and again, of all panels, and mostly nothing has come.
        self._statuses: dict[PanelKey, tuple[tuple[object, ...], PanelStatus]] = {}

    def keys(self, panel: Panel) -> Mapping[SampleRef, str]:
        """The names of the panel's elements in the journals."""
        place = (panel.family, panel.length)
        if place not in self._keys:
            self._keys[place] = {ref: self.run.key(panel.cases[ref.case_id], ref.sample_index) for ref in panel.order}
        return self._keys[place]

    def refresh(self) -> int:
        """Read what was appended; the number of new results. Raises JournalError."""
        return sum(journal.refresh() for journal in self.journals.values())

    def scores(self, panel: Panel, role: ModelRole = "model") -> dict[SampleRef, float]:
        """Of all finished elements."""
        entries = self.journals[role].entries
        return {ref: entries[key].outcome.score.value for ref, key in self.keys(panel).items() if key in entries}

    def failures(self, panel: Panel) -> dict[str, str]:
        """By case id, in this run; an error of the baseline spoils the comparison, and so the case."""
        return {
            case: reason
            for journal in self.journals.values()
            for case, reason in journal.failures.items()
            if case in panel.cases
        }

    def status(self, panel: Panel) -> PanelStatus:
        """How far the panel is, by what was last read."""
        scores, failed = self.scores(panel), self.failures(panel)
        baseline = self.scores(panel, "baseline") if "baseline" in self.journals else None
        place, read = (panel.family, panel.length), (scores, baseline, set(failed))
        if place not in self._statuses or self._statuses[place][0] != read:
            control = baseline if self.baseline_is_final else None
            self._statuses[place] = (
                read,
                panel.status(scores, baseline=baseline, control_variate=control, failed=failed),
            )
        return self._statuses[place][1]

    def result(self, case: Case, panel: Panel, status: PanelStatus, error: str | None) -> CaseResult:
        """The case's part of what the panel's evidence rests on, with what a baseline said instead."""
        refs = panel.sample_refs({case.id})
        keys, entries = self.keys(panel), self.journals["model"].entries
        outcomes = tuple(entries[keys[ref]].outcome for ref in refs[: status.evidence_counts.get(case.id, 0)])
        baseline: tuple[float, ...] = ()
        if paired := status.paired_counts.get(case.id, 0):
            scores = self.scores(panel, "baseline")
            baseline = tuple(scores[ref] for ref in refs[:paired])
        others = self._others(panel, refs, outcomes, baseline)
        return CaseResult(
            case=case,
            # What was right here and wrong there has its excerpt there.
            outcomes=tuple(
                replace(each, excerpt=others[each.index].excerpt)
                if each.excerpt is None and each.index in others
                else each
                for each in outcomes
            ),
            seconds=sum(outcome.generation.seconds for outcome in outcomes),
            error=error,
            baseline=baseline,
            flipped=tuple(
                BaselineAnswer(index=index, text=other.generation.text[:ANSWER_CHARACTERS], failure=other.score.failure)
                for index, other in others.items()
            ),
        )

    def _others(
        self, panel: Panel, refs: Sequence[SampleRef], outcomes: Sequence[Outcome], baseline: Sequence[float]
    ) -> dict[int, Outcome]:
        """The baseline's outcomes, by index, of the first samples on which the two scores differ."""
        differ = [
            ref for ref, outcome, score in zip(refs, outcomes, baseline, strict=False) if outcome.score.value != score
        ]
        keys = self.keys(panel)
        return {ref.sample_index: self.journals["baseline"].entries[keys[ref]].outcome for ref in differ[:MOST_FLIPPED]}
