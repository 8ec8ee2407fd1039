"""How an audit is done: the options of `duck audit` and `duck.audit`."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duck.audits.verdict import DEFAULT_MODELS, MARGIN, MAX_EPSILON, TIERS, Limits, Tier
from duck.errors import BadInput

DEFAULT_POOL_MODELS = 32


@dataclass(frozen=True)
class AuditOptions:
    """How an unlearned model is audited."""

    tier: Tier = "quick"
    models: int = DEFAULT_MODELS
    """Number of retrained models, those of --retrained included. With fewer than five the verdict
    can be "not forgotten" but not "forgotten"."""
    retrained: tuple[Path, ...] = ()
    """Runs of the method `retrained` for the same samples, with other seeds, or files of weights
    (.safetensors, .pt) of models that you trained without these samples."""
    default_recipe: bool = False
    """Train models by the default recipe if the original was trained elsewhere and its recipe is
    not known."""
    margin: float = MARGIN
    """Largest residual memory of a model that is called forgotten. 0: as if it never saw the
    samples, 1: as the original."""
    max_advantage: float | None = None
    """Largest membership advantage (2 AUC - 1) beyond that of retrained models. Default: 0.05, or
    what the audit can resolve where that is more."""
    max_epsilon: float = MAX_EPSILON
    """Largest lower bound of ε, in the full tier."""
    planted: bool = True
    """With five or more retrained models, also train three that keep 10, 30 and 50 % of the forget
    set, to state how much this audit recognises. None are trained if the recipe is not known."""
    pool: Path | None = None
    """Pool of `duck pool` for the full tier. Default: one is made and stored next to the run."""
    pool_models: int | None = None
    """Models of a pool that is made now, with half as many oracles. Default: 32."""
    original: Path | None = None
    """Run, or file of weights, of the original, if it is not found."""
    data: str | None = None
    """The data, if they are no longer where the run says."""
    root: Path | None = None
    """Folder of the named data sets, if it is another than the run says."""
    head: str | None = None
    """Name of the classifier head inside the model. Default: it is found."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that the run names. This executes
    its code."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    @property
    def limits(self) -> Limits:
        """How much may be left in a model that is called forgotten."""
        return Limits(self.margin, self.max_advantage, self.max_epsilon)

    @property
    def pool_size(self) -> int:
        """The number of models of a pool that is made now."""
        return DEFAULT_POOL_MODELS if self.pool_models is None else self.pool_models

    def check(self) -> None:
        """Raise an error for values out of range, and for what the tier does not use."""
        if self.tier not in TIERS:
            raise BadInput(f"tier is one of {', '.join(TIERS)}; got {self.tier!r}.")
        self.limits.check()
        if self.models < 1:
            raise BadInput(f"models is at least 1, got {self.models}.")
        if self.tier == "quick" and self.retrained:
            raise BadInput("The quick tier takes no retrained models: choose the tier oracle.")
        if self.tier == "quick" and self.default_recipe:
            raise BadInput(
                "The quick tier trains nothing and takes no default recipe: choose the tier oracle."
            )
        if self.tier != "full" and (self.pool or self.pool_models is not None):
            raise BadInput(f"The {self.tier} tier takes no pool: choose the tier full.")
        for place in self.retrained:
            if not place.exists():
                raise BadInput(f"The retrained model {place} does not exist.")

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the values of these fields, by default of all, that are not the default."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        chosen: Collection[str] = names or values
        return {name: values[name] for name in chosen if values[name] != defaults[name]}

    def flags(self, *names: str) -> list[str]:
        """Return the flags of these fields, by default of all, that are not the default."""
        words = []
        for name, value in self.changed(*names).items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else [value])]
        return words
