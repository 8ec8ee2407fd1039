"""From models to an audit: ask each model once, then let a tier judge."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from torch import nn

from duck.audits.full import from_pool
from duck.audits.oracle import oracle
from duck.audits.outputs import ModelOutputs, make_setting, observe
from duck.audits.quick import Coverage, quick
from duck.audits.relearn import relearning
from duck.audits.verdict import Audit
from duck.errors import BadInput
from duck.pools.reader import Pool
from duck.printable import counted
from duck.runtime import device_of, global_seed, seeded
from duck.types import Scenario

DEFAULT_MODELS = 6
"""Retrained models: one more than the five an interval should have, so that each can be judged by five others."""


@dataclass(frozen=True, eq=False)
class Case:
    """One unlearning: the models before and after, and what is known of it."""

    scenario: Scenario
    original: nn.Module
    unlearned: nn.Module
    method: str = ""
    who: str = ""
    """In a few words, such as "class 3"."""
    coverage: Coverage | None = None
    head: str | None = None
    new_model: Callable[[], nn.Module] | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know besides."""

    @property
    def subject(self) -> str:
        data, count = self.scenario.data, len(self.scenario.forget)
        who = f"{counted(count, 'training sample')} of {data.name}" + (
            f" ({self.who})" if self.who else ""
        )
        ran = f"{self.method} ran on" if self.method else "The model was to forget"
        done = f"; {self.coverage.processed} of them were processed" if self.coverage else ""
        return f"{ran} {who}{done}."

    def observe(self, model: nn.Module, name: str) -> ModelOutputs:
        return observe(model, self.scenario, self.head, name)


def audit_quick(case: Case) -> Audit:
    """Seconds, and no other model."""
    begun = time.monotonic()
    setting = make_setting(case.scenario)
    found = quick(
        setting,
        case.observe(case.unlearned, "unlearned model"),
        case.observe(case.original, "original"),
        case.subject,
        case.coverage,
    )
    return _stamped(replace(found, reasons=(*found.reasons, *case.notes)), begun)


def audit_oracle(case: Case, retrained: Sequence[nn.Module], pool: Pool | None = None) -> Audit:
    """Against retrained models; with a pool the full tier."""
    begun = time.monotonic()
    setting = make_setting(case.scenario)
    unlearned, original = (
        case.observe(case.unlearned, "unlearned model"),
        case.observe(case.original, "original"),
    )
    references = [
        case.observe(model, f"retrained model {index}") for index, model in enumerate(retrained)
    ]
    _refuse_twins(unlearned, references)
    blank = (
        case.observe(_untrained(case, case.new_model), "untrained model")
        if case.new_model
        else None
    )
    relearned = relearning(case.scenario, case.original, case.unlearned, retrained)
    found = oracle(
        setting, unlearned, original, references, case.subject,
        untrained=blank, relearned=relearned, coverage=case.coverage, notes=case.notes,
        more=from_pool(pool, setting) if pool else None,
    )  # fmt: skip
    return _stamped(found, begun)


def _untrained(case: Case, new_model: Callable[[], nn.Module]) -> nn.Module:
    device = device_of(case.original)
    with global_seed(seeded(case.scenario.seed, "audit", "untrained"), device):
        return new_model().to(device)


def _refuse_twins(unlearned: ModelOutputs, references: Sequence[ModelOutputs]) -> None:
    """Equal models would make the spread of retrained ones too small."""
    for place, one in enumerate(references):
        if np.array_equal(one.forget.logits, unlearned.forget.logits):
            raise BadInput(
                f"The audited model is itself retrained model {place}: leave it out of the models it is compared with."
            )
        for other, two in enumerate(references[:place]):
            if np.array_equal(one.forget.logits, two.forget.logits):
                raise BadInput(
                    f"Retrained models {other} and {place} are the same model: train each with a seed of its own."
                )


def _stamped(audit: Audit, begun: float) -> Audit:
    return replace(
        audit, seconds=time.monotonic() - begun, date=datetime.now(UTC).date().isoformat()
    )
