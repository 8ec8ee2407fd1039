"""One line from the original to the scores: run a method on a scenario, time it alone, count what it saw."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from duck.checks import check_settings
from duck.earlier_requests import EarlierScores, earlier_note, score_earlier
from duck.methods.base import METHODS, Method, check_kind
from duck.metrics import (
    SMALL,
    Confusion,
    KeptAccuracy,
    Scores,
    check_limit,
    confusion,
    evaluate,
    forgot,
    judge_kept,
)
from duck.models.user_models import in_dtypes_of, in_float32
from duck.models.weights import check_weights
from duck.predict import accuracy, check_model
from duck.preparation import Preparations
from duck.printable import counted
from duck.runtime import Stopwatch, device_of
from duck.types import Augment, Batch, Examples, Ids, Progress, Recipe, Scenario, Task

WATCHED = 2000
"""Retain samples that the live table looks at."""


class Epoch(NamedTuple):
    """A line of the live table."""

    phase: str
    epoch: int
    loss: float
    retain: float
    forget: float
    holdout: float | None


Watch = Callable[[Progress | Epoch], None]
Status = Literal["done", "nothing forgotten", "damaged"]
"""damaged: more accuracy was lost than is accepted."""


def status_of(forgot: bool | None, damaged: bool) -> Status:
    """Return how an unlearning ended, the worst first."""
    if damaged:
        return "damaged"
    return "nothing forgotten" if forgot is False else "done"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The unlearned model and what is known of it."""

    model: nn.Module
    scores: Scores
    original: Scores
    seconds: float
    """Of the method alone, the device's queue emptied; compilation is in it where the recipe compiles."""
    prepare_seconds: float
    """Of what the method computed beforehand; 0 where it computes nothing."""
    forget_samples: int
    processed: int
    """Forget samples that the method trained on or, where it works by omission, left out."""
    history: tuple[Epoch, ...]
    confusions: tuple[Confusion | None, Confusion | None]
    """Of the original and of the unlearned model, on the test samples that are reported."""
    kept_accuracy: KeptAccuracy
    """What the unlearning cost, and whether that is more than is accepted."""
    forgot: bool | None
    """False: nothing was forgotten. None: the scores cannot tell."""
    said: tuple[str, ...] = ()
    """What the method notes of this run."""
    earlier: tuple[EarlierScores, ...] = ()
    """Of what earlier requests forgot, the first one first."""

    @property
    def status(self) -> Status:
        return status_of(self.forgot, self.kept_accuracy.damaged)


class Counted:
    """Examples that remember which of them were drawn for training."""

    def __init__(
        self, examples: Examples, seen: Tensor | None = None, places: Tensor | None = None
    ) -> None:
        self.examples = examples
        self.seen = (
            seen
            if seen is not None
            else torch.zeros(len(examples), dtype=torch.bool, device=examples.device)
        )
        self.places = places if places is not None else torch.arange(len(examples))

    @property
    def labels(self) -> Tensor:
        return self.examples.labels

    @property
    def ids(self) -> Ids:
        return self.examples.ids

    @property
    def shape(self) -> tuple[int, ...]:
        return self.examples.shape

    @property
    def device(self) -> torch.device:
        return self.examples.device

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, rows: Tensor) -> "Counted":
        return Counted(self.examples.take(rows), self.seen, self.places[rows])

    def to(self, device: torch.device | str) -> "Counted":
        return Counted(self.examples.to(device), self.seen.to(device), self.places)

    def batches(
        self, size: int, generator: torch.Generator | None = None, augment: Augment = "none"
    ) -> Iterator[Batch]:
        places = self.places.to(self.device)
        for batch in self.examples.batches(size, generator, augment):
            if generator is not None:
                self.seen[places[batch.rows]] = True
            yield batch

    @property
    def digests(self) -> list[bytes]:
        return self.examples.digests

    def fingerprint(self) -> str:
        return self.examples.fingerprint()


def unlearn(
    method: Method,
    model: nn.Module,
    scenario: Scenario,
    *,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
    original: Scores | None = None,
    watch: Watch | None = None,
    preparations: Preparations | None = None,
    max_accuracy_loss: float | None = None,
) -> Outcome:
    """Run the method and score the result. `watch` hears of each epoch; its time does not count.

    Half-precision models are computed in float32; the result has their precision, and the scores are those of its rounded weights.
    What the method computes beforehand comes from `preparations`, or is made now, and is timed apart. A model that loses more kept
    accuracy than `max_accuracy_loss` is damaged; None: the larger of 5 points and 3 standard errors.
    """
    check_limit(max_accuracy_loss)
    check_kind(METHODS.name_of(method), scenario.kind)
    check_settings(method)
    check_weights(model.state_dict(), "The model")
    given, model = model, in_float32(model)
    check_model(model, scenario.data.train)
    task = scenario.task(
        new_model=None if new_model is None else lambda: in_float32(new_model()),
        recipe=recipe or Recipe(),
        head=head,
    )
    forget = Counted(task.forget)
    stopwatch = Stopwatch(device_of(model))
    history: list[Epoch] = []
    said: list[str] = []
    report = _observer(task, stopwatch, history, watch) if watch else None
    original = original or evaluate(model, scenario)
    # Heard of, but neither looked at nor counted: what is prepared once is no epoch of this run, and serves others that did not see it.
    prepared, prepare_seconds = (preparations or Preparations())(
        method, model, replace(task, report=watch)
    )
    _load_optimizers()
    with stopwatch:
        unlearned = method(
            model, replace(task, forget=forget, prepared=prepared, report=report, note=said.append)
        )
    returned = in_dtypes_of(unlearned, given)
    unlearned = in_float32(returned)
    processed = {"training": int(forget.seen.sum()), "omission": len(forget), "nothing": 0}[
        method.forgets_by
    ]
    scores = evaluate(unlearned, scenario, original)
    confusions = confusion(model, scenario), confusion(unlearned, scenario)
    times = stopwatch.seconds, prepare_seconds
    judged = (
        judge_kept(scenario, original, scores, max_accuracy_loss),
        _forgot(method, scenario, original, scores),
    )
    earlier = score_earlier(model, unlearned, scenario, _is_retraining(method))
    outcome = Outcome(
        returned,
        scores,
        original,
        *times,
        len(forget),
        processed,
        tuple(history),
        confusions,
        *judged,
        tuple(said),
        earlier,
    )
    return outcome if recipe else by_guess(outcome, method, task.recipe)


