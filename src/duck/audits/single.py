"""A single forget sample: where its loss lies among those of unseen samples of its class.

One sample cannot be judged as a group can: the percentile is stated, before and after.
"""

import numpy as np

from duck.audits.attacks.loss import losses
from duck.audits.intervals import clopper_pearson
from duck.audits.outputs import ModelOutputs
from duck.audits.verdict import NO_VERDICT, Audit, Row, Tier
from duck.errors import BadInput
from duck.types import Estimate

USUAL = (0.05, 0.95)
"""Percentiles between which a model that never saw the sample puts it nine times of ten."""


def audit_single(
    unlearned: ModelOutputs, original: ModelOutputs, subject: str, tier: Tier
) -> Audit:
    """Return the audit of a request for one sample. It has numbers and no verdict."""
    before, after = (_percentile(outputs) for outputs in (original, unlearned))
    count = int((unlearned.unseen.labels == unlearned.forget.labels[0]).sum())
    about = "share of unseen samples of the class with a lower loss than the forgotten one"
    row = Row(about, "%", count, before, after, None)
    return Audit(
        subject=subject,
        verdict=NO_VERDICT,
        powered=None,
        tier=tier,
        reasons=(_describe(before, after, count),),
        attacks={"loss percentile": row},
    )


def _percentile(outputs: ModelOutputs) -> Estimate:
    """Return the share of unseen samples of the class whose loss is lower; ties count half."""
    same = outputs.unseen.take(np.flatnonzero(outputs.unseen.labels == outputs.forget.labels[0]))
    if not len(same):
        raise BadInput(
            "There is no unseen sample of the class of the forget sample to compare it with: give "
            "test data that have some."
        )
    own, others = losses(outputs.forget.take())[0], losses(same)
    below = float((others < own).sum() + 0.5 * (others == own).sum())
    return Estimate(below / len(others), *clopper_pearson(below, len(others)))


def _describe(before: Estimate, after: Estimate, count: int) -> str:
    low, high = USUAL
    usual = low <= after.value <= high
    meaning = (
        "as for nine of ten samples that a model never saw"
        if usual
        else "which is unusual for a sample that a model never saw"
    )
    return (
        f"One sample gives no verdict. Its loss is higher than that of {100 * after.value:.0f} % "
        f"of {count} unseen samples of its class, {meaning}; in the original it was higher than "
        f"that of {100 * before.value:.0f} %."
    )
