"""Run one method on one scenario: time it, count the samples it used, and score the result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import nn

from duck.checks import check_settings
from duck.earlier_requests import (
    DRIFT_ERRORS,
    MAX_DRIFT,
    EarlierScores,
    earlier_note,
    has_drifted,
    measure_drift,
    remembered_rank,
    score_earlier,
)
from duck.methods.base import METHODS, Method, check_kind
from duck.metrics import (
    SMALL,
    Confusion,
    KeptAccuracy,
    Scores,
    check_limit,
    confusion,
    evaluate,
    judge_kept,
    shows_forgetting,
)
from duck.models.user_models import in_dtypes_of, in_float32
from duck.models.weights import check_weights
from duck.predict import accuracy, check_model
from duck.preparation import Preparations
from duck.printable import counted
from duck.records import Loss, Share
from duck.runtime import Stopwatch, device_of
from duck.types import Drift, Original, Progress, Recipe, Scenario, Task

MAX_REQUESTS = 10
MAX_FORGOTTEN = 0.2
"""Requests in a row, and the share of forgotten samples. With more, models were a point less
accurate than retrained ones, or leaked (benchmarks/notes.md, requests in a row)."""
MAX_RETAIN_WATCHED = 2000
"""Retain samples that are scored after each epoch for the live table, about."""


@dataclass(frozen=True)
class Epoch:
    """Accuracies after an epoch: a row of the live table."""

    phase: str
    epoch: int
    loss: Loss
    retain: Share | None
    forget: Share
    holdout: Share | None = None


Watch = Callable[[Progress | Epoch], None]
"""Progress callback: called after steps and after each epoch."""
Status = Literal["done", "nothing forgotten", "damaged"]
"""damaged: more accuracy was lost than the limit allows."""


def status_of(forgot: bool | None, damaged: bool) -> Status:
    """Return the outcome of an unlearning; `damaged` has precedence."""
    if damaged:
        return "damaged"
    return "nothing forgotten" if forgot is False else "done"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The unlearned model with its scores."""

    model: nn.Module
    scores: Scores
    original: Scores
    seconds: float
    """Time of the method alone, including queued device work and any compilation."""
    prepare_seconds: float
    """Time of the preparation; 0 if the method has none."""
    forget_samples: int
    processed: int
    """Forget samples that the method trained on or, if it forgets by omission, omitted."""
    history: tuple[Epoch, ...]
    confusions: tuple[Confusion | None, Confusion | None]
    """Confusion matrices of the original and the unlearned model on the reported test samples."""
    kept_accuracy: KeptAccuracy | None
    """The accuracy before and after, and whether the loss exceeds the limit. None: there are
    neither unseen nor retain samples."""
    forgot: bool | None
    """False: nothing was forgotten. None: the scores do not show it."""
    method_notes: tuple[str, ...] = ()
    """Notes of the method about this run."""
    unmet: tuple[str, ...] = ()
    """Why the method did not reach its goal, such as a stop rule that was not met."""
    earlier: tuple[EarlierScores, ...] = ()
    """Scores on the forget sets of earlier requests, oldest first."""
    drift: Drift = field(default_factory=Drift)
    """What the requests so far cost."""

    @property
    def status(self) -> Status:
        """Whether it succeeded, forgot nothing, or damaged the model."""
        return status_of(self.forgot, self.is_damaged)

    @property
    def is_damaged(self) -> bool:
        """Whether more accuracy was lost than the limit allows."""
        return self.kept_accuracy is not None and self.kept_accuracy.damaged


