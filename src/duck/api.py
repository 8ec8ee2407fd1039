"""The shortest way: a plain nn.Module, a plain torch Dataset, and the ids to forget."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duck.audits.auditing import DEFAULT_MODELS, Case, audit_oracle, audit_quick
from duck.audits.next_step import audit_obstacle
from duck.audits.outputs import make_setting
from duck.audits.quick import Coverage
from duck.audits.verdict import NOT_FORGOTTEN, Audit, Tier
from duck.data.checks import check_data
from duck.data.examples import Pixels
from duck.data.torch_dataset import MapStyle, from_dataset
from duck.earlier_requests import EarlierScores, with_history
from duck.errors import BadInput
from duck.methods.base import METHODS, Method
from duck.methods.presets import default_recipe, preset
from duck.metrics import SMALL, KeptAccuracy, Scores, loss_change
from duck.models import build
from duck.models.head import compute_logits, dtype_of
from duck.models.user_models import (
    accept_images,
    accepting_images,
    check_given,
    check_gradients,
    in_dtypes_of,
    in_float32,
    without_hooks,
)
from duck.predict import check_model
from duck.printable import counted, printable
from duck.retraining import Retraining
from duck.runtime import device_of, fixed_seed, pick_device, seeded
from duck.scenarios import (
    ForgetSamples,
    Request,
    add_copies,
    data_after,
    describe_forget_set,
    scenario_after,
)
from duck.training import loop
from duck.types import Data, Recipe, Report, Scenario, Task
from duck.unlearning import Outcome, Watch, notes, surely_forgot, unlearn


@dataclass(frozen=True, eq=False)
class Result:
    """An unlearned model with its scores; print it for a summary."""

    model: nn.Module
    """In evaluation mode, whatever mode the original is in."""
    scenario: Scenario
    method: Method
    outcome: Outcome
    original: nn.Module
    """The model that was given, as it was; of a further request the one that the earlier request made."""
    task: Task
    """What the method saw."""
    recipe: Recipe | None = None
    """How the original was trained; None: that was not said."""
    remarks: tuple[str, ...] = ()
    """What was taken for granted of the data."""
    data: Data | None = None
    """All training and test data, what earlier requests forgot included; None: the scenario's."""

    @property
    def earlier(self) -> tuple[EarlierScores, ...]:
        """What earlier requests forgot, scored again, the first one first."""
        return self.outcome.earlier

    @property
    def scores(self) -> Scores:
        return self.outcome.scores

    @property
    def seconds(self) -> float:
        return self.outcome.seconds

    @property
    def forgot(self) -> bool:
        """False: the model remembers the forget samples as well as before."""
        return self.outcome.forgot is not False

    @property
    def kept_accuracy(self) -> KeptAccuracy:
        """Accuracy before and after on what was to be kept; `damaged`: more was lost than `max_accuracy_loss`."""
        return self.outcome.kept_accuracy

    @property
    def notes(self) -> list[str]:
        return [*notes(self.scenario, self.outcome), *self.remarks]

    def __str__(self) -> str:
        before, after, outcome = self.outcome.original, self.scores, self.outcome
        names = ("forget", "retain", "test", "forget_test", "retain_test", "aus")
        pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
        lines = [
            f"  {name:<12}{old:8.3f} -> {new:.3f}"
            for name, old, new in pairs
            if old is not None and new is not None
        ]
        if self.scenario.kind == "samples" and outcome.forget_samples < SMALL:
            lines += loss_change(asdict(before), asdict(after))
        lines += [f"  forgotten earlier: {one}" for one in self.earlier]
        done = f"{METHODS.name_of(self.method)}: {outcome.processed} of {counted(outcome.forget_samples, 'sample')} in {self.seconds:.2f} s"
        who = f"Request: {describe_forget_set(self.scenario)}."
        return printable(
            "\n".join([*self.notes[:1], who, self._verdict, done, *lines, *self.notes[1:]])
        )

    @property
    def _verdict(self) -> str:
        if not self.forgot:
            return f"Verdict: {NOT_FORGOTTEN}."
        obstacle = audit_obstacle(
            {name: len(getattr(self.scenario, name)) for name in ("forget", "holdout", "test")}
        )
        if obstacle:
            return f"Verdict: none without an audit. {obstacle}"
        return "Verdict: none without an audit, duck.audit(result). Lower accuracy or higher loss on the forget samples is no proof."


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
    """Train a model on all training samples.

    Args:
        model: A name from `duck list models`, or a function that builds a fresh model.
        data: The data set, such as `duck.load("cifar10")`.
        seed: Seed of the initialisation and of the order of the batches.
        recipe: How to train. None: the default recipe for the data set and the model.
        device: `auto`, `cpu`, `cuda` and so on.
        report: Progress callback: called after each epoch.
        checkpoint: File that training resumes from and writes to.
    """
    check_gradients()
    place = pick_device(device)
    given = (
        build(model, data.num_classes, data.train.shape, seed)
        if isinstance(model, str)
        else _made(model, seed, place)
    )
    net, train_set = in_float32(check_given(given)).to(place), data.train.to(place)
    name = model if isinstance(model, str) else ""
    recipe = recipe or default_recipe(data.name, len(data.train), data.augment, name)
    with accepting_images(net):
        check_model(net, train_set)
        loop.train(net, train_set, recipe, seeded(seed, "train"), report, checkpoint)
    return in_dtypes_of(net, given).eval()


