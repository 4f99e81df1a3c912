"""What the journals say of each panel: for workers that go on from there, and for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixtures.checkpoint import Checkpoint
from fixtures.engines import execution
from fixtures.records import Case
from plugins.gates.panels import Panel, Standing, Who
from plugins.gates.pools import Element
from plugins.gates.rules import PanelKey, panels
from plugins.journal import Journal, Subject
from plugins.run import Run


def subject(run: Run, checkpoint: Checkpoint, name: str) -> Subject:
    """The name under which a checkpoint's results stand, computed as this run computes; raises EngineError."""
    how = execution(checkpoint, **run.engine_settings)
    return Subject(model=name, fingerprint=checkpoint.fingerprint, execution=how)


class Ledger:
    """The panels of a run over the journals of the model and, where there is one, of the baseline.

    `baseline_is_final`: nobody adds to the baseline's journal.
    """

    def __init__(
        self, run: Run, selected: Sequence[Case], journals: Mapping[Who, Journal], *, baseline_is_final: bool = False
    ):
        self.run = run
        self.journals = journals
        self.baseline_is_final = baseline_is_final
        self.panels = panels(run.thresholds, run.scope(selected))
        self._keys: dict[PanelKey, Mapping[Element, str]] = {}

    def keys(self, panel: Panel) -> Mapping[Element, str]:
        """The names of the panel's elements in the journals."""
        place = (panel.family, panel.length)
        if place not in self._keys:
            self._keys[place] = {
                element: self.run.key(panel.cases[element.case], element.sample) for element in panel.order
            }
        return self._keys[place]

    def refresh(self) -> int:
        """Read what was appended; the number of new results. Raises JournalError."""
        return sum(journal.refresh() for journal in self.journals.values())

    def scores(self, panel: Panel, who: Who = "model") -> dict[Element, float]:
        """Of all finished elements."""
        entries = self.journals[who].entries
        return {
            element: entries[key].outcome.score.value for element, key in self.keys(panel).items() if key in entries
        }

    def failures(self, panel: Panel) -> dict[str, str]:
        """By case id, in this run; an error of the baseline spoils the comparison, and so the case."""
        return {
            case: reason
            for journal in self.journals.values()
            for case, reason in journal.failures.items()
            if case in panel.cases
        }

    def standing(self, panel: Panel) -> Standing:
        """How far the panel is, by what was last read."""
        baseline = self.scores(panel, "baseline") if "baseline" in self.journals else None
        return panel.standing(
            self.scores(panel),
            baseline=baseline,
            control=baseline if self.baseline_is_final else None,
            failed=self.failures(panel),
        )
