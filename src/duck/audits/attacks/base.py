"""The registry of attacks, and the classes that every attack derives from."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.scores import Array, Margins, Outputs, Scored, margins
from duck.audits.statistics import Alternative
from duck.audits.verdict import Tier
from duck.pools.reader import Pool
from duck.registry import Registry
from duck.types import Ids

LOW_AUC = (
    "An AUC far below 0.5 is no success: an attacker who reverses the order finds the forgotten "
    "samples just as well."
)
Needs = Literal["outputs", "retrained models", "pool"]


class Attack:
    """A membership attack. The class attributes are its facts; a higher score means "member"."""

    title: ClassVar[str]
    """The name of its row in an audit and in `duck list attacks`."""
    description: ClassVar[str]
    """What it does, in one sentence, for `duck list attacks`."""
    direction: ClassVar[str]
    """Which way is "was a member". It is the text of the row in an audit."""
    paper: ClassVar[str] = "none"
    tier: ClassVar[Tier | None]
    """The lowest tier that runs it. None: audits do not run it, only grids do."""
    needs: ClassVar[Needs]
    decisive: ClassVar[bool] = False
    """Whether it can decide the verdict. Other attacks are reported only."""
    columns: ClassVar[tuple[str, ...]] = ()
    """The scores that a table of `duck bench` shows. Empty: grids cannot run this attack."""
    further_scores: ClassVar[tuple[str, ...]] = ()
    """Scores that a result of `duck bench` has besides those of the columns."""
    ratios: ClassVar[Mapping[str, str]] = {}
    """For tables, by kind of request: how many members there are for each unseen sample."""
    remark: ClassVar[str] = ""
    """A sentence below its tables."""
    settings: ClassVar[tuple[str, ...]] = ()
    """The settings of a grid that its result depends on, besides its name: `splits`, or `shadows`
    and `pool` if it compares with a pool of shadow models."""
    order: ClassVar[int] = 1000
    """Position among the rows of its tier; equal numbers are ordered by registration."""

    @classmethod
    def needs_shadows(cls) -> bool:
        """Return whether a grid compares with a pool of shadow models."""
        return "pool" in cls.settings


ATTACKS: Registry[type[Attack]] = Registry("attack", group="duck.attacks")


class ModelAttack(Attack):
    """An attack on one model: it is made for a setting and called with the model's outputs."""

    def __init__(self, setting: Setting, pool: Pool | None = None) -> None:
        self.setting = setting

    @abstractmethod
    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Return scores of forget samples, the members, and of unseen samples."""

    @classmethod
    def count_non_members(cls, setting: Setting) -> int:
        """Count the unseen samples that get a score."""
        return len(setting.matched)

    @classmethod
    def is_possible(cls, setting: Setting) -> bool:
        """Return whether the setting has enough samples for this attack."""
        return True

    def compare(
        self, outputs: ModelOutputs, score: Callable[[Outputs], Array], unseen_ids: Ids
    ) -> Scored:
        """Score the forget samples and the unseen ones that they are compared with.

        An id may be that of a training and of a test sample: `unseen_ids` are those of the result.
        """
        setting = self.setting
        forget = score(outputs.forget)[setting.members]
        unseen = score(outputs.unseen)[setting.matched]
        return Scored(
            np.concatenate([outputs.forget.ids[setting.members], unseen_ids[setting.matched]]),
            np.concatenate([forget, unseen]),
            np.repeat([True, False], [len(forget), len(unseen)]),
        )


class OutputsAttack(ModelAttack):
    """An attack that needs nothing but the outputs of the attacked model."""

    tier: ClassVar[Tier | None] = "quick"
    needs = "outputs"
    alternative: ClassVar[Alternative] = "two-sided"
    """The test of the quick tier: "greater" where scores below chance are no evidence."""


class ThresholdAttack(OutputsAttack):
    """An attack that gives each sample one number, computed from the outputs on it alone."""

    columns = ("tpr_1", "tpr_0.1", "auc")
    remark = LOW_AUC

    @staticmethod
    @abstractmethod
    def score(outputs: Outputs) -> Array:
        """Return a score for each sample; higher means "was a member"."""

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score forget samples and matched unseen ones."""
        return self.compare(outputs, self.score, np.char.add("unseen:", outputs.unseen.ids))


class RetrainedAttack(ModelAttack):
    """An attack that compares the attacked model with models retrained without the forget set."""

    tier = "oracle"
    needs = "retrained models"

    def __init__(
        self,
        setting: Setting,
        pool: Pool | None = None,
        retrained: Sequence[ModelOutputs] = (),
    ) -> None:
        super().__init__(setting, pool)
        self.retrained = retrained

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples; a retrained model is compared with the others."""
        return self.against(outputs, [other for other in self.retrained if other is not outputs])

    @abstractmethod
    def against(self, outputs: ModelOutputs, retrained: Sequence[ModelOutputs]) -> Scored:
        """Return scores by a comparison with these retrained models, at least two."""


class PoolAttack(ModelAttack):
    """An attack that compares the attacked model with the models of a pool."""

    tier = "full"
    needs = "pool"

    def __init__(self, setting: Setting, pool: Pool | None = None) -> None:
        super().__init__(setting, pool)
        assert pool is not None
        self.pool = pool

    @cached_property
    def oracles(self) -> Margins:
        """The margins of models that never saw a candidate."""
        return self.pool.margins("oracle")

    def target(self, outputs: ModelOutputs) -> Scored:
        """Return the attacked model's margins, with the ids that the pool uses."""
        unseen_ids = self.pool.test_ids(outputs.unseen.ids)
        found = self.compare(outputs, lambda side: margins(side.logits, side.labels), unseen_ids)
        return found.take(np.isin(found.ids, self.pool.ids))


def model_attacks(
    setting: Setting,
    *tiers: Tier,
    pool: Pool | None = None,
    retrained: Sequence[ModelOutputs] = (),
) -> dict[str, ModelAttack]:
    """Make the attacks on one model that belong to these tiers, by title."""
    made: dict[str, ModelAttack] = {}
    for entry in sorted(ATTACKS.values(), key=lambda entry: entry.order):
        if entry.tier not in tiers or not issubclass(entry, ModelAttack):
            continue
        if entry.is_possible(setting):
            needs_retrained = issubclass(entry, RetrainedAttack)
            models = {"retrained": retrained} if needs_retrained else {"pool": pool}
            made[entry.title] = entry(setting, **models)
    return made