def _made(factory: Callable[[], nn.Module], seed: int, device: torch.device) -> nn.Module:
    """As `build` makes named models: same seed, same weights, and the caller's generators stay as they were."""
    with fixed_seed(seed, device):
        return factory()


def forget(
    model: nn.Module | Result,
    train_set: MapStyle | Data | None = None,
    forget: Iterable[int | str | Tensor] | Request | None = None,
    *,
    test: MapStyle | None = None,
    method: str | Method = "duck",
    seed: int = 0,
    head: str | None = None,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    watch: Watch | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    with_copies: bool = False,
    max_accuracy_loss: float | None = None,
) -> Result:
    """Return a copy of the model, in evaluation mode, that has forgotten the given samples.

    Args:
        model: The trained model. For a further request, the Result of the earlier one: it brings
            the data, and what was forgotten stays out of the retain set and is scored again.
        train_set: What the model was trained on, with the labels it knows. Classes that were
            forgotten before may be missing. Samples that were forgotten before must be missing,
            or the model learns them again.
        forget: Indices into the data set, a Boolean mask of its length, or a request such as
            `ForgetClasses([3])`.
        test: Data the model never saw. A fifth of it steers the stop rule, the rest is scored.
            A `Data` has its own test samples.
        method: A name from `duck list methods`, with the preset for data of this size, or a
            configured method.
        seed: Seed of the random numbers.
        head: Name of the classifier head inside the model. None: it is found.
        new_model: Builds a fresh model of the same architecture, for the method `retrained`.
        recipe: How the original was trained, for the method `retrained` and for audits.
        watch: Progress callback: called after each epoch.
        mean: Mean per channel, of pixels in 0..1, that the model was trained with. Only for uint8
            tensors and PIL images. Default: the mean of the data.
        std: Standard deviation per channel, likewise.
        with_copies: Also forget training samples with exactly the pixels of a forget sample.
        max_accuracy_loss: Accuracy on unseen samples that may be lost, such as 0.1 for 10 points.
            A model that loses more is damaged (`result.kept_accuracy.damaged`). None: the larger
            of 5 points and 3 standard errors.
    """
    check_gradients()
    if isinstance(train_set, Data) and test is not None:
        raise BadInput(
            "test= goes with a torch Dataset; a duck.Data has test data of its own: put them there, or leave test= out."
        )
    previous, original = (model, model.model) if isinstance(model, Result) else (None, model)
    check_given(original)
    if previous is not None:
        if train_set is not None or test is not None or len(mean) or len(std):
            raise BadInput(
                "The result of an earlier request brings its training and test data: leave train_set, test, mean and std out."
            )
        data, remarks = previous.data or previous.scenario.data, previous.remarks
        new_model, recipe, head = (
            new_model or previous.task.new_model,
            recipe or previous.recipe,
            head or previous.task.head,
        )
    elif train_set is None:
        raise BadInput(
            "train_set= is missing: what the model was trained on. Only the result of an earlier request brings its data."
        )
    else:
        with accepting_images(original):
            data, remarks = _data(in_float32(original), train_set, test, mean, std)
    request = forget if callable(forget) and not isinstance(forget, type) else _by_ids(forget, data)
    if with_copies and previous is not None:
        scenario_after(previous.scenario, request, seed)  # refuses what an earlier request forgot
    if with_copies:
        left = data if previous is None else data_after(previous.scenario)
        request, copies = add_copies(request, left, seed)
        remarks = (*remarks, *filter(None, [copies]))
    scenario = _after(previous, request, seed) if previous is not None else request(data, seed)
    remarks = (*remarks, *map(str, check_data(scenario)))
    chosen = (
        preset(method, data.name, scenario.kind, len(data.train))
        if isinstance(method, str)
        else method
    )
    with accepting_images(original):
        outcome = unlearn(
            chosen, original, scenario, new_model=_adapted(new_model), recipe=recipe, head=head, watch=watch,
            max_accuracy_loss=max_accuracy_loss,
        )  # fmt: skip
    unlearned = without_hooks(outcome.model.eval())
    task = scenario.task(new_model=new_model, recipe=recipe or Recipe(), head=head)
    everything = data if previous is not None else scenario.data  # bias removal changes the data
    return Result(unlearned, scenario, chosen, outcome, original, task, recipe, remarks, everything)


