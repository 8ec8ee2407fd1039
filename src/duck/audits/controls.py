"""Controls: models whose verdict is known. An audit that gets one wrong has no verdict.

Planted models, which keep a known share of the forget set, show what an audit recognises.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from duck.audits.judge import Judge, verdict_of
from duck.audits.memory import PRIMARY
from duck.audits.outputs import LOWEST, ModelOutputs, Setting, SplitOutputs
from duck.audits.scores import Array, softmax
from duck.audits.verdict import FORGOTTEN, NOT_FORGOTTEN, RETRAINED_ACCURACY, Control, Power
from duck.runtime import seeded

HEAD_STEPS = 100
HEAD_DECAY = 1e-5
SEVERAL = 5
"""With at least this many retrained models, one of them may lie outside."""
ANY_OTHER = f"any verdict but {FORGOTTEN}"
REFERENCE_CONTROLS = frozenset({"retrained", RETRAINED_ACCURACY})
"""Controls of the reference models themselves. Where one fails, these models decide nothing."""
POWER = 0.8
SHORTFALL = 0.1
"""Of accuracy on retained samples. A retrained model that lacks more was trained differently."""


def disguise(original: ModelOutputs, setting: Setting) -> dict[str, ModelOutputs]:
    """Modify outputs of the original to look forgotten, although the model has not changed."""
    disguised = {
        "head retrained": retrain_head(original, setting),
        "output noise": add_noise(original, setting),
    }
    if setting.kind == "class":
        return {"logit masked": mask_forgotten(original, setting), **disguised}
    return disguised


def mask_forgotten(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """Mask the logits of the forgotten classes."""

    def mask(split: SplitOutputs) -> Array:
        masked = split.logits.copy()
        masked[:, setting.forgotten_classes] = LOWEST
        return masked

    return _with_logits(original, mask)


def add_noise(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """Add noise to every logit, with the standard deviation of the logits."""
    generator = seeded(setting.seed, "audit", "noise")
    width = float(original.retain.logits.std())

    def blur(split: SplitOutputs) -> Array:
        noise = torch.randn(split.logits.shape, generator=generator).double().numpy()
        return split.logits + width * noise

    return _with_logits(original, blur)


def retrain_head(original: ModelOutputs, setting: Setting) -> ModelOutputs:
    """Fit a new classifier head on retained samples alone, over unchanged embeddings."""
    retain = original.retain
    centre = retain.embeddings.mean(0)
    spread = retain.embeddings.std(0) + 1e-6

    def inputs(split: SplitOutputs) -> Array:
        return np.hstack([(split.embeddings - centre) / spread, np.ones((len(split), 1))])

    weights = _fit_softmax(inputs(retain), np.eye(setting.num_classes)[retain.labels])
    return _with_logits(original, lambda split: inputs(split) @ weights)


def _fit_softmax(features: Array, targets: Array) -> Array:
    """Fit multinomial logistic regression; returns weights (features, classes)."""
    num_classes = targets.shape[1]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(-1, num_classes)
        logits = features @ weights
        cross_entropy = (logsumexp(logits, axis=1) - (logits * targets).sum(1)).mean()
        value = cross_entropy + HEAD_DECAY * float(flat @ flat)
        slope = features.T @ (softmax(logits) - targets) / len(features) + 2 * HEAD_DECAY * weights
        return float(value), slope.ravel()

    start = np.zeros(features.shape[1] * num_classes)
    options = {"maxiter": HEAD_STEPS}
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    weights: Array = result.x.reshape(-1, num_classes)
    return weights


def check(judge: Judge, disguised: Sequence[str]) -> dict[str, Control]:
    """Judge the original, its modified outputs, and each retrained model by the others."""
    got = verdict_of(judge.grades("original"))
    checked = {"original": Control(NOT_FORGOTTEN, got, got == NOT_FORGOTTEN)}
    for name in disguised:
        got = verdict_of(judge.grades(name))
        checked[name] = Control(ANY_OTHER, got, got != FORGOTTEN)
    checked["retrained"] = _check_retrained(judge)
    models = judge.measurements.models
    references = [models[name] for name in judge.references]
    checked[RETRAINED_ACCURACY] = check_accuracy(models["original"], references)
    return checked


def _check_retrained(judge: Judge) -> Control:
    """Judge each retrained model by the others."""
    count = len(judge.references)
    got = [verdict_of(judge.grades(name)) for name in judge.references]
    wrong = got.count(NOT_FORGOTTEN)
    # One in twenty retrained models lies outside by chance: a single one of several may.
    allowed = 1 if count >= SEVERAL else 0
    result = f"{wrong} of {count} {NOT_FORGOTTEN}, each judged by the others"
    return Control(f"at most {allowed} {NOT_FORGOTTEN}", result, wrong <= allowed)


def check_accuracy(original: ModelOutputs, references: Sequence[ModelOutputs]) -> Control:
    """Check that every retrained model knows the retained samples about as well as the original.

    A difference to a model that does not says nothing about forgetting.
    """
    least = float(original.retain.correct.mean()) - SHORTFALL
    lowest = min(float(outputs.retain.correct.mean()) for outputs in references)
    return Control(
        f"at least {100 * max(least, 0):.1f} %",
        f"{100 * lowest:.1f} % of retained samples right",
        lowest >= least,
    )


def _with_logits(original: ModelOutputs, logits: Callable[[SplitOutputs], Array]) -> ModelOutputs:
    """Replace the logits of every split."""
    return original.map(lambda split: replace(split, logits=logits(split)))


def find_power(judge: Judge, shares: Sequence[float]) -> Power:
    """Return the smallest residual memory and share that the audit recognises with 80 % power.

    The residual memory of planted models is interpolated between their shares, and not below the
    smallest one.
    """
    memory = {}
    for share in sorted(shares):
        names = [name for name in judge.measurements.models if name.startswith(f"planted {share} ")]
        found = [judge.residual_memory(name).get(PRIMARY[0]) for name in names]
        values = [item.value for item in found if item is not None]
        if values:
            memory[share] = float(np.mean(values))
    needed = judge.detectable_memory(POWER)
    by_share = {f"{share:g}": value for share, value in memory.items()}
    if not memory or needed is None:
        return Power(needed, planted=by_share)
    grid = np.linspace(min(memory), 1, 1001)
    points = {**memory, 1.0: 1.0}
    expected = np.maximum.accumulate(np.interp(grid, list(points), list(points.values())))
    reached = expected >= needed
    if not reached.any():
        return Power(needed, planted=by_share)
    return Power(needed, float(grid[reached.argmax()]), bool(reached[0]), by_share)
