"""Audit a stored run: load its models, train the missing ones, attack, and store the audit."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from duck import runs
from duck.audits.auditing import Case, audit_oracle, audit_quick
from duck.audits.full import check_pool_models, check_size
from duck.audits.next_step import next_steps
from duck.audits.oracle import ENOUGH
from duck.audits.outputs import make_setting
from duck.audits.parts import SHARES, plant
from duck.audits.quick import Coverage
from duck.audits.verdict import (
    DEFAULT_MODELS,
    MARGIN,
    MAX_EPSILON,
    Audit,
    Limits,
    Tier,
    file_of,
    save,
)
from duck.commands.stored_runs import UnlearningRun, open_run
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import Training
from duck.methods.base import METHODS
from duck.pools.build import build_request_pool
from duck.pools.plan import Plan
from duck.pools.reader import Pool, mismatch
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.scenarios import describe
from duck.types import Original, Recipe, Scenario

POOLS_FOLDER = ".pools"
DEFAULT_POOL_MODELS = 32
TRAINED_ELSEWHERE = (
    "The original was trained elsewhere: other models may have been trained in another way, and a "
    "difference may come from that."
)
GIVEN_WEIGHTS = (
    "Retrained models were given as files of weights: that they never saw the forget samples "
    "cannot be checked."
)


@dataclass(frozen=True)
class AuditOptions:
    """How a stored run is audited."""

    tier: Tier = "quick"
    models: int = DEFAULT_MODELS
    """Number of retrained models, those of --retrained included. With fewer than five the verdict
    can be "not forgotten" but not "forgotten"."""
    retrained: tuple[Path, ...] = ()
    """Runs of the method `retrained` for the same samples, with other seeds, or files of weights
    (.safetensors, .pt) of models that you trained without these samples."""
    default_recipe: bool = False
    """Train models by the default recipe if the original was trained elsewhere and its recipe is
    not known."""
    margin: float = MARGIN
    """Largest residual memory of a model that is called forgotten. 0: as if it never saw the
    samples, 1: as the original."""
    max_advantage: float | None = None
    """Largest membership advantage (2 AUC - 1) beyond that of retrained models. Default: 0.05, or
    what the audit can resolve where that is more."""
    max_epsilon: float = MAX_EPSILON
    """Largest lower bound of ε, in the full tier."""
    planted: bool = True
    """With five or more --models, also train three that keep 10, 30 and 50 % of the forget set, to
    state how much this audit recognises."""
    pool: Path | None = None
    """Pool of `duck pool` for the full tier. Default: one is made and stored next to the run."""
    pool_models: int | None = None
    """Models of a pool that is made now, with half as many oracles. Default: 32."""
    original: Path | None = None
    """Run, or file of weights, of the original, if it is not found."""
    data: str | None = None
    """The data, if they are no longer where the run says."""
    root: Path | None = None
    """Folder of the named data sets, if it is another than the run says."""
    head: str | None = None
    """Name of the classifier head inside the model. Default: it is found."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that the run names. Its code can
    do anything."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def check(self) -> None:
        """Raise an error for options that the tier does not use or that contradict each other."""
        for name, share in (("margin", self.margin), ("max-advantage", self.max_advantage)):
            if share is not None and not 0 < share < 1:
                raise BadInput(f"--{name} lies between 0 and 1, got {share}.")
        if not self.max_epsilon > 0:
            raise BadInput(f"--max-epsilon must be positive, got {self.max_epsilon}.")
        if self.models < 1:
            raise BadInput(f"--models is at least 1, got {self.models}.")
        if self.tier == "quick" and self.retrained:
            raise BadInput("The quick tier takes no --retrained: add --tier oracle.")
        if self.tier == "quick" and self.default_recipe:
            raise BadInput(
                "The quick tier trains nothing and takes no --default-recipe: add --tier oracle."
            )
        if self.tier != "full" and (self.pool or self.pool_models is not None):
            raise BadInput(
                f"The {self.tier} tier takes no --pool or --pool-models: add --tier full."
            )
        if self.pool and self.pool_models is not None:
            raise BadInput(
                "--pool-models is the size of a pool that is made, and --pool names one that "
                "exists: give one of them."
            )

    @property
    def trains_models(self) -> bool:
        """Whether retrained models or a pool are to be trained."""
        if self.tier == "quick":
            return False
        return self.models > len(self.retrained) or (self.tier == "full" and not self.pool)