def _after(previous: Result, request: Request, seed: int) -> Scenario:
    """Apply a request to what is left, with what the earlier results found out."""
    scenario = scenario_after(previous.scenario, request, seed)
    return with_history(
        scenario, previous.earlier, surely_forgot(previous.method, previous.outcome.forgot)
    )


def _adapted(new_model: Callable[[], nn.Module] | None) -> Callable[[], nn.Module] | None:
    """The factory, of models in float32 that take images by position."""
    if new_model is None:
        return None

    def build_adapted() -> nn.Module:
        model = in_float32(check_given(new_model()))
        accept_images(model)
        return model

    return build_adapted


def _data(
    model: nn.Module,
    train_set: MapStyle | Data,
    test: MapStyle | None,
    mean: Sequence[float],
    std: Sequence[float],
) -> tuple[Data, tuple[str, ...]]:
    """What the model was trained on, as it takes it, and what had to be assumed for that."""
    device, given = device_of(model), len(mean) > 0 or len(std) > 0
    if isinstance(train_set, Data):
        if given:
            raise BadInput(
                "mean= and std= belong to a torch Dataset; a duck.Data has them: give them to duck.load."
            )
        return train_set.to(device), ()
    widths: list[int] = []

    def outputs(images: Tensor) -> int:
        widths.append(compute_logits(model, images.to(device)).shape[1])
        return widths[-1]

    pixels = Pixels(tuple(map(float, mean)), tuple(map(float, std))) if given else None
    data = from_dataset(
        train_set, test, pixels=pixels, device=device, dtype=dtype_of(model), outputs=outputs
    )
    remarks = []
    own = getattr(data.train, "pixels", None)
    if own is not None and not given:
        remarks.append(
            f"Pixels were normalised by the data's own {own}: give mean= and std= if the model was trained with others."
        )
    highest = max(int(part.labels.max()) for part in (data.train, data.test) if part is not None)
    if widths[-1] > highest + 1:
        remarks.append(
            f"The model has {widths[-1]} outputs, and the labels go up to {highest}: does it return the logits first, and are the labels "
            "those of its training?"
        )
    return data, tuple(remarks)


