"""Make a model forget by the cheapest method that passes an audit, and store it as a run."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from duck import files, runs
from duck.artifacts import ArtifactStore, default_root
from duck.assurance import Assurance, Assured, AssureOptions, assure, describe_size
from duck.audits import verdict
from duck.audits.next_step import next_steps
from duck.audits.options import DEFAULT_POOL_MODELS, AuditOptions
from duck.audits.verdict import Audit
from duck.commands.audit import POOLS_FOLDER
from duck.commands.forget import ForgetOptions, ForgetRun, PreparedRequest, prepare
from duck.commands.options import model_factory
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.methods.automatic import AUTO
from duck.methods.by_cost import Candidate, methods_by_cost
from duck.models.weights import holds_weights
from duck.pools.build import build_request_pool
from duck.pools.plan import Plan
from duck.pools.reader import Pool
from duck.records import to_plain
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.types import Scenario


@dataclass(frozen=True)
class AssuredRun:
    """A stored unlearning that was chosen by audits."""

    forgotten: ForgetRun
    assurance: Assurance
    audit: Audit | None
    """The final audit, of the quick tier if the budget ended before; None: it is refused."""


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


def plan_assurance(
    options: ForgetOptions, assurance: AssureOptions | None = None, display: Display | None = None
) -> list[PlannedStep]:
    """Return the methods that `assure_run` would try, in order. Nothing is trained."""
    options.check()
    chosen = assurance or AssureOptions()
    shown = display or Display()
    prepared = prepare(options, pick_device(options.output.device), shown)
    candidates = _candidates(prepared)
    samples = len(prepared.scenario.forget)
    if chosen.tier != "quick" and samples > 1:
        shown.message(_describe_references(prepared, chosen.models))
    if remark := describe_size(samples, chosen.tier):
        shown.message(remark)
    return _plan(prepared, candidates)


def assure_run(
    options: ForgetOptions,
    assurance: AssureOptions | None = None,
    display: Display | None = None,
) -> AssuredRun:
    """Try methods until one passes the audits, and store its model, as `duck forget --assure` does.

    The last method is retraining, which needs no audit.
    """
    options.check()
    chosen = assurance or AssureOptions()
    chosen.check()
    shown = display or Display()
    device = pick_device(options.output.device)
    prepared = prepare(options, device, shown)
    candidates = _candidates(prepared)
    parent = _check_output(options, prepared.experiment(candidates[-1].method))
    for step in _plan(prepared, candidates):
        shown.message(f"Planned: {step}")
    for finding in prepared.findings:
        shown.message(str(finding))
    data = prepared.scenario.data
    training, original = prepared.training, prepared.original
    store = ArtifactStore(default_root(parent / "run"))

    def retrain(scenario: Scenario) -> Retraining:
        new_model = model_factory(training, prepared.data)
        return Retraining(scenario, original.model, new_model, training.recipe, training, store)

    def build_pool(candidate: Candidate) -> Pool:
        experiment = prepared.experiment(candidate.method)
        name = experiment.public_id if options.output.out is None else options.output.out.name
        folder = parent.resolve() / POOLS_FOLDER / f"{name}-{candidate.name}"
        models = DEFAULT_POOL_MODELS
        return build_request_pool(folder, Plan(experiment), data, models, device, shown)

    assured = assure(
        original,
        replace(prepared.scenario, data=data.to(device)),
        candidates,
        lambda candidate: prepared.unlearn(candidate.method, parent / "run", shown),
        chosen,
        retrain,
        build_pool if chosen.tier == "full" else None,
        shown,
        _retraining_seconds(prepared),
    )
    return _store(prepared, assured, chosen, shown)


def _check_output(options: ForgetOptions, experiment: Experiment) -> Path:
    """Return the folder of the run's folder, or raise an error if that cannot be written."""
    out, overwrite = options.output.out, options.output.overwrite
    if out is None:
        return runs.default_folder(experiment).parent
    if runs.is_run(out) and not overwrite:
        raise BadInput(f"{out} holds a run already: choose another --out, or --overwrite it.")
    runs.check_free(out, experiment, overwrite)
    return out.parent


def _store(
    prepared: PreparedRequest, assured: Assured, chosen: AssureOptions, display: Display
) -> AssuredRun:
    """Store the run at the first place where nothing is lost; its model took long to make."""
    experiment = prepared.experiment(assured.candidate.method)
    wanted = prepared.options.output.out or runs.default_folder(experiment)
    for folder in runs.numbered(wanted):
        if folder.exists() and not runs.is_run(folder):
            continue
        with suppress(files.InUse), runs.reserve(folder, experiment, overwrite=True):
            if folder.exists() and not (
                folder == wanted and _may_replace(folder, prepared, assured)
            ):
                continue
            if folder != wanted:
                display.message(f"{wanted} holds another run by now: this one is in {folder}.")
            return _write(prepared, assured, chosen, folder)
    raise AssertionError("There are always more folders.")


def _may_replace(folder: Path, prepared: PreparedRequest, assured: Assured) -> bool:
    """Return whether the run in the wanted folder may be replaced.

    What is replaced without being asked for is the same experiment with the same weights.
    """
    output = prepared.options.output
    if output.out is not None or output.overwrite:
        return output.overwrite
    experiment = prepared.experiment(assured.candidate.method)
    is_same = runs.holds(folder, experiment)
    return is_same and holds_weights(folder / runs.WEIGHTS, assured.outcome.model)


def _write(
    prepared: PreparedRequest, assured: Assured, chosen: AssureOptions, folder: Path
) -> AssuredRun:
    method = assured.candidate.method
    note = str(assured.assurance)
    outcome = replace(assured.outcome, method_notes=(*assured.outcome.method_notes, note))
    # Unless a run is to be overwritten, what is there has the same weights: its audits stay true.
    keep = () if prepared.options.output.overwrite else runs.FINDINGS
    stored = prepared.store(outcome, method, folder, overwrite=True, keep=keep)
    files.write_json(folder / runs.ASSURANCE, to_plain(assured.assurance))
    audit = assured.audit
    if audit is not None:
        audit = replace(audit, next_steps=_next_steps(prepared, stored, audit, chosen))
        verdict.save(audit, folder)
    return AssuredRun(stored, assured.assurance, audit)


def _next_steps(
    prepared: PreparedRequest, stored: ForgetRun, audit: Audit, chosen: AssureOptions
) -> tuple[str, ...]:
    """Return what to do after the final audit, with what the assurance was asked for."""
    original = prepared.options.original.run
    assert original is not None  # Models that were trained elsewhere are refused.
    limits = asdict(chosen.limits)
    asked = AuditOptions(chosen.tier, chosen.models, planted=chosen.planted, **limits)
    return next_steps(stored.run, stored.folder, audit, asked, original)


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
        return methods_by_cost(prepared.scenario, recipe)
    method, _ = options.build_method(prepared)
    return methods_by_cost(prepared.scenario, recipe, method)


def _describe_references(prepared: PreparedRequest, models: int) -> str:
    """Return what the models to compare with cost, which is more than the methods."""
    seconds = _retraining_seconds(prepared)
    about = "" if seconds is None else f", about {models * seconds:.3g} s if none are stored"
    return (
        f"First, {models} models are retrained to compare with{about}. The final audit trains "
        "three more that keep a part of the samples. The times below are those of the methods "
        "alone."
    )


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
