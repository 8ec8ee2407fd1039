"""Residual memory of single models, by one retrained model: for searches, without an interval."""

from torch import nn

from duck.audits.memory import CLASS_LOGIT, PRIMARY, memory_measures
from duck.audits.outputs import ModelOutputs, make_setting, observe
from duck.types import Scenario

LEAST_DISTANCE = 0.1
"""Between the original and the retrained model. A measure that separates them less is left out."""


class ResidualMemory:
    """Measures how much of what the original knows of the forget samples a model still knows.

    0: as the retrained model, 1: as the original. Single samples that a model knows less than the
    retrained one count as well: they stand out.
    """

    def __init__(
        self,
        scenario: Scenario,
        original: nn.Module,
        retrained: nn.Module,
        head: str | None = None,
    ) -> None:
        self.scenario = scenario
        self.head = head
        before, after = self._observe(original), self._observe(retrained)
        known = memory_measures(make_setting(scenario), before)
        self.measures = []
        for measure in known:
            if measure.name not in (PRIMARY[0], CLASS_LOGIT) or measure.of_model is None:
                continue
            low = measure.of_model(after).value
            distance = measure.of_model(before).value - low
            if distance > LEAST_DISTANCE:
                self.measures.append((measure.of_model, low, distance))

    def _observe(self, model: nn.Module) -> ModelOutputs:
        return observe(model, self.scenario, self.head)

    def __call__(self, model: nn.Module) -> float:
        """Return the largest residual memory over the measures; 0 where there are none."""
        outputs = self._observe(model)
        values = [(read(outputs).value - low) / distance for read, low, distance in self.measures]
        if self.scenario.kind == "samples":
            values = [abs(value) for value in values]
        return max([0.0, *values])