def audit(
    unlearned: nn.Module | Result,
    scenario: Scenario | None = None,
    *,
    original: nn.Module | None = None,
    retrained: Sequence[nn.Module] | nn.Module = (),
    tier: Tier | None = None,
    models: int = DEFAULT_MODELS,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
) -> Audit:
    """Attack an unlearned model and return the audit; print it to read the verdict.

    Args:
        unlearned: The Result of `forget`, or an unlearned model with `scenario` and `original`.
        scenario: What the model was to forget.
        original: The model before unlearning.
        retrained: Models trained without the forget samples by the recipe of the original, with
            other seeds; five or more.
        tier: `quick` needs no retrained models. `oracle`, the default if some are given, trains
            the missing ones up to `models`, for which it needs `new_model` and `recipe`.
        models: Number of retrained models of the oracle tier.
        new_model: Builds a fresh model. Default: what `forget` was given.
        recipe: How the original was trained. Default: what `forget` was given. There is no other
            default, because models of another recipe differ from the original for that alone.
        head: Name of the classifier head inside the model. None: it is found.
    """
    case, recipe = _case(unlearned, scenario, original, new_model, recipe, head)
    references = (
        [retrained]
        if isinstance(retrained, nn.Module) and not isinstance(retrained, nn.ModuleList)
        else list(retrained)
    )
    given = [check_given(model) for model in (case.original, case.unlearned, *references)]
    with accepting_images(*given):
        original, changed, *references = (in_float32(model) for model in given)
        case = replace(
            case, original=original, unlearned=changed, new_model=_adapted(case.new_model)
        )
        return _audit(case, references, recipe, tier, models)


def _audit(
    case: Case,
    retrained: Sequence[nn.Module],
    recipe: Recipe | None,
    tier: Tier | None,
    models: int,
) -> Audit:
    chosen = tier or ("oracle" if retrained else "quick")
    if chosen == "quick":
        return audit_quick(case)
    if chosen != "oracle":
        raise BadInput(
            f"tier is 'quick' or 'oracle', got {chosen!r}. The full tier needs a pool of models: `duck audit RUN --tier full`."
        )
    if models < 1:
        raise BadInput(f"models is at least 1, got {models}.")
    check_gradients()
    make_setting(case.scenario)  # nothing is trained for an audit that cannot be
    fresh: list[nn.Module] = []
    if case.new_model is not None and recipe is not None and (tier or not retrained):
        fresh = Retraining(case.scenario, case.original, case.new_model, recipe)(
            max(0, models - len(retrained))
        )
    if not retrained and not fresh:
        missing = " and ".join(
            name
            for name, value in (("new_model", case.new_model), ("recipe", recipe))
            if value is None
        )
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
        coverage, name = (
            Coverage(done.processed, done.forget_samples),
            METHODS.name_of(unlearned.method),
        )
        factory = new_model or task.new_model
        case = Case(
            unlearned.scenario,
            original or unlearned.original,
            unlearned.model,
            name,
            "",
            coverage,
            head or task.head,
            factory,
        )
        return case, recipe or unlearned.recipe
    if scenario is None or original is None:
        raise BadInput(
            "Say what the model was to forget, and what it was before: duck.audit(unlearned, scenario, original=original)."
        )
    return Case(scenario, original, unlearned, head=head, new_model=new_model), recipe


def _by_ids(ids: Iterable[int | str | Tensor] | Request | None, data: Data) -> ForgetSamples:
    shape = tuple(getattr(ids, "shape", (0,)))
    if isinstance(ids, str) or not isinstance(ids, Iterable) or not shape:
        raise BadInput(
            "forget= takes ids (indices into the data set), or a request such as duck.ForgetClasses([3])."
        )
    if len(shape) > 1 and shape != (shape[0], 1):
        raise BadInput(
            f"forget= takes one row of ids (indices into the data set), or a mask of its length; got the shape {shape}."
        )
    given: list[Any] = (
        ids.reshape(-1).tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    )
    if not given or not all(isinstance(item, bool | np.bool_) for item in given):
        return ForgetSamples(given)
    if len(given) != len(data.train):
        raise BadInput(
            f"forget= is a mask of {len(given)} for {len(data.train)} training samples: give as many, or ids."
        )
    return ForgetSamples(data.train.ids[np.array(given)])
