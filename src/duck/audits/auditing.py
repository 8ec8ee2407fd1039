"""Run an audit: predict with each model once, then let a tier judge the outputs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from torch import nn

from duck.audits.full import evidence_of
from duck.audits.oracle import Models, oracle
from duck.audits.outputs import ModelOutputs, check_unseen, compute_outputs, make_setting
from duck.audits.quick import Coverage, quick, quick_single
from duck.audits.references import References
from duck.audits.relearn import relearning
from duck.audits.verdict import Audit, Limits, Tier
from duck.errors import BadInput
from duck.models.user_models import check_gradients
from duck.pools.reader import Pool
from duck.printable import counted
from duck.runtime import device_of, global_seed, seeded
from duck.types import Original, Scenario


@dataclass(frozen=True, eq=False)
class AuditInput:
    """One unlearning to audit: the models before and after, and what the run recorded."""

    scenario: Scenario
    original: Original
    unlearned: nn.Module
    method: str = ""
    request: str = ""
    """The request in a few words, such as "class 3"."""
    coverage: Coverage | None = None
    notes: tuple[str, ...] = ()
    """Further sentences for the reasons of the audit."""
    requested: int | None = None
    """The forget samples of the request, if the audit may use a part of them. None: it uses all."""

    @property
    def subject(self) -> str:
        """The first sentences of the audit: what was to be forgotten, and by which method."""
        used = len(self.scenario.forget)
        requested = used if self.requested is None else self.requested
        samples = counted(requested, "training sample")
        part = "" if requested == used else f" This audit used {used} of them."
        request = f" ({self.request})" if self.request else ""
        method = f" Method: {self.method}." if self.method else ""
        done = ""
        if self.coverage:
            # The coverage of a part is that of the part, unless the method left samples out.
            is_complete = self.coverage.processed == self.coverage.requested == used
            done = (
                f" Processed or left out: {requested if is_complete else self.coverage.processed}."
            )
        return f"To forget: {samples} of {self.scenario.data.name}{request}.{part}{method}{done}"

    def compute_outputs(self, model: nn.Module, name: str) -> ModelOutputs:
        """Return the outputs of a model on all samples of the audit."""
        return compute_outputs(model, self.scenario, self.original.head, name)


def run_audit(
    inputs: AuditInput,
    tier: Tier,
    references: References | None = None,
    pool_of: Callable[[], Pool] | None = None,
    limits: Limits | None = None,
) -> Audit:
    """Run an audit of any tier, and train the models that it needs.

    Args:
        inputs: The unlearning to audit.
        tier: One forget sample gets the audit of the quick tier, whatever is asked for.
        references: The models to compare with, above the quick tier.
        pool_of: Opens or builds the pool, in the full tier.
        limits: How much may be left in a model that is called forgotten.
    """
    if tier == "quick" or len(inputs.scenario.forget) == 1:
        audit = replace(audit_quick(inputs, limits), tier=tier)
    else:
        assert references is not None
        check_gradients()  # These are errors before anything is trained.
        make_setting(inputs.scenario)
        pool = pool_of() if tier == "full" and pool_of is not None else None
        audit = audit_oracle(inputs, references.retrained, pool, references.planted, limits)
    not_tested = (*audit.not_tested, *_earlier_requests(inputs.scenario))
    return replace(audit, not_tested=not_tested, limits=limits or Limits())


def _earlier_requests(scenario: Scenario) -> tuple[str, ...]:
    """Return a sentence about each earlier request, whose samples an audit does not look at."""
    return tuple(
        f"{earlier.request}, forgotten by an earlier request: this audit covers only the last one."
        for earlier in scenario.earlier
    )


def audit_quick(inputs: AuditInput, limits: Limits | None = None) -> Audit:
    """Run the quick tier: seconds, and no other model."""
    start = time.monotonic()
    is_single = len(inputs.scenario.forget) == 1
    check_unseen(inputs.scenario)
    setting = None if is_single else make_setting(inputs.scenario)
    unlearned = inputs.compute_outputs(inputs.unlearned, "unlearned model")
    original = inputs.compute_outputs(inputs.original.model, "original")
    if setting is None:
        return _add_time(quick_single(unlearned, original, inputs.subject), start)
    audit = quick(setting, unlearned, original, inputs.subject, inputs.coverage, limits)
    reasons = (*audit.reasons, *inputs.notes, *_structure(inputs))
    return _add_time(replace(audit, reasons=reasons), start)


def audit_oracle(
    inputs: AuditInput,
    retrained: Sequence[nn.Module],
    pool: Pool | None = None,
    planted: Mapping[float, Sequence[nn.Module]] | None = None,
    limits: Limits | None = None,
) -> Audit:
    """Run the oracle tier against retrained models, or with a pool the full tier.

    Args:
        inputs: The unlearning to audit.
        retrained: Models that never saw the forget samples.
        pool: The pool of the full tier.
        planted: Models that keep a share of the forget set, by that share, to state the power.
        limits: How much may be left in a model that is called forgotten.
    """
    start = time.monotonic()
    setting = make_setting(inputs.scenario)
    models = Models(
        inputs.compute_outputs(inputs.unlearned, "unlearned model"),
        inputs.compute_outputs(inputs.original.model, "original"),
        [
            inputs.compute_outputs(model, f"retrained model {index}")
            for index, model in enumerate(retrained)
        ],
        _untrained_outputs(inputs),
        {
            share: [inputs.compute_outputs(model, "planted model") for model in group]
            for share, group in (planted or {}).items()
        },
    )
    _refuse_copies(models.unlearned, models.retrained)
    audit = oracle(
        setting,
        models,
        inputs.subject,
        limits=limits,
        relearned=relearning(inputs.scenario, inputs.original.model, inputs.unlearned, retrained),
        coverage=inputs.coverage,
        notes=(*inputs.notes, *_structure(inputs)),
        pool=evidence_of(pool, setting, limits or Limits()) if pool else None,
    )
    return _add_time(audit, start)


def _structure(inputs: AuditInput) -> tuple[str, ...]:
    """Return a sentence where the modules differ from those of the original."""
    before, after = (
        [type(module).__name__ for module in model.modules() if not list(module.children())]
        for model in (inputs.original.model, inputs.unlearned)
    )
    if before == after:
        return ()
    return (
        f"The unlearned model has other layers than the original ({len(after)} and {len(before)}). "
        "Added layers can hide what the others hold.",
    )


def _untrained_outputs(inputs: AuditInput) -> ModelOutputs | None:
    if inputs.original.new_model is None:
        return None
    device = device_of(inputs.original.model)
    with global_seed(seeded(inputs.scenario.seed, "audit", "untrained"), device):
        untrained = inputs.original.new_model().to(device)
    return inputs.compute_outputs(untrained, "untrained model")


def _refuse_copies(unlearned: ModelOutputs, references: Sequence[ModelOutputs]) -> None:
    """Raise an error where two models are equal: their spread would be too small."""
    for index, model in enumerate(references):
        if np.array_equal(model.forget.logits, unlearned.forget.logits):
            raise BadInput(
                f"The audited model is itself retrained model {index}: "
                "leave it out of the models it is compared with."
            )
        for other, earlier in enumerate(references[:index]):
            if np.array_equal(model.forget.logits, earlier.forget.logits):
                raise BadInput(
                    f"Retrained models {other} and {index} are the same model: "
                    "train each with a seed of its own."
                )


def _add_time(audit: Audit, start: float) -> Audit:
    today = datetime.now(UTC).date().isoformat()
    return replace(audit, seconds=time.monotonic() - start, date=today)
