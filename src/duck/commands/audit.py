"""Audit a stored run: load its models, train the missing ones, attack, and store the audit."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from duck import runs
from duck.audits.auditing import AuditInput, run_audit
from duck.audits.full import check_pool_models, check_size
from duck.audits.next_step import next_steps
from duck.audits.options import AuditOptions
from duck.audits.quick import Coverage
from duck.audits.references import References
from duck.audits.verdict import Audit, file_of, save
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
TRAINED_ELSEWHERE = (
    "The original was trained elsewhere: other models may have been trained in another way, and a "
    "difference may come from that."
)
GIVEN_WEIGHTS = (
    "Retrained models were given as files of weights: that they never saw the forget samples "
    "cannot be checked."
)


@dataclass(frozen=True)
class RunAudit:
    """The audit of a stored run."""

    audit: Audit
    run: runs.Run
    not_stored: str = ""
    """Why the audit was not stored in the folder of the run; "" if it was."""
    is_outdated: bool = False
    """Whether the run was replaced while it was audited."""

    def check_current(self) -> None:
        """Raise an error if the audit is of a run that is no longer in its folder."""
        if self.is_outdated:
            raise BadInput(self.not_stored)


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
        if options.pool and options.pool_models is not None:
            raise BadInput(
                "--pool-models is the size of a pool that is made, and --pool names one that "
                "exists: give one of them."
            )
        self.folder = folder
        self.options = options
        self.display = display
        self.device = pick_device(options.device)
        self.opened = self._open()

    def __call__(self) -> RunAudit:
        self._check_recipe()
        original = self._find_original()
        inputs = self._audit_input(original)
        options = self.options
        audit = run_audit(
            inputs, options.tier, self._references(inputs), self._pool, options.limits
        )
        steps = next_steps(self.opened.run, self.folder, audit, options, original)
        audit = replace(audit, seconds=time.monotonic() - self.start, next_steps=steps)
        run = self.opened.run
        if not _is_current(run, self.folder):
            problem = (
                f"{self.folder} was replaced by another run during the audit. The audit is of the "
                "old run and was not stored: run the audit again."
            )
            return RunAudit(audit, run, problem, is_outdated=True)
        return RunAudit(audit, run, _store(audit, self.folder))

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

    @property
    def _is_recipe_unknown(self) -> bool:
        return bool(self.opened.experiment.training.weights)

    def _check_recipe(self) -> None:
        """Raise an error unless models are trained by the recipe of the original.

        By another one they are trained only if the user says so.
        """
        options = self.options
        if options.default_recipe and not self._is_recipe_unknown:
            raise BadInput(
                "--default-recipe is for originals that were trained elsewhere; the recipe of "
                f"{self.folder} is known and is used."
            )
        if options.tier == "quick" or options.default_recipe or not self._is_recipe_unknown:
            return
        given = len(options.retrained)
        advice = []
        if options.models > given > 0:
            advice.append(
                f"--retrained names {given} of {options.models} models: add --models {given}."
            )
        elif options.models > given:
            advice.append(
                f"Give --retrained with {options.models} files of weights, or runs of the method "
                "`retrained`, of models that were trained as it was."
            )
        if options.tier == "full" and not options.pool:
            advice.append("Give a pool that was trained as it was, with --pool.")
        if not advice:
            return
        raise BadInput(
            f"The original of {self.folder} was trained elsewhere, and its recipe is not known. "
            f"Models of another recipe differ from it for that reason alone. {' '.join(advice)} Or "
            "add --default-recipe to compare with models of the default recipe."
        )

    def _audit_input(self, original: Path) -> AuditInput:
        experiment = self.opened.experiment
        samples = self.opened.run.samples
        assert experiment.request is not None
        is_foreign = self._is_recipe_unknown and self.options.tier != "quick"
        has_files = any(place.is_file() for place in self.options.retrained)
        return AuditInput(
            self.opened.scenario,
            Original(
                self.opened.load_model(original, self.device),
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

    def _find_original(self) -> Path:
        """Return the run or the file of weights of the original."""
        if self.options.original:
            return self.opened.check_related(self.options.original, "original")
        found = self.opened.find_original()
        if found is None:
            raise BadInput(
                f"The original of {self.folder} was not found: name its run, or its weights, "
                "with --original."
            )
        return found

    def _references(self, inputs: AuditInput) -> References:
        """Return the given retrained models, with the way to train others where it is known."""
        opened, training = self.opened, self.opened.experiment.training

        def retrain(scenario: Scenario) -> Retraining:
            original = inputs.original.model
            return Retraining(
                scenario, original, opened.new_model, training.recipe, training, opened.store
            )

        is_known = self.options.default_recipe or not self._is_recipe_unknown
        return References(
            opened.scenario,
            retrain if is_known else None,
            self.options.models,
            [
                opened.load_model(self._check_reference(place), self.device)
                for place in self.options.retrained
            ],
            self.options.planted,
            self.display,
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
        recipe = Recipe() if self._is_recipe_unknown else training.recipe
        return replace(training, seed=0, weights="", recipe=recipe, recipe_assumed=False)

    def _pool(self) -> Pool:
        """Return the given pool or one that is made now; raise an error if it does not fit."""
        experiment = self.opened.experiment
        pool = Pool(self.options.pool) if self.options.pool else self._build_pool()
        differences = mismatch(pool, experiment, self._is_recipe_unknown)
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
        models = self.options.pool_size
        check_pool_models(models)
        name = self.opened.run.id or self.opened.experiment.public_id
        folder = self.folder.resolve().parent / POOLS_FOLDER / name
        plan = Plan(self.opened.experiment)
        data = self.opened.scenario.data
        return build_request_pool(folder, plan, data, models, self.device, self.display)


def _is_current(run: runs.Run, folder: Path) -> bool:
    """Return whether the folder still contains this run, or no run that can be read."""
    try:
        now = runs.load_public(folder)
    except BadInput:
        return True  # Storing the audit says what is wrong with the folder.
    # Two runs within a second have the same date, but not the same times.
    return (now.id, now.created, now.seconds) == (run.id, run.created, run.seconds)


def _store(audit: Audit, folder: Path) -> str:
    """Store an audit; return why it was not stored, or "". The verdict does not depend on it."""
    try:
        if save(audit, folder):
            return ""
    except BadInput as error:
        return str(error)
    return (
        f"{file_of(audit.tier)} stays as it is: that audit compared with more retrained models "
        f"than this one, {audit.models}."
    )
