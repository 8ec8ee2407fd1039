"""One scenario through many methods, on equal terms."""

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
"""The scores that tables show."""


@dataclass(frozen=True, eq=False)
class Compared:
    """One row: what a method reached, or why it did not."""

    name: str
    method: Method
    outcome: Outcome | None
    error: str | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know before believing its scores."""


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
    """A row for each method as it ends; one that fails says why and does not stop the others.

    With a `watch` each outcome has its history; looking does not count as the method's time. `max_accuracy_loss` as in `unlearn`.
    """
    check_limit(max_accuracy_loss)
    original, shared = evaluate(model, scenario), preparations or Preparations()
    for name, method in methods.items():
        try:
            outcome = unlearn(
                method, model, scenario, new_model=new_model, recipe=recipe, head=head,
                original=original, watch=watch, preparations=shared, max_accuracy_loss=max_accuracy_loss,
            )  # fmt: skip
        except Exception as error:
            yield Compared(name, method, None, f"{type(error).__name__}: {error}")
        else:
            yield Compared(name, method, outcome, notes=tuple(notes(scenario, outcome)))


def suited(kind: str | None = None) -> list[str]:
    """The methods for a kind of scenario, or for any: baselines first, then the others in the table's order."""
    baselines = ("original", "retrained")
    able = (name for name, cls in METHODS.items() if kind is None or kind in cls.scenarios)
    return [*baselines, *(name for name in able if name not in baselines)]


def rows(compared: list[Compared]) -> list[dict[str, Any]]:
    """Scores of each, and how far they are from the retrained model's."""
    oracle = next(
        (row.outcome for row in compared if row.name == "retrained" and row.outcome), None
    )
    return [_row(row, oracle) for row in compared]


def _row(row: Compared, oracle: Outcome | None) -> dict[str, Any]:
    if row.outcome is None:
        return {"method": row.name, "error": row.error}
    scores = {name: value for name, value in asdict(row.outcome.scores).items() if name in COLUMNS}
    return {
        "method": row.name,
        "scores": scores,
        "gaps": {name: _gap(value, getattr(oracle.scores, name)) for name, value in scores.items()}
        if oracle
        else None,
        "seconds": row.outcome.seconds,
        "prepare_seconds": row.outcome.prepare_seconds,
        "forget_samples": row.outcome.forget_samples,
        "processed": row.outcome.processed,
        "status": row.outcome.status,
        "kept_accuracy": asdict(row.outcome.kept_accuracy),
        "notes": list(row.notes),
    }


def _gap(value: float | None, oracle: float | None) -> float | None:
    return None if value is None or oracle is None else value - oracle
