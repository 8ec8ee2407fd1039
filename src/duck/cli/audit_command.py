"""duck audit: attack an unlearned model and say what was found. Exit 0 forgotten, 1 not forgotten or damaged, 3 no verdict."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import nn

from duck import runs
from duck.audits.auditing import DEFAULT_MODELS, Case, audit_oracle, audit_quick
from duck.audits.full import MIN_MODELS, check_size
from duck.audits.outputs import make_setting
from duck.audits.quick import Coverage
from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN, Audit, Tier, file_of, save
from duck.cli import exit_codes
from duck.cli.console import emit, progress_bar, say, write
from duck.cli.inputs import parse
from duck.cli.reference_models import Unlearning, unlearning
from duck.errors import BadInput
from duck.experiment import Training
from duck.methods.base import METHODS
from duck.models import build
from duck.models.user_models import in_float32
from duck.models.weights import load_weights
from duck.pools.build import build_pool, suitable_workers
from duck.pools.plan import Plan
from duck.pools.reader import Pool, mismatch
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.scenarios import describe
from duck.types import Recipe

EXITS = {
    FORGOTTEN: exit_codes.DONE,
    NOT_FORGOTTEN: exit_codes.FAILED,
    NO_VERDICT: exit_codes.NO_VERDICT,
}
POOLS = ".pools"
POOL_MODELS = 32


@dataclass
class AuditFlags:
    """Attack an unlearned model and say whether it forgot, with intervals and controls.

    quick: the model alone, seconds; says "not forgotten" or "no verdict".

    oracle: against models retrained without the samples, which are trained now and kept beside the run, or given with --retrained.

    full: also a pool of models; U-LiRA, LiRA, RMIA, ε, KLoM, memorisation.

    Each tier's result is kept as audit-TIER.json in the run's folder, and a report shows the highest.
    Exit code 0: forgotten; 1: not forgotten, or a run that lost too much accuracy; 3: no verdict; 2: wrong input.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a run of `duck forget`."""
    tier: Tier = "quick"
    models: int = DEFAULT_MODELS
    """Retrained models, given ones included; fewer than five can convict and not acquit."""
    retrained: tuple[Path, ...] = ()
    """Runs of the method `retrained` for the same samples, with other seeds."""
    default_recipe: bool = False
    """Train models by the default recipe where the original was trained elsewhere, so that its own is not known."""
    pool: Path | None = None
    """Pool of `duck pool` for the full tier; made now, and kept beside the run, where not given."""
    pool_models: int | None = None
    """Models of a pool that is made now, 32 where not given; half as many oracles come with them."""
    original: Path | None = None
    """Run, or file of weights, of the original, where it is not found."""
    data: str | None = None
    """The data, where they are no longer where the run says."""
    root: Path | None = None
    """Folder that holds the named data sets, where it is another than the run says."""
    head: str | None = None
    """Name of the classifier head inside the model; found by a probe where not given."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code can do anything."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    json: bool = False
    """What the file holds to stdout instead of a table."""


def main(argv: list[str]) -> int:
    begun, args = time.monotonic(), parse(AuditFlags, argv, "audit")
    _check(args)
    device = pick_device(args.device)
    found = unlearning(args.run, args.data, args.root, trusted=args.trust_model_code)
    _check_recipe(args, found)
    found = replace(found, scenario=replace(found.scenario, data=found.scenario.data.to(device)))
    make_setting(found.scenario)  # nothing is trained for an audit that cannot be
    case = _case(args, found, device)
    if args.tier == "quick":
        audit = audit_quick(case)
    else:
        pool = _pool(args, found, device) if args.tier == "full" else None
        audit = audit_oracle(case, _references(args, found, case, device), pool)
    audit = replace(audit, seconds=time.monotonic() - begun)
    unkept = _keep(audit, args.run)  # before a reader that stops reading ends the command
    if args.json:
        emit(audit.to_dict())
    else:
        write(audit)
    if unkept:
        say(unkept)
    if found.run.status == "damaged":
        say(str(found.run.kept_accuracy))
        return exit_codes.FAILED
    return EXITS[audit.verdict]


def _keep(audit: Audit, run: Path) -> str:
    """Store it; why not, where it was not: the verdict stands all the same."""
    try:
        if save(audit, run):
            return ""
    except BadInput as error:
        return str(error)
    return f"{file_of(audit.tier)} stays as it is: that audit compared with more retrained models than this one, {audit.models}."


def _check(args: AuditFlags) -> None:
    """Nothing that is said may be passed over in silence."""
    if args.models < 1:
        raise BadInput(f"--models is at least 1, got {args.models}.")
    if args.tier == "quick" and args.retrained:
        raise BadInput("The quick tier takes no --retrained: add --tier oracle.")
    if args.tier == "quick" and args.default_recipe:
        raise BadInput(
            "The quick tier trains nothing and takes no --default-recipe: add --tier oracle."
        )
    if args.tier != "full" and (args.pool or args.pool_models is not None):
        raise BadInput(f"The {args.tier} tier takes no --pool or --pool-models: add --tier full.")
    if args.pool and args.pool_models is not None:
        raise BadInput(
            "--pool-models says how large a pool is made, and --pool names one that is there: give one of them."
        )


