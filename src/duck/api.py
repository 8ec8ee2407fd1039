"""The Python API: train, forget and audit with plain modules and torch data sets."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor, nn

from duck.assurance import Assured, AssureOptions
from duck.assurance import assure as assure_methods
from duck.audits.auditing import AuditInput, run_audit
from duck.audits.full import check_pool_models
from duck.audits.next_call import PythonNames, next_calls
from duck.audits.next_step import audit_obstacle, softer_method
from duck.audits.options import DEFAULT_POOL_MODELS, AuditOptions
from duck.audits.quick import Coverage
from duck.audits.references import References
from duck.audits.verdict import (
    NOT_FORGOTTEN,
    Audit,
    Limits,
    Tier,
    describe_final,
)
from duck.commands.audit import audit_run
from duck.data.checks import check_data
from duck.data.examples import Pixels
from duck.data.torch_dataset import MapStyle, from_dataset
from duck.display import Display
from duck.earlier_requests import EarlierScores, with_history
from duck.errors import BadInput
from duck.experiment import Experiment, Training, digest_of, fingerprint
from duck.methods.automatic import AUTO, configure
from duck.methods.base import METHODS, Method
from duck.methods.by_cost import Candidate, methods_by_cost
from duck.methods.presets import default_recipe
from duck.metrics import SMALL, KeptAccuracy, Scores, loss_change
from duck.models import build
from duck.models.head import PROBE_IMAGES, compute_logits, dtype_of
from duck.models.user_models import (
    accept_images,
    accepting_images,
    check_given,
    check_gradients,
    in_dtypes_of,
    in_float32,
    without_hooks,
)
from duck.pools.build import build_request_pool
from duck.pools.plan import Plan
from duck.pools.reader import Pool
from duck.predict import check_model
from duck.printable import counted, printable
from duck.registry import suggest
from duck.retraining import Retraining
from duck.runtime import device_of, fixed_seed, pick_device, seeded
from duck.scenarios import (
    ForgetSamples,
    Request,
    add_copies,
    describe_forget_set,
    request_of,
    scenario_after,
)
from duck.training import loop
from duck.types import Data, Original, Recipe, Report, Scenario, Task
from duck.unlearning import Outcome, Watch, certainly_forgot, notes, unlearn

TABLE_SCORES = ("forget", "retain", "test", "forget_test", "retain_test", "aus")


@dataclass(frozen=True, eq=False)
class Result:
    """An unlearned model with its scores; print it for a summary."""

    model: nn.Module
    """The unlearned model, in evaluation mode."""
    scenario: Scenario
    method: Method
    outcome: Outcome
    original: nn.Module
    """The model that was given; for a further request, the model of the earlier result."""
    task: Task
    """What the method saw."""
    data: Data
    """All data, with what earlier requests forgot."""
    request: Request | None = None
    """What was to be forgotten."""
    recipe: Recipe | None = None
    """How the original was trained; None: not known."""
    remarks: tuple[str, ...] = ()
    """What was assumed about the data."""
    assured: Assured | None = None
    """The methods that were tried and the final audit, if `assure` was given."""

    @property
    def earlier(self) -> tuple[EarlierScores, ...]:
        """The scores on the forget sets of earlier requests, the first request first."""
        return self.outcome.earlier

    @property
    def scores(self) -> Scores:
        """The scores of the unlearned model."""
        return self.outcome.scores

    @property
    def seconds(self) -> float:
        """The time of the method."""
        return self.outcome.seconds

    @property
    def forgot(self) -> bool:
        """False: the model remembers the forget samples as well as before."""
        return self.outcome.forgot is not False

    @property
    def kept_accuracy(self) -> KeptAccuracy | None:
        """Accuracy on the rest before and after; `damaged`: more than allowed was lost.

        None: there are neither unseen nor retain samples to measure it on.
        """
        return self.outcome.kept_accuracy

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the scores."""
        return [*notes(self.scenario, self.outcome), *self.remarks]

    def __str__(self) -> str:
        outcome = self.outcome
        samples = counted(outcome.forget_samples, "sample")
        name = METHODS.name_of(self.method)
        lines = [
            *self.notes[:1],
            f"Request: {describe_forget_set(self.scenario)}.",
            self._verdict,
            f"{name}: {outcome.processed} of {samples} in {self.seconds:.2f} s",
            *self._score_lines(),
            *(f"  forgotten earlier: {scores}" for scores in self.earlier),
            *self.notes[1:],
        ]
        return printable("\n".join(lines))

    def _score_lines(self) -> list[str]:
        before = asdict(self.outcome.original)
        after = asdict(self.scores)
        lines = [
            f"  {name:<12}{before[name]:8.3f} -> {after[name]:.3f}"
            for name in TABLE_SCORES
            if before[name] is not None and after[name] is not None
        ]
        if self.scenario.kind == "samples" and self.outcome.forget_samples < SMALL:
            lines += loss_change(before, after)
        return lines

    @property
    def _verdict(self) -> str:
        if self.assured is not None:
            audit = self.assured.audit
            final = [describe_final(audit)] if audit is not None else []
            return "\n".join([str(self.assured.assurance), *final])
        if not self.forgot:
            return f"Verdict: {NOT_FORGOTTEN}."
        splits = ("forget", "retain", "holdout", "test")
        obstacle = audit_obstacle({name: len(getattr(self.scenario, name)) for name in splits})
        if obstacle:
            return f"Verdict: none without an audit. {obstacle}"
        return (
            "Verdict: none without an audit, duck.audit(result). Lower accuracy or higher loss on "
            "the forget samples is no proof."
        )


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
    target = pick_device(device)
    name = model if isinstance(model, str) else ""
    if isinstance(model, str):
        built = build(model, data.num_classes, data.train.shape, seed)
    else:
        # As `build` does: the same seed gives the same weights.
        with fixed_seed(seed, target):
            built = model()
    network = in_float32(check_given(built)).to(target)
    train_set = data.train.to(target)
    recipe = recipe or default_recipe(data.name, len(data.train), data.augment, name)
    with accepting_images(network):
        check_model(network, train_set)
        loop.train(network, train_set, recipe, seeded(seed, "train"), report, checkpoint)
    return in_dtypes_of(network, built).eval()


