"""Make a model forget by the cheapest method that passes an audit, and store it as a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from duck import files, runs
from duck.artifacts import ArtifactStore, default_root
from duck.assurance import Assurance, Assured, AssureOptions, assure
from duck.audits import verdict
from duck.audits.run_audit import DEFAULT_POOL_MODELS, POOLS_FOLDER
from duck.audits.verdict import Audit
from duck.data.checks import Finding
from duck.display import Display
from duck.errors import BadInput
from duck.methods.ladder import AUTO, Candidate, ladder
from duck.pools.build import build_request_pool
from duck.pools.plan import Plan
from duck.pools.reader import Pool
from duck.records import to_plain
from duck.retraining import Retraining
from duck.run_forget import ForgetOptions, ForgetRun, PreparedRequest, prepare
from duck.runtime import pick_device
from duck.types import Original, Scenario


@dataclass(frozen=True)
class AssuredRun:
    """A stored unlearning that was chosen by audits."""

    forgotten: ForgetRun
    assurance: Assurance
    audit: Audit | None
    """The final audit; None: the budget ended before."""


@dataclass(frozen=True)
class PlannedStep:
    """A method that would be tried."""

    method: str
    share: float
    """Expected time, as a share of retraining."""
    seconds: float | None
    """Expected time; None: the time of the original's training is not known."""
    reached: str

    def __str__(self) -> str:
        time = f"{100 * self.share:.0f} % of the time of retraining"
        about = f", about {self.seconds:.3g} s" if self.seconds is not None else ""
        reached = f"; {self.reached}" if self.reached else ""
        return f"{self.method}, {time}{about}{reached}."


def plan_assurance(options: ForgetOptions, display: Display | None = None) -> list[PlannedStep]:
    """Return the methods that `assure_run` would try, in order. Nothing is trained."""
    options.check()
    prepared = prepare(options, pick_device(options.output.device), display or Display())
    return _plan(prepared, _candidates(prepared))


def assure_run(
    options: ForgetOptions,
    assurance: AssureOptions | None = None,
    display: Display | None = None,
) -> AssuredRun:
    """Try methods until one passes the audits, and store its model, as `duck forget --assure` does.

    The last method is retraining, which needs no proof.
    """
    options.check()
    chosen = assurance or AssureOptions()
    chosen.check()
    device = pick_device(options.output.device)
    return _AssuredRun(options, chosen, device, display or Display())()


class _AssuredRun:
    """One run with assurance."""

    def __init__(
        self,
        options: ForgetOptions,
        assurance: AssureOptions,
        device: torch.device,
        display: Display,
    ) -> None:
        self.options = options
        self.assurance = assurance
        self.device = device
        self.display = display
        self.prepared = prepare(options, device, display)
        self.candidates = _candidates(self.prepared)
        exact = self.prepared.experiment(self.candidates[-1].method)
        self.parent = (options.output.out or runs.default_folder(exact)).parent

    def __call__(self) -> AssuredRun:
        self._check_output()
        for step in _plan(self.prepared, self.candidates):
            self.display.message(f"Planned: {step}")
        findings = self.prepared.check_data(self.display)
        data = self.prepared.scenario.data.to(self.device)
        assured = assure(
            Original(
                self.prepared.model,
                self.prepared.new_model,
                self.prepared.recipe,
                self.options.original.head_name(),
            ),
            replace(self.prepared.scenario, data=data),
            self.candidates,
            lambda candidate: self.prepared.unlearn(
                candidate.method, self.parent / "run", self.display
            ),
            self.assurance,
            self._retraining,
            self._pool if self.assurance.tier == "full" else None,
            self.display,
        )
        return self._store(assured, findings)

    def _check_output(self) -> None:
        """Raise an error for a folder that cannot be written, before anything is trained."""
        out, overwrite = self.options.output.out, self.options.output.overwrite
        if out is None:
            return
        if runs.is_run(out) and not overwrite:
            raise BadInput(f"{out} holds a run already: choose another --out, or --overwrite it.")
        runs.check_free(out, self.prepared.experiment(self.candidates[-1].method), overwrite)

    def _retraining(self, scenario: Scenario) -> Retraining:
        prepared = self.prepared
        return Retraining(
            scenario,
            prepared.model,
            prepared.new_model,
            prepared.training.recipe,
            prepared.training,
            ArtifactStore(default_root(self.parent)),
        )

    def _pool(self, candidate: Candidate) -> Pool:
        experiment = self.prepared.experiment(candidate.method)
        out = self.options.output.out
        name = out.name if out is not None else experiment.public_id
        folder = self.parent.resolve() / POOLS_FOLDER / f"{name}-{candidate.name}"
        plan = Plan(experiment)
        data = self.prepared.scenario.data
        models = DEFAULT_POOL_MODELS
        return build_request_pool(folder, plan, data, models, self.device, self.display)

    def _store(self, assured: Assured, findings: Sequence[Finding]) -> AssuredRun:
        method = assured.candidate.method
        experiment = self.prepared.experiment(method)
        folder = self.options.output.out or runs.default_folder(experiment)
        note = str(assured.assurance)
        outcome = replace(assured.outcome, method_notes=(*assured.outcome.method_notes, note))
        # The same run may have been stored before, by another audit: all of its files are replaced.
        with runs.reserve(folder, experiment, overwrite=True):
            stored = self.prepared.store(outcome, method, folder, findings, overwrite=True)
            files.write_json(folder / runs.ASSURANCE, to_plain(assured.assurance))
            if assured.audit is not None:
                verdict.save(assured.audit, folder)
        return AssuredRun(stored, assured.assurance, assured.audit)


def _candidates(prepared: PreparedRequest) -> list[Candidate]:
    """Return the methods to try; a method that the user named has the settings of the flags."""
    recipe = prepared.recipe
    if recipe is None:
        raise BadInput(
            "Assurance may end with retraining, and the recipe of this original is not known: it "
            "was trained elsewhere. Train it with `duck train`, or forget without --assure and "
            "audit with --default-recipe."
        )
    options = prepared.options
    if options.protocol == "paper":
        raise BadInput(
            "--protocol paper has no holdout apart from the test data, and assurance needs both: "
            "leave it out."
        )
    if options.method == AUTO:
        return ladder(prepared.scenario, recipe)
    method, _ = options.build_method(prepared)
    return ladder(prepared.scenario, recipe, method)


def _plan(prepared: PreparedRequest, candidates: Sequence[Candidate]) -> list[PlannedStep]:
    seconds = _retraining_seconds(prepared)
    return [
        PlannedStep(
            candidate.name,
            candidate.share,
            None if seconds is None else candidate.share * seconds,
            candidate.reached,
        )
        for candidate in candidates
    ]


def _retraining_seconds(prepared: PreparedRequest) -> float | None:
    """Return the expected time of a retraining, from that of the original's training."""
    folder = prepared.options.original.run
    run = None if folder is None else runs.load(folder)
    if run is None or run.experiment.method is not None:
        return None
    return run.seconds * len(prepared.scenario.retain) / len(prepared.data.train)
