"""Residual memory of single models, by one retrained model: for searches, without an interval."""

from torch import nn

from duck.audits.memory import CLASS_LOGIT, PRIMARY, memory_measures
from duck.audits.outputs import ModelOutputs, make_setting, observe
from duck.errors import BadInput
from duck.types import Scenario

READ = (PRIMARY[0], CLASS_LOGIT)
"""The measures that a search reads: those of outputs. Embeddings scatter more."""
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
        self.original = self._observe(original)
        before, after = self._values(self.original), self._values(self._observe(retrained))
        self.low = after
        self.distance = {
            name: before[name] - after[name]
            for name in after
            if before[name] - after[name] > LEAST_DISTANCE
        }
        if not self.distance:
            raise BadInput(
                "The original does not stand out from a retrained model on these samples: there "
                "is no memory to measure. Take another objective, gap or aus."
            )

    def _observe(self, model: nn.Module) -> ModelOutputs:
        return observe(model, self.scenario, self.head)

    def _values(self, outputs: ModelOutputs) -> dict[str, float]:
        # The measures are functions of this scenario, which cannot be sent to other processes.
        measures = memory_measures(make_setting(self.scenario), self.original)
        return {
            measure.name: measure.of_model(outputs).value
            for measure in measures
            if measure.name in READ and measure.of_model is not None
        }

    def __call__(self, model: nn.Module) -> float:
        """Return the largest residual memory over the measures."""
        values = self._values(self._observe(model))
        shares = [
            (values[name] - self.low[name]) / distance for name, distance in self.distance.items()
        ]
        if self.scenario.kind == "samples":
            shares = [abs(share) for share in shares]
        return max([0.0, *shares])
