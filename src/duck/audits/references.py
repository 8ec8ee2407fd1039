"""The models that an audit compares with: retrained ones, and planted ones that keep a share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from duck.audits.oracle import ENOUGH
from duck.audits.sub_scenarios import SHARES, plant
from duck.audits.verdict import DEFAULT_MODELS
from duck.display import Display
from duck.errors import BadInput
from duck.retraining import Retraining
from duck.types import Scenario


@dataclass(frozen=True, eq=False)
class References:
    """The models to compare with. They are loaded or trained when they are first asked for."""

    scenario: Scenario
    retraining: Callable[[Scenario], Retraining] | None = None
    """Trains models without the forget set of a scenario. None: it is not known how."""
    count: int = DEFAULT_MODELS
    """The number of retrained models: those that are given, and others that are trained."""
    given: Sequence[nn.Module] = ()
    with_planted: bool = True
    """Whether to train planted models where there are enough retrained ones."""
    display: Display = field(default_factory=Display)
    may_train: Callable[[Sequence[float]], bool] = lambda seconds: True
    """Called before each training and after the last one, with the seconds of those before it.
    False: no more models are trained."""

    @cached_property
    def retrained(self) -> list[nn.Module]:
        """Models that never saw the forget set."""
        missing = self.count - len(self.given)
        if self.retraining is None and not self.given:
            raise BadInput(
                "Other tiers than quick compare with models retrained as the original was trained: "
                "give retrained=[...], or new_model= and recipe= to train them."
            )
        if self.retraining is None or missing <= 0:
            return list(self.given)
        retraining = self.retraining(self.scenario)
        untrained = retraining.missing(missing)
        if untrained:
            stored = f" and stored in {retraining.store.root}" if retraining.training else ""
            self.display.message(
                f"{untrained} of {self.count} retrained models are to be trained now{stored}."
            )
        with self.display.progress("retrained models") as progress:
            models = retraining(missing, progress, lambda: self.may_train(retraining.seconds))
        self.may_train(retraining.seconds)
        if len(models) < missing:
            self.display.message(
                f"{len(retraining.seconds)} of {untrained} were trained: the time ended."
            )
        return [*self.given, *models]

    @cached_property
    def planted(self) -> dict[float, list[nn.Module]]:
        """Models that keep a share of the forget set, by that share."""
        if not self.with_planted or self.retraining is None or len(self.retrained) < ENOUGH:
            return {}
        planted = {}
        with self.display.progress("planted models") as progress:
            for index, share in enumerate(SHARES):
                progress(index, len(SHARES))
                retraining = self.retraining(plant(self.scenario, share))
                models = retraining(1, may_train=lambda: self.may_train(()))
                if models:
                    planted[share] = models
            progress(len(SHARES), len(SHARES))
        return planted