@dataclass(frozen=True)
class RunAudit:
    """The audit of a stored run."""

    audit: Audit
    run: runs.Run
    not_stored: str = ""
    """Why the audit was not stored in the folder of the run; "" if it was."""


def audit_run(
    folder: Path, options: AuditOptions | None = None, display: Display | None = None
) -> RunAudit:
    """Audit the run of an unlearning and store the audit in its folder."""
    audit = _RunAudit(folder, options or AuditOptions(), display or Display())
    return audit()


class _RunAudit:
    """One audit of a stored run."""

    def __init__(self, folder: Path, options: AuditOptions, display: Display) -> None:
        self.start = time.monotonic()
        options.check()
        self.folder = folder
        self.options = options
        self.display = display
        self.device = pick_device(options.device)
        self.opened = self._open()

    def __call__(self) -> RunAudit:
        self._check_recipe()
        if len(self.opened.scenario.forget) > 1:
            make_setting(self.opened.scenario)  # an error before anything is trained
        case = self._case()
        options = self.options
        limits = Limits(options.margin, options.max_advantage, options.max_epsilon)
        if options.tier == "quick" or len(self.opened.scenario.forget) == 1:
            audit = replace(audit_quick(case, limits), tier=options.tier)
        else:
            pool = self._pool() if options.tier == "full" else None
            references = self._references(case)
            audit = audit_oracle(case, references, pool, self._planted(case), limits)
        steps = next_steps(self.opened.run, self.folder, audit, self.opened.find_original())
        audit = replace(audit, seconds=time.monotonic() - self.start, next_steps=steps)
        return RunAudit(audit, self.opened.run, _store(audit, self.folder))

    def _open(self) -> UnlearningRun:
        with self.display.progress("reading data") as progress:
            opened = open_run(
                self.folder,
                self.options.data,
                self.options.root,
                trust_model_code=self.options.trust_model_code,
                progress=progress,
            )
        data = opened.scenario.data.to(self.device)
        return replace(opened, scenario=replace(opened.scenario, data=data))

    def _check_recipe(self) -> None:
        """Raise an error unless models are trained by the recipe of the original.

        By another one they are trained only if the user says so.
        """
        is_unknown = bool(self.opened.experiment.training.weights)
        if self.options.default_recipe and not is_unknown:
            raise BadInput(
                "--default-recipe is for originals that were trained elsewhere; the recipe of "
                f"{self.folder} is known and is used."
            )
        if is_unknown and self.options.trains_models and not self.options.default_recipe:
            pool = " and --pool POOL" if self.options.tier == "full" else ""
            raise BadInput(
                f"The original of {self.folder} was trained elsewhere, and its recipe is not "
                "known. Models of another recipe differ from it for that alone. Give --retrained "
                f"RUNS{pool} that were trained as it was, as many as --models "
                f"{self.options.models}, or add --default-recipe to compare with models of the "
                "default recipe."
            )

    def _case(self) -> Case:
        experiment = self.opened.experiment
        samples = self.opened.run.samples
        assert experiment.request is not None
        is_foreign = bool(experiment.training.weights) and self.options.tier != "quick"
        has_files = any(place.is_file() for place in self.options.retrained)
        return Case(
            self.opened.scenario,
            Original(
                self._original(),
                self.opened.new_model,
                experiment.training.recipe,
                self.options.head or experiment.head,
            ),
            unlearned=self.opened.load_model(self.folder, self.device),
            method=METHODS.name_of(experiment.method),
            request=describe(experiment.request, self.opened.data.classes),
            coverage=Coverage(samples["processed"], samples["forget"]),
            notes=(*[TRAINED_ELSEWHERE] * is_foreign, *[GIVEN_WEIGHTS] * has_files),
        )

    def _original(self) -> nn.Module:
        if self.options.original:
            place = self.opened.check_related(self.options.original, "original")
            return self.opened.load_model(place, self.device)
        found = self.opened.find_original()
        if found is None:
            raise BadInput(
                f"The original of {self.folder} was not found: name its run, or its weights, "
                "with --original."
            )
        return self.opened.load_model(found, self.device)

    def _references(self, case: Case) -> list[nn.Module]:
        """Return the given retrained models and as many more as are missing."""
        given = [
            self.opened.load_model(self._check_reference(folder), self.device)
            for folder in self.options.retrained
        ]
        retraining = self._retraining(case, self.opened.scenario)
        count = max(0, self.options.models - len(given))
        missing = retraining.missing(count)
        if not missing:
            return [*given, *retraining(count)]
        self.display.message(
            f"{missing} of {self.options.models} retrained models are trained now and stored in "
            f"{retraining.store.root}."
        )
        with self.display.progress("retrained models") as progress:
            return [*given, *retraining(count, progress)]

    def _planted(self, case: Case) -> dict[float, list[nn.Module]]:
        """Return models that keep a share of the forget set, where models may be trained."""
        options = self.options
        if not (options.planted and options.trains_models and options.models >= ENOUGH):
            return {}
        planted: dict[float, list[nn.Module]] = {}
        with self.display.progress("planted models") as progress:
            for share in SHARES:
                progress(len(planted), len(SHARES))
                planted[share] = self._retraining(case, plant(self.opened.scenario, share))(1)
            progress(len(planted), len(SHARES))
        return planted

    def _retraining(self, case: Case, scenario: Scenario) -> Retraining:
        training = self.opened.experiment.training
        return Retraining(
            scenario,
            case.original.model,
            self.opened.new_model,
            training.recipe,
            training,
            self.opened.store,
        )

    def _check_reference(self, folder: Path) -> Path:
        """Return the folder of a run that retrained without exactly the forget samples.

        What is in a file of weights cannot be checked.
        """
        if folder.is_file():
            return folder
        other = runs.load(folder).experiment
        problem = ""
        if other.method is None or METHODS.name_of(other.method) != "retrained":
            problem = "its method is not 'retrained'"
        elif self._shared(other.training) != self._shared(self.opened.experiment.training):
            problem = "its data, model or recipe differ"
        elif not self.opened.has_same_retain_set(other):
            problem = "it was retrained without other samples"
        if problem:
            raise BadInput(f"{folder} cannot be compared with {self.folder}: {problem}.")
        return folder

    def _shared(self, training: Training) -> Training:
        """Return what retrained models share with the run; an unknown recipe is not compared."""
        is_unknown = bool(self.opened.experiment.training.weights)
        recipe = Recipe() if is_unknown else training.recipe
        return replace(training, seed=0, weights="", recipe=recipe, recipe_assumed=False)

    def _pool(self) -> Pool:
        """Return the given pool or one that is made now; raise an error if it does not fit."""
        experiment = self.opened.experiment
        pool = Pool(self.options.pool) if self.options.pool else self._build_pool()
        differences = mismatch(pool, experiment, bool(experiment.training.weights))
        if pool.design != "request":
            differences.insert(0, "design: shadow models know nothing of unlearning.")
        if differences:
            raise BadInput(
                f"The pool in {pool.files.folder} does not fit {self.folder}: "
                f"{' '.join(differences)}"
            )
        check_size(pool)
        return pool

    def _build_pool(self) -> Pool:
        given = self.options.pool_models
        models = DEFAULT_POOL_MODELS if given is None else given
        check_pool_models(models)
        name = self.opened.run.id or self.opened.experiment.public_id
        folder = self.folder.resolve().parent / POOLS_FOLDER / name
        plan = Plan(self.opened.experiment)
        data = self.opened.scenario.data
        return build_request_pool(folder, plan, data, models, self.device, self.display)


def _store(audit: Audit, folder: Path) -> str:
    """Store an audit; return why it was not stored, or "". The verdict stands all the same."""
    try:
        if save(audit, folder):
            return ""
    except BadInput as error:
        return str(error)
    return (
        f"{file_of(audit.tier)} stays as it is: that audit compared with more retrained models "
        f"than this one, {audit.models}."
    )