def unlearn(
    method: Method,
    model: nn.Module | Original,
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
    """Run the method and score the result.

    model               the trained model; an Original also has its new_model, recipe and head
    original            scores of the model, if they are known
    watch               progress callback; its time is not counted
    preparations        cached preparations of methods that have one; timed separately
    max_accuracy_loss   the model is damaged if it loses more accuracy; None: the larger of 5 points
                        and 3 standard errors

    Half-precision models are computed in float32. The result has the model's own precision, and the
    scores are those of its rounded weights.
    """
    if not isinstance(model, Original):
        model = Original(model, new_model, recipe, head)
    given, new_model, recipe = model.model, model.new_model, model.recipe
    check_limit(max_accuracy_loss)
    check_kind(METHODS.name_of(method), scenario.kind, len(scenario.retain) > 0)
    check_settings(method)
    check_weights(given.state_dict(), "The model")
    model_float32 = in_float32(given)
    check_model(model_float32, scenario.data.train)
    task = scenario.task(
        new_model=None if new_model is None else lambda: in_float32(new_model()),
        recipe=recipe or Recipe(),
        head=model.head,
    )
    original = original or evaluate(model_float32, scenario)
    # Epochs of a preparation are reported but not recorded in the history: they may be reused by
    # requests that did not run them.
    prepared, prepare_seconds = (preparations or Preparations())(
        method, model_float32, replace(task, report=watch)
    )
    history: list[Epoch] = []
    method_notes: list[str] = []
    unmet: list[str] = []
    task = replace(task, prepared=prepared, note=method_notes.append, unmet=unmet.append)
    result, seconds, processed = _execute(method, model_float32, task, watch, history)
    returned = in_dtypes_of(result, given)
    unlearned = in_float32(returned)
    scores = evaluate(unlearned, scenario, original)
    is_retraining = _is_retraining(method)
    earlier = score_earlier(model_float32, unlearned, scenario, is_retraining)
    drift = measure_drift(model_float32, unlearned, scenario, is_retraining)
    outcome = Outcome(
        model=returned,
        scores=scores,
        original=original,
        seconds=seconds,
        prepare_seconds=prepare_seconds,
        forget_samples=len(task.forget),
        processed=processed,
        history=tuple(history),
        confusions=(confusion(model_float32, scenario), confusion(unlearned, scenario)),
        kept_accuracy=judge_kept(scenario, original, scores, max_accuracy_loss),
        forgot=_has_forgotten(method, scenario, original, scores),
        method_notes=(*method_notes, *_drift_notes(drift, earlier, scenario)),
        unmet=tuple(unmet),
        earlier=earlier,
        drift=drift,
    )
    return outcome if recipe else note_guessed_recipe(outcome, method, task.recipe)


def _execute(
    method: Method, model: nn.Module, task: Task, watch: Watch | None, history: list[Epoch]
) -> tuple[nn.Module, float, int]:
    """Call the method; return its model, its time, and how many forget samples it used."""
    forget, drawn = task.forget.counting()
    stopwatch = Stopwatch(device_of(model))
    report = _make_report(task, stopwatch, history, watch) if watch else None
    with stopwatch:
        unlearned = method(model, replace(task, forget=forget, report=report))
    processed = {"training": int(drawn.sum()), "omission": len(forget), "nothing": 0}
    return unlearned, stopwatch.seconds, processed[method.forgets_by]


def _has_forgotten(
    method: Method, scenario: Scenario, original: Scores, scores: Scores
) -> bool | None:
    """Return what the scores show; a retrained model never saw the samples."""
    if _is_retraining(method):
        return True
    return False if method.forgets_by == "nothing" else shows_forgetting(scenario, original, scores)


def certainly_forgot(method: Method, forgot: bool | None) -> bool | None:
    """Return whether a run forgot its request, or None if this is not certain.

    A score that became slightly worse does not prove it.
    """
    if _is_retraining(method):
        return True
    return False if forgot is False else None


def _is_retraining(method: Method) -> bool:
    return METHODS.name_of(method) == "retrained"


def note_guessed_recipe(outcome: Outcome, method: Method, recipe: Recipe) -> Outcome:
    """Add a note to the outcome of a retraining whose recipe may differ from the original's."""
    if not _is_retraining(method):
        return outcome
    note = (
        f"The original's recipe is not known: retrained with {recipe.epochs} epochs of "
        f"{recipe.optimizer}, batch size {recipe.batch_size}, learning rate {recipe.lr:g} "
        f"({recipe.schedule}), augment {recipe.augment}. "
        "A gap to Retrained may come from that."
    )
    return replace(outcome, method_notes=(*outcome.method_notes, note))


def _make_report(
    task: Task, stopwatch: Stopwatch, history: list[Epoch], watch: Watch
) -> Callable[[Progress], None]:
    """Return a callback that passes progress on and scores the model after each epoch."""
    stride = max(1, len(task.retain) // MAX_RETAIN_WATCHED)
    retain = task.retain.take(torch.arange(0, len(task.retain), stride))
    precision = task.recipe.precision

    def report(progress: Progress) -> None:
        with stopwatch.paused():
            watch(progress)
            if progress.is_epoch_end:
                model = progress.model
                forget = accuracy(model, task.forget, precision)
                retained, unseen = (
                    accuracy(model, part, precision) if part is not None and len(part) else None
                    for part in (retain, task.holdout)
                )
                epoch = Epoch(
                    progress.phase, progress.epoch, progress.loss, retained, forget, unseen
                )
                history.append(epoch)
                watch(epoch)

    return report


def notes(scenario: Scenario, outcome: Outcome) -> list[str]:
    """Return what a reader must know about the scores, the most important first."""
    return [
        *(earlier_note(scores) for scores in outcome.earlier if scores.is_remembered),
        *_outcome_notes(scenario, outcome),
        *_weak_original_notes(scenario, outcome.original),
        *outcome.method_notes,
        *_coverage_notes(scenario, outcome),
        *_unscored_class_notes(scenario),
    ]


def _outcome_notes(scenario: Scenario, outcome: Outcome) -> Iterator[str]:
    if outcome.is_damaged:
        yield str(outcome.kept_accuracy)
    if outcome.forgot is False and scenario.kind == "class":
        yield "Nothing was forgotten: accuracy on the forget samples did not fall."
    elif outcome.forgot is False:
        yield "Nothing was forgotten: neither accuracy nor loss on the forget samples got worse."
    yield from outcome.unmet
    if outcome.forgot is None:
        yield (
            "The scores do not show whether the samples were forgotten: on them the model is no "
            "worse than before, and no better than on unseen samples."
        )


def _drift_notes(
    drift: Drift, earlier: Sequence[EarlierScores], scenario: Scenario
) -> Iterator[str]:
    """Advise to retrain where the errors of requests in a row have added up."""
    if drift.requests < 2:
        return
    advice = f"Retrain now: {drift.requests} requests in a row"
    if has_drifted(drift):
        yield (
            f"{advice} have cost {100 * (drift.lost - drift.gained) / drift.n:.1f} points of "
            f"accuracy on the holdout (n = {drift.n}; the limit is {100 * MAX_DRIFT:g} point, or "
            f"{DRIFT_ERRORS} standard errors)."
        )
    test = scenario.data.test
    rank = remembered_rank(earlier, 0 if test is None else len(test) - len(scenario.data.holdout))
    if rank is not None:
        yield (
            f"{advice}, and the model knows samples of the earlier ones: the mean rank of their "
            f"losses among unseen samples is {rank:.2f} (0.5: as if never seen)."
        )
    share = drift.samples / (drift.samples + len(scenario.retain))
    if drift.requests >= MAX_REQUESTS or share >= MAX_FORGOTTEN:
        yield (
            f"{advice} have forgotten {100 * share:.0f} % of the training samples. Lost accuracy "
            "and traces of earlier requests add up. The holdout may be too small to show them "
            f"(lost so far: {100 * (drift.lost - drift.gained) / max(drift.n, 1):.1f} points of "
            f"{drift.n} samples). The method `retrained` resets these counts."
        )


def _coverage_notes(scenario: Scenario, outcome: Outcome) -> Iterator[str]:
    samples = counted(outcome.forget_samples, "forget sample")
    if outcome.processed < outcome.forget_samples:
        yield f"Only {outcome.processed} of {samples} were processed."
    if not len(scenario.retain):
        yield (
            "There are no retain samples: all training samples that were given are to be forgotten."
        )
    if outcome.kept_accuracy is None:
        yield (
            "No unseen data and no retain samples: nothing shows how much accuracy the model lost. "
            "Give test data (test= in Python)."
        )
    elif outcome.scores.test is None:
        yield (
            "No unseen data: no AUS, and the stop rule compared with retain samples. "
            "Give test data (test= in Python) for both."
        )
    elif scenario.kind == "samples" and not len(scenario.holdout) and len(scenario.retain):
        yield (
            "The test data are too few to hold some back: the stop rule compared with retained "
            "samples, and AUS is imprecise. Give at least two test samples of each class."
        )
    elif scenario.kind == "samples" and outcome.forget_samples < SMALL:
        yield f"AUS is imprecise: only {samples} ({SMALL} or more recommended)."
    if scenario.protocol == "paper":
        yield "Protocol 'paper': the stop rule used the test data that are reported."


def _weak_original_notes(scenario: Scenario, original: Scores) -> Iterator[str]:
    """Warn if the original is hardly better than chance: then the scores are meaningless."""
    forget, retain = len(scenario.forget), len(scenario.retain)
    correct = (original.forget * forget + (original.retain or 0) * retain) / (forget + retain)
    chance = 1 / (len(scenario.data.train.labels.unique()) if retain else scenario.data.num_classes)
    # With two classes, twice chance is out of reach.
    if correct <= min(2 * chance, chance + 0.1):
        yield (
            f"The original classifies only {100 * correct:.0f} % of the training samples "
            "correctly. Check that the weights, the mean and std of the pixels, and the order of "
            "the classes are those of its training."
        )


def _unscored_class_notes(scenario: Scenario) -> Iterator[str]:
    data = scenario.data
    if data.test is None or not len(scenario.retain):
        return
    known = torch.cat([data.train.labels, *(earlier.forget.labels for earlier in scenario.earlier)])
    unknown = data.test.labels[~torch.isin(data.test.labels, known)]
    if len(unknown):
        names = ", ".join(data.classes[label] for label in unknown.unique().tolist())
        yield (
            f"Test samples of classes without training samples ({names}) are not scored: "
            f"{len(unknown):,}."
        )
