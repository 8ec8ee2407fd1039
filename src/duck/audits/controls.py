"""Models whose verdict is known beforehand: an audit that gets them wrong cannot be believed about another model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from duck.audits.judge import MeasurementCache
from duck.audits.margins import softmax
from duck.audits.measurements import Measure
from duck.audits.outputs import LOWEST, Array, ModelOutputs, Setting, SplitOutputs
from duck.audits.verdict import FORGOTTEN, NOT_FORGOTTEN, Control
from duck.runtime import seeded

HEAD_STEPS = 100
HEAD_DECAY = 1e-5
SEVERAL = 5
NEVER = f"never {FORGOTTEN}"
AS_GOOD = "retrained accuracy"
SHORTFALL = 0.1
"""Of accuracy on retained samples: retrained models that lack more than this were not trained as the original was."""


def forged(original: ModelOutputs, setting: Setting) -> dict[str, ModelOutputs]:
    """The original made to look as if it had forgotten, in ways that leave its knowledge in place."""
    made = {
        "head retrained": head_retrained(original, setting),
        "output noise": noisy(original, setting),
    }
    return {"logit masked": masked(original, setting), **made} if setting.kind == "class" else made


def masked(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """Never says a forgotten class, and knows it as before."""

    def hide(logits: Array) -> Array:
        hidden = logits.copy()
        hidden[:, setting.forgotten] = LOWEST
        return hidden

    return _changed(original, lambda part: hide(part.logits))


def noisy(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """Noise on every output, as wide as the outputs are spread."""
    generator, width = seeded(setting.seed, "audit", "noise"), float(original.retain.logits.std())
    return _changed(
        original,
        lambda part: (
            part.logits
            + width * torch.randn(part.logits.shape, generator=generator).double().numpy()
        ),
    )


def head_retrained(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """A new classifier head, fitted on retained samples alone over embeddings that stay as they were."""
    retain = original.retain
    centre, spread = retain.embeddings.mean(0), retain.embeddings.std(0) + 1e-6
    answers = np.eye(setting.num_classes)[retain.labels]

    def inputs(part: SplitOutputs) -> Array:
        return np.hstack([(part.embeddings - centre) / spread, np.ones((len(part), 1))])

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(-1, setting.num_classes)
        logits = features @ weights
        value = (logsumexp(logits, axis=1) - (logits * answers).sum(1)).mean() + HEAD_DECAY * float(
            flat @ flat
        )
        slope = features.T @ (softmax(logits) - answers) / len(features) + 2 * HEAD_DECAY * weights
        return float(value), slope.ravel()

    features = inputs(retain)
    found = minimize(
        loss,
        np.zeros(features.shape[1] * setting.num_classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": HEAD_STEPS},
    )
    weights = found.x.reshape(-1, setting.num_classes)
    return _changed(original, lambda part: inputs(part) @ weights)


def check(
    readings: MeasurementCache,
    measures: Sequence[Measure],
    names: Sequence[str],
    references: Sequence[str],
    more: Mapping[str, Mapping[str, float]],
) -> dict[str, Control]:
    """Judge the untouched original, the forged models, and each retrained model by the others; `more` p-values by name of the model."""
    found = {}
    for name in names:
        got = readings.judge(measures, name, references, more.get(name)).verdict
        found[name] = Control(
            NOT_FORGOTTEN if name in ("original", "logit masked") else NEVER, got, got != FORGOTTEN
        )
    passed = sum(
        readings.judge(measures, name, references, more.get("retrained")).verdict == FORGOTTEN
        for name in references
    )
    count = len(references)
    # One in twenty retrained models lies outside by chance: a single one of several does not condemn the audit.
    enough = passed >= (count - 1 if count >= SEVERAL else count)
    found["retrained"] = Control(
        FORGOTTEN, f"{FORGOTTEN} ({passed} of {count}, each judged by the others)", enough
    )
    return {
        **found,
        AS_GOOD: as_good(
            readings.models["original"], [readings.models[name] for name in references]
        ),
    }


def as_good(original: ModelOutputs, references: Sequence[ModelOutputs]) -> Control:
    """Whether every retrained model knows the retained samples about as well as the original; others say nothing of forgetting."""
    least = float(original.retain.correct.mean()) - SHORTFALL
    lowest = min(float(seen.retain.correct.mean()) for seen in references)
    return Control(
        f"at least {100 * max(least, 0):.1f} %",
        f"{100 * lowest:.1f} % of retained samples right",
        lowest >= least,
    )


def _changed(original: ModelOutputs, logits: Callable[[SplitOutputs], Array]) -> ModelOutputs:
    parts = {name: replace(part, logits=logits(part)) for name, part in vars(original).items()}
    return ModelOutputs(**parts)
