"""The shortest way: a plain nn.Module, a plain torch Dataset, and the ids to forget."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from duck import fit
from duck.audits.auditing import DEFAULT_MODELS, Case, audit_oracle, audit_quick
from duck.audits.observed import setting
from duck.audits.quick import Coverage
from duck.audits.retraining import Retraining
from duck.audits.verdict import Audit, Tier
from duck.data.torch_dataset import MapStyle, from_dataset
from duck.errors import BadInput
from duck.experiment import Outcome, Watch, notes, unlearn
from duck.methods.base import METHODS, Method
from duck.methods.presets import default_recipe, preset
from duck.metrics import Scores, forgot_nothing
from duck.models import build
from duck.runtime import device_of, pick_device, seeded
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetSamples, Request
from duck.types import Data, Recipe, Report, Scenario, Task


@dataclass(frozen=True, eq=False)
class Result:
    """An unlearned model and what is known of it; printing it tells."""

    model: nn.Module
    scenario: Scenario
    method: Method
    outcome: Outcome
    original: nn.Module
    """The model that was given, as it was."""
    task: Task
    """What the method saw."""
    recipe: Recipe | None = None
    """How the original was trained; None: that was not said."""

    @property
    def scores(self) -> Scores:
        return self.outcome.scores

    @property
    def seconds(self) -> float:
        return self.outcome.seconds

    @property
    def forgot(self) -> bool:
        """False: the model remembers the forget samples as well as before."""
        return not forgot_nothing(self.outcome.original, self.outcome.scores)

    @property
    def notes(self) -> list[str]:
        return notes(self.scenario, self.outcome)

    def __str__(self) -> str:
        before, after, outcome = self.outcome.original, self.scores, self.outcome
        names = ("forget", "retain", "test", "forget_test", "retain_test", "aus")
        pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
        lines = [f"  {name:<12}{old:8.3f} -> {new:.3f}" for name, old, new in pairs if old is not None and new is not None]
        done = f"{METHODS.name_of(self.method)}: {outcome.processed} of {outcome.forget_samples} samples in {self.seconds:.2f} s"
        return "\n".join([*self.notes[:1], done, *lines, *self.notes[1:]])


def train(
    model: str | Callable[[], nn.Module],
    data: Data,
    seed: int = 0,
    recipe: Recipe | None = None,
    *,
    device: str = "auto",
    report: Report | None = None,
    checkpoint: Path | None = None,
) -> nn.Module:
    """A model of that name, or of that factory, trained on all training samples."""
    place = pick_device(device)
    net = (build(model, data.num_classes, data.train.shape, seed) if isinstance(model, str) else model()).to(place)
    recipe = recipe or default_recipe(data.name, len(data.train), data.augment)
    fit.train(net, data.train.to(place), recipe, seeded(seed, "train"), report, checkpoint)
    return net.eval()


def forget(
    model: nn.Module,
    train_set: MapStyle | Data,
    forget: Iterable[int | str | Tensor] | Request,
    *,
    test: MapStyle | None = None,
    method: str | Method = "duck",
    seed: int = 0,
    head: str | None = None,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    watch: Watch | None = None,
) -> Result:
    """A copy of the model that has forgotten the samples with these ids (indices into the data set), or what a request says.

    test        data the model never saw: a fifth of it steers the stop rule, the rest is scored
    method      a name from `duck list methods`, with the settings for data of this size, or a configured method
    new_model   builds a fresh model, and recipe says how it was trained: for the method `retrained`
    """
    data = (train_set if isinstance(train_set, Data) else from_dataset(train_set, test)).to(device_of(model))
    request = forget if isinstance(forget, ForgetClasses | ForgetFraction | ForgetSamples) else _by_ids(forget)
    scenario = request(data, seed)
    chosen = preset(method, data.name, scenario.kind, len(data.train)) if isinstance(method, str) else method
    outcome = unlearn(chosen, model, scenario, new_model=new_model, recipe=recipe, head=head, watch=watch)
    task = scenario.task(new_model=new_model, recipe=recipe or Recipe(), head=head)
    return Result(outcome.model, scenario, chosen, outcome, model, task, recipe)


def audit(
    unlearned: nn.Module | Result,
    scenario: Scenario | None = None,
    *,
    original: nn.Module | None = None,
    retrained: Sequence[nn.Module] = (),
    tier: Tier | None = None,
    models: int = DEFAULT_MODELS,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
) -> Audit:
    """Attack an unlearned model, or the Result of `forget`, and say what was found; printing the audit tells.

    retrained   models trained without the forget samples, the original's recipe, other seeds; five or more
    tier        quick needs none of them; oracle, the default where some are given, trains the missing ones up to `models`, for which
                it needs new_model and recipe
    new_model   builds a fresh model, and recipe says how the original was trained; of a Result what `forget` was given. No other recipe
                is taken in its place: models of another recipe differ from the original for that alone
    """
    case, recipe = _case(unlearned, scenario, original, new_model, recipe, head)
    chosen = tier or ("oracle" if retrained else "quick")
    if chosen == "quick":
        return audit_quick(case)
    if chosen != "oracle":
        raise BadInput(f"tier is 'quick' or 'oracle', got {chosen!r}. The full tier needs a pool of models: `duck audit RUN --tier full`.")
    if models < 1:
        raise BadInput(f"models is at least 1, got {models}.")
    setting(case.scenario)  # nothing is trained for an audit that cannot be
    fresh: list[nn.Module] = []
    if case.new_model is not None and recipe is not None and (tier or not retrained):
        fresh = Retraining(case.scenario, case.original, case.new_model, recipe)(max(0, models - len(retrained)))
    if not retrained and not fresh:
        missing = " and ".join(name for name, value in (("new_model", case.new_model), ("recipe", recipe)) if value is None)
        raise BadInput(
            "The oracle tier compares with models retrained as the original was trained: give retrained=[...], or new_model= and recipe= "
            f"to train them. Not said: {missing}."
        )
    return audit_oracle(case, [*retrained, *fresh])


def _case(
    unlearned: nn.Module | Result,
    scenario: Scenario | None,
    original: nn.Module | None,
    new_model: Callable[[], nn.Module] | None,
    recipe: Recipe | None,
    head: str | None,
) -> tuple[Case, Recipe | None]:
    if isinstance(unlearned, Result):
        done, task = unlearned.outcome, unlearned.task
        coverage, name = Coverage(done.processed, done.forget_samples), METHODS.name_of(unlearned.method)
        factory = new_model or task.new_model
        case = Case(unlearned.scenario, original or unlearned.original, unlearned.model, name, "", coverage, head or task.head, factory)
        return case, recipe or unlearned.recipe
    if scenario is None or original is None:
        raise BadInput("Say what the model was to forget, and what it was before: duck.audit(unlearned, scenario, original=original).")
    return Case(scenario, original, unlearned, head=head, new_model=new_model), recipe


def _by_ids(ids: Iterable[int | str | Tensor] | Request) -> ForgetSamples:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise BadInput("forget= takes ids (indices into the data set), or a request such as duck.ForgetClasses([3]).")
    return ForgetSamples(str(item.item()) if isinstance(item, Tensor) else str(item) for item in ids)