def _forgot(method: Method, scenario: Scenario, original: Scores, scores: Scores) -> bool | None:
    """As the scores show it, unless the method leaves no doubt: a fresh model never saw the samples."""
    if _is_retraining(method):
        return True
    return False if method.forgets_by == "nothing" else forgot(scenario, original, scores)


def surely_forgot(method: Method, forgot: bool | None) -> bool | None:
    """Return whether a run forgot its request, where that is beyond doubt; a score that got a little worse is no proof."""
    return True if _is_retraining(method) else False if forgot is False else None


def _is_retraining(method: Method) -> bool:
    return METHODS.name_of(method) == "retrained"


def by_guess(outcome: Outcome, method: Method, recipe: Recipe) -> Outcome:
    """The outcome with a note, where the method is a retraining, that its recipe is not known to be the original's."""
    if METHODS.name_of(method) != "retrained":
        return outcome
    steps = f"{recipe.epochs} epochs of {recipe.optimizer}, batch size {recipe.batch_size}"
    taken = f"{steps}, learning rate {recipe.lr:g} ({recipe.schedule}), augment {recipe.augment}"
    note = f"The original's recipe is not known: retrained with {taken}. A gap to Retrained may come from that."
    return replace(outcome, said=(*outcome.said, note))


@cache
def _load_optimizers() -> None:
    """The first optimizer of a process loads for seconds: not the time of the method that happens to come first."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def _observer(
    task: Task, stopwatch: Stopwatch, history: list[Epoch], watch: Watch
) -> Callable[[Progress], None]:
    some = task.retain.take(torch.arange(0, len(task.retain), max(1, len(task.retain) // WATCHED)))

    def observe(news: Progress) -> None:
        with stopwatch.paused():
            watch(news)
            if news.ended:
                splits = (some, task.forget, task.holdout)
                seen = [
                    None if split is None else accuracy(news.model, split, task.recipe.precision)
                    for split in splits
                ]
                history.append(
                    Epoch(
                        news.phase, news.epoch, news.loss, seen[0] or 0.0, seen[1] or 0.0, seen[2]
                    )
                )
                watch(history[-1])

    return observe


def notes(scenario: Scenario, outcome: Outcome) -> list[str]:
    """What a reader must know before believing the scores; the worst first."""
    said = [earlier_note(scores) for scores in outcome.earlier if scores.is_known]
    if outcome.kept_accuracy.damaged:
        said.append(str(outcome.kept_accuracy))
    if outcome.forgot is False:
        whole = scenario.kind == "class"
        same = (
            "accuracy on the forget samples did not fall"
            if whole
            else "neither accuracy nor loss on the forget samples got worse"
        )
        said.append(f"Nothing was forgotten: {same}.")
    if outcome.forgot is None:
        said.append(
            "The scores do not show whether the samples were forgotten: on them the model is no worse than before, and no better than on "
            "unseen samples."
        )
    said += [*_unknown(scenario, outcome.original), *outcome.said]
    if outcome.processed < outcome.forget_samples:
        said.append(
            f"Only {outcome.processed} of {counted(outcome.forget_samples, 'forget sample')} were processed."
        )
    if outcome.scores.test is None:
        said.append(
            "No unseen data: no AUS, and the stop rule compared with retained samples. Give test data (test= in Python) for both."
        )
    elif scenario.kind == "samples" and not len(scenario.holdout):
        said.append(
            "The test data are too few to hold some back: the stop rule compared with retained samples, and AUS is coarse. "
            "Give at least two test samples of each class."
        )
    elif scenario.kind == "samples" and outcome.forget_samples < SMALL:
        said.append(
            f"n too small: AUS over {counted(outcome.forget_samples, 'forget sample')} is coarse (below {SMALL})."
        )
    if scenario.protocol == "paper":
        said.append("Protocol 'paper': the stop rule saw the data that are reported.")
    return [*said, *_strange(scenario)]


def _unknown(scenario: Scenario, original: Scores) -> list[str]:
    """Where the original hardly does better than chance, what follows says nothing."""
    forget, retain = len(scenario.forget), len(scenario.retain)
    right = (original.forget * forget + original.retain * retain) / (forget + retain)
    chance = 1 / len(scenario.data.train.labels.unique())
    # Twice chance is out of reach with two classes.
    if right > min(2 * chance, chance + 0.1):
        return []
    return [
        f"The original gets {100 * right:.0f} % of the training samples right: are weights, mean and std of the pixels and the order of "
        "the classes those it was trained with?"
    ]


def _strange(scenario: Scenario) -> list[str]:
    data = scenario.data
    if data.test is None:
        return []
    known = torch.cat([data.train.labels, *(earlier.forget.labels for earlier in scenario.earlier)])
    strange = data.test.labels[~torch.isin(data.test.labels, known)]
    if not len(strange):
        return []
    names = ", ".join(data.classes[label] for label in strange.unique().tolist())
    samples = f"{counted(len(strange), 'test sample')} {'is' if len(strange) == 1 else 'are'}"
    return [f"{samples} of classes without training samples ({names}), which are not scored."]
