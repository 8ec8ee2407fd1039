"""The audit of one forget sample, with a percentile by hand."""

from dataclasses import replace

import numpy as np
import pytest

from duck.audits.outputs import ModelOutputs, SplitOutputs
from duck.audits.quick import quick_single
from duck.errors import BadInput
from tests.audits.witnesses import sample_model


def one_sample(margin: float) -> ModelOutputs:
    """Return outputs on one sample of class 0 and on ten unseen ones with margins 0 to 9."""
    seen = sample_model(0, 0.0)

    def split(margins: list[float]) -> SplitOutputs:
        logits = np.zeros((len(margins), 2))
        logits[:, 0] = margins
        names = np.array([str(place) for place in range(len(margins))])
        return SplitOutputs(names, logits, np.zeros(len(margins), np.int64), logits)

    return replace(seen, forget=split([margin]), unseen=split([float(at) for at in range(10)]))


@pytest.mark.parametrize(("margin", "below"), [(20.0, 0.0), (-1.0, 1.0), (4.5, 0.5), (9.0, 0.05)])
def test_the_percentile_counts_unseen_samples_with_a_lower_loss(
    margin: float, below: float
) -> None:
    audit = quick_single(one_sample(margin), one_sample(20.0), "subject")
    row = audit.attacks["loss percentile"]
    assert row.unlearned is not None
    assert row.original is not None
    assert (row.unlearned.value, row.original.value, row.n) == (below, 0.0, 10)
    assert audit.verdict == "no verdict"


def test_a_class_without_unseen_samples() -> None:
    alone = one_sample(1.0)
    other = replace(alone.unseen, labels=np.ones(10, np.int64))
    with pytest.raises(BadInput, match="no unseen sample"):
        quick_single(replace(alone, unseen=other), alone, "subject")