def _check_recipe(args: AuditFlags, found: Unlearning) -> None:
    """Models are trained by the original's recipe; by another one only if the user says so."""
    foreign, trains = (
        bool(found.experiment.training.weights),
        args.models > len(args.retrained) or (args.tier == "full" and not args.pool),
    )
    if args.default_recipe and not foreign:
        raise BadInput(
            f"--default-recipe is for originals that were trained elsewhere; the recipe of {args.run} is known, and is taken."
        )
    if foreign and trains and args.tier != "quick" and not args.default_recipe:
        pooled = " and --pool POOL" if args.tier == "full" else ""
        raise BadInput(
            f"The original of {args.run} was trained elsewhere, in a way that is not known, and models of another recipe differ from it "
            f"for that alone. Give --retrained RUNS{pooled} that were trained as it was, as many as --models {args.models}, "
            "or say --default-recipe to compare with models of the default one."
        )


def _case(args: AuditFlags, found: Unlearning, device: torch.device) -> Case:
    experiment, run = found.experiment, found.run
    assert experiment.request is not None
    coverage = Coverage(run.samples["processed"], run.samples["forget"])
    foreign = "The original was trained elsewhere: other models may have been trained in another way, and a difference may come from that."
    notes = (foreign,) if experiment.training.weights and args.tier != "quick" else ()
    return Case(
        found.scenario, _original(args, found, device), found.model(args.run, device), METHODS.name_of(experiment.method),
        describe(experiment.request, found.data.classes), coverage, args.head or experiment.head, lambda: _fresh(found), notes,
    )  # fmt: skip


def _original(args: AuditFlags, found: Unlearning, device: torch.device) -> nn.Module:
    place = found.named(args.original, "original") if args.original else found.original()
    if place is None:
        raise BadInput(
            f"The original of {args.run} is not beside it: name its run, or its weights, with --original."
        )
    if place.is_dir():
        return found.model(place, device)
    model = _fresh(found)
    load_weights(model, place)
    return model.to(device).eval()


def _fresh(found: Unlearning) -> nn.Module:
    data = found.scenario.data
    return in_float32(build(found.experiment.training.model, data.num_classes, data.train.shape))


def _references(
    args: AuditFlags, found: Unlearning, case: Case, device: torch.device
) -> list[nn.Module]:
    """The given retrained models, and as many more as are asked for."""
    given = [found.model(_checked(folder, found), device) for folder in args.retrained]
    training = found.experiment.training
    making = Retraining(
        found.scenario, case.original, lambda: _fresh(found), training.recipe, training, found.store
    )  # fmt: skip
    wanted = max(0, args.models - len(given))
    missing = making.missing(wanted)
    if missing:
        say(
            f"{missing} of {args.models} retrained models are to be trained; they are kept in {making.store.root}."
        )
    with _training(missing) as progress:
        return [*given, *making(wanted, progress)]


def _pool(args: AuditFlags, found: Unlearning, device: torch.device) -> Pool:
    """The given pool, or one made now; an error that says in what it does not fit the run."""
    folder, experiment = (
        args.pool
        or args.run.resolve().parent / POOLS / (found.run.id or found.experiment.public_id),
        found.experiment,
    )
    if args.pool is None:
        models = POOL_MODELS if args.pool_models is None else args.pool_models
        if models < MIN_MODELS:
            raise BadInput(
                f"The full tier needs a pool of at least {MIN_MODELS} models, got --pool-models {models}."
            )
        say(f"The pool of {models} models is made, or gone on with, in {folder}.")
        with progress_bar("pool") as progress:
            build_pool(
                folder, Plan("request", experiment), found.scenario.data, models, device=device, workers=suitable_workers(device),
                report=lambda news: progress(news.done, news.done + news.left),
            )  # fmt: skip
    pool = Pool(folder)
    differing = mismatch(pool, experiment, but=("recipe",) if experiment.training.weights else ())
    if pool.design != "request":
        differing.insert(0, "design: shadow models know nothing of unlearning.")
    if differing:
        raise BadInput(f"The pool in {folder} does not fit {args.run}: {' '.join(differing)}")
    check_size(pool)
    return pool


@contextmanager
def _training(missing: int) -> Iterator[Callable[[int, int], None]]:
    with progress_bar("retrained models") as progress:
        yield progress if missing else lambda done, total: None


def _checked(folder: Path, found: Unlearning) -> Path:
    """A run that retrained without exactly these samples."""
    other = runs.load(folder).experiment
    problems = []
    if other.method is None or METHODS.name_of(other.method) != "retrained":
        problems.append("its method is not 'retrained'")
    if _in_common(other.training, found) != _in_common(found.experiment.training, found):
        problems.append("its data, model or recipe differ")
    elif other.request is not None and not found.same_retain_set(other):
        problems.append("it was retrained without other samples")
    if problems:
        raise BadInput(f"{folder} cannot stand beside {found.folder}: {' and '.join(problems)}.")
    return folder


def _in_common(training: Training, found: Unlearning) -> Training:
    """What retrained models share with the run: of an original from elsewhere the recipe is not known."""
    unknown = bool(found.experiment.training.weights)
    return replace(
        training,
        seed=0,
        weights="",
        recipe=Recipe() if unknown else training.recipe,
        recipe_assumed=False,
    )
