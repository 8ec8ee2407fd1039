"""Relearning: training steps until a model knows the forgotten samples again."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.audits.statistics import prediction_interval
from duck.audits.verdict import Row
from duck.errors import Diverged
from duck.methods.base import clone
from duck.models.head import logits_of
from duck.predict import accuracy
from duck.runtime import seeded
from duck.training.batching import ShuffledPass, Step
from duck.training.loop import fit
from duck.types import Estimate, Recipe, Scenario

SHARE = 0.9
"""Of the original's accuracy on the forget samples."""
MOST = 200
LEARNING = Recipe(
    epochs=MOST,
    batch_size=64,
    lr=1e-3,
    momentum=0.9,
    weight_decay=0.0,
    schedule="constant",
    precision="float32",
)
"""Slow enough for the number of steps to differ."""


def relearning(
    scenario: Scenario, original: nn.Module, unlearned: nn.Module, retrained: Sequence[nn.Module]
) -> Row:
    """Count the steps of each model; retrained models show what is needed without knowledge."""
    forget = scenario.data.train.take(scenario.forget)
    goal = SHARE * accuracy(original, forget)
    ours, *theirs = (steps(model, scenario, goal) for model in (unlearned, *retrained))
    band = prediction_interval([float(count) for count in theirs]) if len(theirs) > 1 else None
    about = (
        f"steps of {LEARNING.batch_size} forget samples to {100 * SHARE:.0f} % of the original's "
        f"accuracy on them, at most {MOST}"
    )
    return Row(
        about,
        "steps",
        len(forget),
        Estimate(0.0),
        Estimate(float(ours)),
        Estimate(band.mean, max(0.0, band.low), band.high) if band else None,
    )


def steps(model: nn.Module, scenario: Scenario, goal: float) -> int:
    """Count the steps until the accuracy on the forget samples reaches the goal."""
    forget, taken = scenario.data.train.take(scenario.forget), 0
    if accuracy(model, forget) >= goal:
        return 0
    learner = clone(model)

    def loss(net: nn.Module, step: Step) -> Tensor:
        return cross_entropy(logits_of(net(step["forget"].images)), step["forget"].labels)

    def reached() -> bool:
        nonlocal taken
        taken += 1
        return taken >= MOST or accuracy(learner, forget) >= goal

    size = min(LEARNING.batch_size, len(forget))
    generator = seeded(scenario.seed, "audit", "relearn")
    try:
        fit(
            learner,
            ShuffledPass("forget", forget, size, "none"),
            loss,
            LEARNING,
            generator,
            stop=reached,
            check_every=1,
        )
    except Diverged:  # an output of -inf, by which a class may be hidden, cannot be trained
        return MOST
    return taken