def forget(
    model: nn.Module | Result,
    train_set: MapStyle | Data | None = None,
    forget: Iterable[int | str | Tensor] | Request | None = None,
    *,
    test: MapStyle | None = None,
    method: str | Method = AUTO,
    assure: Tier | AssureOptions | None = None,
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
            configured method. `auto`: the method that fits the request, as the notes say.
        assure: Tier of audits that the result must pass: `quick`, `oracle` or `full`. Methods are
            tried from the cheapest on; the last one is retraining. With a `method`, only this one
            is tried before. `AssureOptions` has limits and a budget.
        seed: Seed of the random numbers.
        head: Name of the classifier head inside the model. None: it is found.
        new_model: Builds a fresh model of the same architecture, for retraining.
        recipe: How the original was trained, for retraining, `warm-restart` and audits.
        watch: Progress callback: called after each epoch.
        mean: Mean per channel, of pixels in 0..1, that the model was trained with. Only for uint8
            tensors and PIL images. Default: the mean of the data.
        std: Standard deviation per channel, of the same pixels. Default: that of the data.
        with_copies: Also forget training samples with exactly the pixels of a forget sample.
        max_accuracy_loss: Accuracy on unseen samples that may be lost, such as 0.1 for 10 points.
            A model that loses more is damaged (`result.kept_accuracy.damaged`). None: the larger
            of 5 points and 3 standard errors.
    """
    check_gradients()
    previous = model if isinstance(model, Result) else None
    if previous is None:
        original = Original(check_given(model), new_model, recipe, head)
        with accepting_images(original.model):
            data, remarks = _data(in_float32(original.model), train_set, test, mean, std)
    else:
        if train_set is not None or test is not None or len(mean) or len(std):
            raise BadInput(
                "The result of an earlier request brings its training and test data: leave "
                "train_set, test, mean and std out."
            )
        original = Original(
            check_given(previous.model),
            new_model or previous.task.new_model,
            recipe or previous.recipe,
            head or previous.task.head,
        )
        data, remarks = previous.data, previous.remarks
    request = forget if callable(forget) and not isinstance(forget, type) else _by_ids(forget, data)
    scenario = _apply(request, data, previous, seed)
    if with_copies:
        request, copies = add_copies(request, scenario)
        scenario = _apply(request, data, previous, seed)
        remarks += (copies,) if copies else ()
    remarks += tuple(map(str, check_data(scenario)))
    adapted = replace(original, new_model=_adapted(original.new_model))

    def run(method: Method) -> Outcome:
        return unlearn(method, adapted, scenario, watch=watch, max_accuracy_loss=max_accuracy_loss)

    assured = None
    with accepting_images(original.model):
        if assure is None:
            chosen, why = configure(method, scenario, original.recipe)
            outcome = run(chosen)
            remarks = (*remarks, *why)
        else:
            options = assure if isinstance(assure, AssureOptions) else AssureOptions(assure)
            assured = _assure(adapted, scenario, method, run, options)
            chosen, outcome = assured.candidate.method, assured.outcome
    return Result(
        model=without_hooks(outcome.model.eval()),
        scenario=scenario,
        method=chosen,
        outcome=outcome,
        original=original.model,
        task=scenario.task(
            new_model=original.new_model, recipe=original.recipe or Recipe(), head=original.head
        ),
        request=request,
        recipe=original.recipe,
        remarks=remarks,
        # Bias removal changes the data.
        data=scenario.data if previous is None else data,
        assured=assured,
    )


def _assure(
    original: Original,
    scenario: Scenario,
    method: str | Method,
    run: Callable[[Method], Outcome],
    options: AssureOptions,
) -> Assured:
    """Try methods until one passes the audits."""
    if original.new_model is None or original.recipe is None:
        raise BadInput(
            "assure= ends with retraining if no other method passes: give new_model= and recipe=, "
            "how the original was trained."
        )
    candidates = methods_by_cost(scenario, original.recipe, method)
    if options.tier == "full":
        _pool_plan(original, scenario, candidates[0].method)  # an error before anything is trained
    with TemporaryDirectory() as folder:

        def build_pool(candidate: Candidate) -> Pool:
            place = Path(folder) / candidate.name
            return _build_pool(place, original, scenario, candidate.method, DEFAULT_POOL_MODELS)

        return assure_methods(
            original,
            scenario,
            candidates,
            lambda candidate: run(candidate.method),
            options,
            _retraining(original),
            build_pool,
        )


def _apply(request: Request, data: Data, previous: Result | None, seed: int) -> Scenario:
    if previous is None:
        return request(data, seed)
    scenario = scenario_after(previous.scenario, request, seed)
    has_forgotten = certainly_forgot(previous.method, previous.outcome.forgot)
    return with_history(scenario, previous.earlier, has_forgotten, previous.outcome.drift)


def _adapted(new_model: Callable[[], nn.Module] | None) -> Callable[[], nn.Module] | None:
    """Return the factory of models in float32 that take images by position."""
    if new_model is None:
        return None

    def build_adapted() -> nn.Module:
        model = in_float32(check_given(new_model()))
        accept_images(model)
        return model

    return build_adapted


def _data(
    model: nn.Module,
    train_set: MapStyle | Data | None,
    test: MapStyle | None,
    mean: Sequence[float],
    std: Sequence[float],
) -> tuple[Data, tuple[str, ...]]:
    """Return the data in the form that the model takes, and what was assumed about them."""
    device = device_of(model)
    is_normalised = len(mean) > 0 or len(std) > 0
    if train_set is None:
        raise BadInput(
            "train_set= is missing: what the model was trained on. Only the result of an earlier "
            "request brings its data."
        )
    if isinstance(train_set, Data):
        if test is not None:
            raise BadInput(
                "test= is for a torch Dataset. A duck.Data has test data of its own: put them "
                "there, or leave test= out."
            )
        if is_normalised:
            raise BadInput(
                "mean= and std= are for a torch Dataset. A duck.Data has them: give them to "
                "duck.load."
            )
        return train_set.to(device), ()

    def outputs(images: Tensor) -> int:
        return compute_logits(model, images.to(device)).shape[1]

    data = from_dataset(
        train_set,
        test,
        pixels=Pixels(tuple(map(float, mean)), tuple(map(float, std))) if is_normalised else None,
        device=device,
        dtype=dtype_of(model),
        outputs=outputs,
    )
    remarks = []
    pixels = data.train.pixels
    if pixels is not None and not is_normalised:
        remarks.append(
            f"Pixels were normalised with {pixels}, computed from the data. Give mean= and std= "
            "if the model was trained with other values."
        )
    highest = max(int(part.labels.max()) for part in (data.train, data.test) if part is not None)
    count = outputs(next(data.train.batches(PROBE_IMAGES)).images)
    if count > highest + 1:
        remarks.append(
            f"The model has {count} outputs, and the labels go up to {highest}. Check that its "
            "first output is the logits, and that the labels are those it was trained with."
        )
    return data, tuple(remarks)


def audit(
    unlearned: nn.Module | Result | Path | str,
    scenario: Scenario | None = None,
    *,
    original: nn.Module | Path | str | None = None,
    retrained: Sequence[nn.Module | Path | str] | nn.Module = (),
    tier: Tier | None = None,
    models: int | None = None,
    margin: float | None = None,
    max_advantage: float | None = None,
    max_epsilon: float | None = None,
    planted: bool | None = None,
    pool: Path | str | None = None,
    pool_models: int | None = None,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
    **options: Any,
) -> Audit:
    """Attack an unlearned model and return the audit; print it to read the verdict.

    For the folder of a run this does what `duck audit` does: it loads the data and the original,
    trains what is missing, and stores the audit in the folder.

    A Result of `forget(..., assure="oracle")` has been audited: `duck.audit(result)` returns its
    final audit, `result.assured.audit`. With further arguments it is audited again on all forget
    samples, by the same tier unless `tier` names one.

    Args:
        unlearned: The Result of `forget`, the folder of a run, or an unlearned model with
            `scenario` and `original`.
        scenario: What the model was to forget.
        original: The model before unlearning; for the folder of a run, a folder or weights, if it
            is not found.
        retrained: Models trained without the forget samples by the recipe of the original, with
            other seeds; five or more. For the folder of a run, folders of such runs.
        tier: `quick`, the default, needs no retrained models. `oracle`, the default if some are
            given, trains the missing ones up to `models`, for which it needs `new_model` and
            `recipe`; the folder of a run has them. `full` also trains a pool, and needs a Result
            or the folder of a run.
        models: Number of retrained models of the tiers `oracle` and `full`. None: 6.
        margin: Largest residual memory of a model that is called forgotten. None: 0.1.
        max_advantage: Largest membership advantage. None: 0.05, or what the audit can resolve.
        max_epsilon: Largest lower bound of ε, in the full tier. None: 1.
        planted: With five or more retrained models, also train three that keep a share of the
            forget set, to state how much the audit recognises. Needs `new_model` and `recipe`.
            None: True.
        pool: Folder of the pool of the full tier. That of a Result is made there, or resumed. None:
            a temporary one; for the folder of a run, one in the same folder.
        pool_models: Number of models of a pool that is made now. None: 32.
        new_model: Builds a fresh model. Default: what `forget` was given.
        recipe: How the original was trained. Default: what `forget` was given. There is no other
            default: models of another recipe differ from the original for that reason alone.
        head: Name of the classifier head inside the model. None: it is found.
        options: For the folder of a run: further fields of `duck.audits.options.AuditOptions`,
            such as `data`, `root`, `trust_model_code` and `device`.
    """
    is_one = isinstance(retrained, nn.Module) and not isinstance(retrained, nn.ModuleList)
    references: list[Any] = [retrained] if is_one else list(retrained)  # type: ignore[arg-type]
    arguments = {
        "models": models,
        "margin": margin,
        "max_advantage": max_advantage,
        "max_epsilon": max_epsilon,
        "planted": planted,
        "pool": None if pool is None else Path(pool),
        "pool_models": pool_models,
        "head": head,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    asked = AuditOptions(**given)  # type: ignore[arg-type]
    final = _final_audit(unlearned)
    others = (tier, scenario, original, new_model, recipe)
    is_plain = not given and not references and not options
    if final is not None and is_plain and all(argument is None for argument in others):
        return final
    known_tier: Tier = "quick" if final is None else final.tier
    asked = replace(asked, tier=tier or ("oracle" if references else known_tier))
    if isinstance(unlearned, Path | str):
        if scenario is not None or new_model is not None or recipe is not None:
            raise BadInput(
                "The folder of a run has a scenario, a model and a recipe: leave scenario=, "
                "new_model= and recipe= out."
            )
        if any(isinstance(place, nn.Module) for place in (original, *references)):
            raise BadInput(
                "The folder of a run is audited with stored models: give original= and retrained= "
                "as folders of runs."
            )
        _check_names(options)
        stored = replace(
            asked,
            original=None if original is None else Path(original),  # type: ignore[arg-type]
            retrained=tuple(map(Path, references)),
            **options,
        )
        of_run = audit_run(Path(unlearned), stored)
        of_run.check_current()
        return of_run.audit
    if options:
        raise BadInput(f"Only the audit of the folder of a run takes {', '.join(options)}.")
    asked.check()
    before = None if original is None else check_given(original)
    inputs = _audit_input(unlearned, scenario, before, new_model, recipe, head)
    used = [check_given(model) for model in (inputs.original.model, inputs.unlearned, *references)]
    with accepting_images(*used):
        original_model, unlearned_model, *retrained_models = (in_float32(model) for model in used)
        known = replace(
            inputs.original, model=original_model, new_model=_adapted(inputs.original.new_model)
        )
        inputs = replace(inputs, original=known, unlearned=unlearned_model)
        # If no tier was asked for, given models suffice.
        count = len(retrained_models) if tier is None and retrained_models else asked.models
        method = unlearned.method if isinstance(unlearned, Result) else None
        found = _audit_models(inputs, asked, retrained_models, count, method)
    names = _names_in_calls(unlearned, original, new_model, recipe, head, bool(references))
    return replace(found, next_steps=next_calls(found, names, asked, len(inputs.scenario.forget)))


def _final_audit(unlearned: nn.Module | Result | Path | str) -> Audit | None:
    """Return the final audit of an assured Result, if its tier is above quick."""
    if not isinstance(unlearned, Result) or unlearned.assured is None:
        return None
    final = unlearned.assured.audit
    if final is None or final.tier == "quick":
        return None
    names = _names_in_calls(unlearned, None, None, None, None)
    samples = len(unlearned.scenario.forget)
    asked = AuditOptions(final.tier, **asdict(final.limits or Limits()))
    return replace(final, next_steps=next_calls(final, names, asked, samples))


def _audit_models(
    inputs: AuditInput,
    options: AuditOptions,
    retrained: Sequence[nn.Module],
    count: int,
    method: Method | None,
) -> Audit:
    """Audit models in memory.

    count    the number of retrained models
    method   for the full tier, the method that ran; None: it is not known
    """
    original, scenario = inputs.original, inputs.scenario
    retraining = _retraining(original)
    references = References(scenario, retraining, count, retrained, options.planted)
    with TemporaryDirectory() as temporary:
        folder = options.pool or Path(temporary)
        build_pool = partial(_build_pool, folder, original, scenario, method, options.pool_size)
        return run_audit(inputs, options.tier, references, build_pool, options.limits)


def _retraining(original: Original) -> Callable[[Scenario], Retraining] | None:
    """Return how models are retrained as the original was trained; None if it is not known."""
    model, new_model, recipe = original.model, original.new_model, original.recipe
    if new_model is None or recipe is None:
        return None
    return lambda scenario: Retraining(scenario, model, new_model, recipe)


def _names_in_calls(
    unlearned: nn.Module | Result,
    original: nn.Module | Path | str | None,
    new_model: Callable[[], nn.Module] | None,
    recipe: Recipe | None,
    head: str | None,
    has_retrained: bool = False,
) -> PythonNames:
    """Return how suggested calls name what the user has; `result` is what `forget` returned."""
    named_head = "" if head is None else f", head={head!r}"
    retrained = "retrained" if has_retrained else ""
    if not isinstance(unlearned, Result):
        return PythonNames(
            f"unlearned, scenario, original=original{named_head}",
            f"original, data, ids{named_head}",
            retrained,
        )
    task = unlearned.task
    known_model = new_model is None and task.new_model is not None
    known_recipe = recipe is None and unlearned.recipe is not None
    before = "result.original" if original is None else "original"
    start = "earlier_result" if unlearned.scenario.earlier else f"{before}, result.data"
    known_head = head or task.head
    seed = f", seed={unlearned.scenario.seed}" if unlearned.scenario.seed else ""
    return PythonNames(
        "result" + ("" if original is None else ", original=original") + named_head,
        f"{start}, forget=result.request{seed}"
        + ("" if known_head is None else f", head={known_head!r}"),
        retrained,
        METHODS.name_of(unlearned.method),
        _softer(unlearned),
        "result.task.new_model" if known_model else "new_model",
        "result.recipe" if known_recipe else "recipe",
    )


def _softer(result: Result) -> str:
    """Return the argument for a method that forgets less strongly; "" where none is known."""
    scenario = result.scenario
    facts = scenario.data.name, scenario.kind, len(scenario.data.train)
    softer = softer_method(result.method, *facts)
    if softer is None:
        return ""
    if isinstance(softer, str):
        return f'method="{softer}"'
    return f"method=dataclasses.replace(result.method, lr={softer:g})"


def _check_names(options: dict[str, Any]) -> None:
    """Raise an error for an argument that the audit of a stored run does not have."""
    known = [field.name for field in fields(AuditOptions)]
    for name in options:
        if name not in known:
            raise BadInput(f"duck.audit has no argument {name!r}. {suggest(name, known)}")


def _build_pool(
    folder: Path, original: Original, scenario: Scenario, method: Method | None, models: int
) -> Pool:
    check_pool_models(models)
    plan = _pool_plan(original, scenario, method)
    place = device_of(original.model)
    return build_request_pool(
        folder, plan, scenario.data, models, place, Display(), original.new_model
    )


def _pool_plan(original: Original, scenario: Scenario, method: Method | None) -> Plan:
    """Return the plan of the pool of the full tier."""
    model, recipe = original.model, original.recipe
    if method is None or original.new_model is None or recipe is None:
        raise BadInput(
            "The full tier trains a pool of models and lets each forget by the same method: it "
            "needs the Result of duck.forget, with new_model= and recipe=, or the folder of a run."
        )
    if scenario.earlier:
        raise BadInput("A pool cannot follow earlier requests: audit with tier='oracle'.")
    training = Training(
        scenario.data.name,
        # A pool in a folder is resumed only for the same architecture and the same code.
        f"{type(model).__name__} {_architecture_digest(model)}",
        recipe,
        fingerprint=fingerprint(scenario.data),
    )
    request = request_of(scenario)
    return Plan(Experiment(training, request, method, scenario.seed, scenario.protocol))


def _architecture_digest(model: nn.Module) -> str:
    """Return a digest of the layers of a model and of the code of its classes."""
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    layers = re.sub(r" at 0x[0-9a-f]+", "", repr(model))  # Addresses differ in each process.
    classes: set[type] = set()
    for layer in model.modules():
        classes.update(type(layer).__mro__)
    sources = sorted(map(_source, classes))
    return digest_of({"shapes": shapes, "layers": layers, "sources": sources})


def _source(kind: type) -> str:
    """Return the code of a user's class; "" for one of PyTorch or without a file."""
    if kind.__module__.partition(".")[0] in ("torch", "builtins"):
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def _audit_input(
    unlearned: nn.Module | Result,
    scenario: Scenario | None,
    original: nn.Module | None,
    new_model: Callable[[], nn.Module] | None,
    recipe: Recipe | None,
    head: str | None,
) -> AuditInput:
    if isinstance(unlearned, Result):
        outcome, task = unlearned.outcome, unlearned.task
        return AuditInput(
            unlearned.scenario,
            Original(
                original or unlearned.original,
                new_model or task.new_model,
                recipe or unlearned.recipe,
                head or task.head,
            ),
            unlearned.model,
            METHODS.name_of(unlearned.method),
            coverage=Coverage(outcome.processed, outcome.forget_samples),
        )
    if scenario is None or original is None:
        raise BadInput(
            "The scenario and the model before unlearning are missing: "
            "duck.audit(unlearned, scenario, original=original)."
        )
    return AuditInput(scenario, Original(original, new_model, recipe, head), unlearned)


def _by_ids(ids: Iterable[int | str | Tensor] | Request | None, data: Data) -> ForgetSamples:
    """Return the request for ids or a Boolean mask."""
    shape = tuple(getattr(ids, "shape", (0,)))
    is_one_row = len(shape) == 1 or shape[1:] == (1,)
    if isinstance(ids, str) or not isinstance(ids, Iterable) or not is_one_row:
        raise BadInput(
            "forget= takes ids (a row of indices into the data set), a mask of its length, or a "
            "request such as duck.ForgetClasses([3])."
        )
    given: list[Any] = (
        ids.reshape(-1).tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    )
    if not given or not all(isinstance(item, bool | np.bool_) for item in given):
        return ForgetSamples(given)
    if len(given) != len(data.train):
        raise BadInput(
            f"forget= is a mask of {len(given)} for {len(data.train)} training samples: give as "
            "many, or ids."
        )
    return ForgetSamples(data.train.ids[np.array(given)])
