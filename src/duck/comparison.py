"""Compare methods on one scenario."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from duck.methods.base import METHODS, Method
from duck.metrics import check_limit, evaluate
from duck.preparation import Preparations
from duck.types import Recipe, Scenario
from duck.unlearning import Outcome, Watch, notes, unlearn

COLUMNS = ("aus", "forget", "retain", "test", "forget_test", "retain_test")
"""The scores that tables contain."""


@dataclass(frozen=True, eq=False)
class Compared:
    """The outcome of one method, or the error that ended it."""

    name: str
    method: Method
    outcome: Outcome | None
    error: str | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know about the scores."""


def compare(
    model: nn.Module,
    scenario: Scenario,
    methods: Mapping[str, Method],
    *,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
    watch: Watch | None = None,
    preparations: Preparations | None = None,
    max_accuracy_loss: float | None = None,
) -> Iterator[Compared]:
    """Run the methods one after another and yield the outcome of each.

    A method that fails yields its error and does not stop the others. The arguments are those of
    `unlearn`.
    """
    check_limit(max_accuracy_loss)
    original = evaluate(model, scenario)
    shared_preparations = preparations or Preparations()
    for name, method in methods.items():
        try:
            outcome = unlearn(
                method,
                model,
                scenario,
                new_model=new_model,
                recipe=recipe,
                head=head,
                original=original,
                watch=watch,
                preparations=shared_preparations,
                max_accuracy_loss=max_accuracy_loss,
            )
        except Exception as error:
            yield Compared(name, method, None, f"{type(error).__name__}: {error}")
        else:
            yield Compared(name, method, outcome, notes=tuple(notes(scenario, outcome)))


def suited(kind: str | None = None) -> list[str]:
    """Return the methods for a kind of scenario, or all methods; baselines come first."""
    baselines = ("original", "retrained")
    able = (name for name, cls in METHODS.items() if kind is None or kind in cls.scenarios)
    return [*baselines, *(name for name in able if name not in baselines)]


def rows(compared: list[Compared]) -> list[dict[str, Any]]:
    """Return the scores of each method and their differences from the retrained model."""
    retrained = next(
        (row.outcome for row in compared if row.name == "retrained" and row.outcome), None
    )
    return [_row(row, retrained) for row in compared]


def _row(row: Compared, retrained: Outcome | None) -> dict[str, Any]:
    if row.outcome is None:
        return {"method": row.name, "error": row.error}
    scores = {name: value for name, value in asdict(row.outcome.scores).items() if name in COLUMNS}
    gaps = None
    if retrained:
        gaps = {
            name: _gap(value, getattr(retrained.scores, name)) for name, value in scores.items()
        }
    return {
        "method": row.name,
        "scores": scores,
        "gaps": gaps,
        "seconds": row.outcome.seconds,
        "prepare_seconds": row.outcome.prepare_seconds,
        "forget_samples": row.outcome.forget_samples,
        "processed": row.outcome.processed,
        "status": row.outcome.status,
        "kept_accuracy": asdict(row.outcome.kept_accuracy),
        "notes": list(row.notes),
    }


def _gap(value: float | None, retrained: float | None) -> float | None:
    return None if value is None or retrained is None else value - retrained
