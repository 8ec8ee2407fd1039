"""duck forget: make a model forget and store the unlearned model as a run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duck import runs
from duck.audits.next_step import verdict_without_audit
from duck.audits.verdict import DEFAULT_MODELS, MARGIN, MAX_EPSILON, Limits, Tier, describe_final
from duck.cli import inputs
from duck.cli.console import (
    CONSOLE,
    emit,
    print_earlier_requests,
    print_table,
    score_cells,
    write,
)
from duck.cli.exit_codes import DONE, FAILED
from duck.cli.parsing import GivenFlags, given_values, parse, read_flags
from duck.commands.forget import ForgetOptions, ForgetRun, forget_run
from duck.commands.options import DataOptions, OriginalOptions
from duck.data import DATASETS
from duck.errors import BadInput
from duck.experiment import Experiment, Training
from duck.methods import METHODS
from duck.methods.automatic import AUTO
from duck.methods.base import Method
from duck.methods.presets import Preset, has_settings, preset
from duck.metrics import SMALL, loss_change
from duck.printable import counted
from duck.records import to_plain
from duck.scenarios import ForgetRandomClasses
from duck.unlearning import Status

if TYPE_CHECKING:
    from duck.assurance import AssureOptions
    from duck.commands.assure import AssuredRun, PlannedStep

EXIT_CODES: dict[Status, int] = {"done": DONE, "nothing forgotten": FAILED, "damaged": FAILED}


@dataclass
class AssureFlags:
    """Which audit the model must pass."""

    assure: Tier | None = None
    """Tier of the audit: quick, oracle or full. Methods are tried until one passes; the last one is
    retraining. With a --method, only this one is tried before."""
    dry_run: bool = False
    """With --assure: print the methods that would be tried, and do nothing."""
    budget_seconds: float | None = None
    """With --assure: start no method and no model to compare with that is expected to end later.
    Keep the best so far, with exit code 1. The first method always runs."""
    models: int = DEFAULT_MODELS
    """With --assure: retrained models that the audits compare with."""
    margin: float = MARGIN
    """With --assure: largest residual memory of a model that passes."""
    max_advantage: float | None = None
    """With --assure: largest membership advantage beyond that of retrained models."""
    max_epsilon: float = MAX_EPSILON
    """With --assure full: largest lower bound of ε."""
    planted: bool = True
    """With --assure: also train three models that keep a share of the forget set, to state how much
    the final audit recognises."""

    @property
    def options(self) -> "AssureOptions":
        """The options of the assurance."""
        from duck.assurance import AssureOptions

        assert self.assure is not None
        limits = Limits(self.margin, self.max_advantage, self.max_epsilon)
        return AssureOptions(self.assure, self.models, limits, self.planted, self.budget_seconds)

    def check(self) -> None:
        """Raise an error for flags that have no effect without --assure."""
        if self.assure is not None:
            return
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                flag = field.name.replace("_", "-")
                flag = f"no-{flag}" if field.default is True else flag
                raise BadInput(f"--{flag} needs --assure quick, oracle or full.")


@dataclass
class NoSettings:
    """Settings of --method auto: none, as the method is not known yet."""


@dataclass
class ForgetFlags(inputs.SharedFlags):
    """Make a model forget whole classes, a random fraction, or chosen samples.

    The model is a stored run (--run), or your own (--model package.module:function --weights FILE
    and --data IMAGES). It can be the run of an earlier request: what that forgot stays out of the
    retain set and is scored again. The request is --classes 3 5, or --fraction 0.1, or --ids FILE
    with one id a line. Exit code 1: nothing was forgotten, too much accuracy was lost, the model
    remembers samples of an earlier request, or no method passed --assure within its budget. At
    the end are the settings of the chosen --method, with its preset for these data. A file for
    --config has them, too.

    With --assure oracle, methods are tried from the cheapest on and audited. The result is a model
    that passes, or the retrained one.
    """

    assurance: AssureFlags
    settings: Any
    method: str = AUTO
    """A name from `duck list methods`, or auto: the method that fits the request."""
    preset: Preset = "tuned"
    """paper: the settings of the paper; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    max_accuracy_loss: float | None = None
    """Share of accuracy on unseen samples that may be lost, such as 0.1 for 10 points. A model that
    loses more is reported as damaged, with exit code 1. Default: the larger of 5 points and 3
    standard errors."""
    config: Path | None = None
    """An experiment as `duck show RUN --toml` prints it: method, settings, request, seed. Flags
    change its values."""
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


def main(argv: list[str]) -> int:
    given = read_flags(argv)
    config = inputs.load_config(given) or Experiment(Training("", ""))
    if given.get("--config") and config.method is None:
        raise BadInput(f"{given['--config']} is the experiment of a training: it has no method.")
    own_method = None if given.get("--method") else config.method
    name = METHODS.name_of(own_method) if own_method else given.get("--method") or AUTO
    _check_settings(given, name)
    default = ForgetFlags(
        DataOptions(),
        inputs.RunFlags(seed=config.seed),
        OriginalOptions(head=config.head),
        inputs.RequestFlags(protocol=config.protocol),
        AssureFlags(),
        own_method or _settings_for_help(name, given),
        name,
    )
    args = parse(ForgetFlags, argv, "forget", default)
    options = args.forget_options(
        config.request,
        method=own_method or args.method,
        settings=given_values(args.settings, given),
        preset=args.preset,
        presets=args.presets,
        max_accuracy_loss=args.max_accuracy_loss,
        with_copies=args.with_copies,
        earlier=config.earlier,
    )
    options.check()
    args.assurance.check()
    if args.assurance.assure:
        return _assure(options, args.assurance, args.output.json)
    forgotten = forget_run(options, CONSOLE)
    return _print_run(forgotten, args.output.json) if forgotten.is_first else DONE


def _settings_for_help(name: str, given: GivenFlags) -> Method | NoSettings:
    """Return the settings that the help shows: the preset, as far as it is known without data."""
    if name == AUTO:
        return NoSettings()
    kind = "class" if given.get("--classes") else "samples"
    if kind not in METHODS[name].scenarios:
        return METHODS[name]()
    data, samples = _known_data(given)
    which: Any = given.get("--preset") or "tuned"
    file = Path(given["--presets"]) if given.get("--presets") else None
    if file is not None and not has_settings(file, name, data, kind):
        file = None
    return preset(name, data, kind, samples, which, file)


def _known_data(given: GivenFlags) -> tuple[str, int | None]:
    """Return the name of the data and the number of training samples, before they are read.

    The presets know the number for named data sets (None); others are taken for small (0).
    """
    if not given.get("--run"):
        data = given.get("--data") or "digits"
        return data, None if data in DATASETS else 0
    run = runs.load_public(Path(given["--run"]))
    parts = sum(run.samples.get(name, 0) for name in ("forget", "retain"))
    return run.experiment.training.data, run.samples.get("train") or parts or None


def _check_settings(given: GivenFlags, method: str) -> None:
    """Raise an error for settings of other methods than the chosen one."""
    settings = {name: {setting.name for setting in fields(METHODS[name])} for name in METHODS}  # type: ignore[arg-type]
    for flag in given:
        setting = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        owners = [name for name, own in settings.items() if setting in own]
        if owners and method not in owners:
            raise BadInput(
                f"{flag} is a setting of {', '.join(owners)}: name the method with --method."
            )


def _assure(options: ForgetOptions, flags: AssureFlags, as_json: bool) -> int:
    """Print the plan, or try methods until one passes."""
    # Audits import scipy, which a plain `duck forget` does not need.
    from duck.commands.assure import assure_run, plan_assurance

    flags.options.check()
    if flags.dry_run:
        return _print_plan(plan_assurance(options, flags.options, CONSOLE), as_json)
    return _print_assured(assure_run(options, flags.options, CONSOLE), as_json)


def _print_plan(steps: "Sequence[PlannedStep]", as_json: bool) -> int:
    """Print the methods that would be tried."""
    if as_json:
        emit([asdict(step) for step in steps])
        return DONE
    print_table(
        [
            {
                "method": step.method,
                "of retraining": f"{100 * step.share:.0f} %",
                "seconds": "-" if step.seconds is None else f"{step.seconds:.3g}",
                "reached before": step.reached,
            }
            for step in steps
        ]
    )
    write("Methods are tried in this order until one passes. Nothing was trained.")
    return DONE


def _print_assured(run: "AssuredRun", as_json: bool) -> int:
    """Print a run that was chosen by audits and return the exit code."""
    assurance = run.assurance
    if as_json:
        row = runs.row(run.forgotten.folder, run.forgotten.run)
        emit({**row, "assurance": to_plain(assurance)})
        return _exit_code(run.forgotten.run) if assurance.passed else FAILED
    print_table(
        [
            {
                "method": attempt.method,
                "seconds": f"{attempt.seconds:.2f}",
                "passed": "yes" if attempt.passed else "no",
                "why": attempt.reason,
            }
            for attempt in assurance.attempts
        ]
    )
    write(assurance)
    if run.audit is not None:
        write(describe_final(run.audit))
    print_earlier_requests(run.forgotten.run.earlier)
    write(f"Run: {run.forgotten.folder}")
    return _exit_code(run.forgotten.run) if assurance.passed else FAILED


def _print_run(forgotten: ForgetRun, as_json: bool) -> int:
    """Print a stored unlearning and return the exit code."""
    if as_json:
        emit(runs.row(forgotten.folder, forgotten.run))
    else:
        _print_text(forgotten)
    return _exit_code(forgotten.run)


def _exit_code(run: runs.Run) -> int:
    return FAILED if any(scores.is_remembered for scores in run.earlier) else EXIT_CODES[run.status]


def _print_text(forgotten: ForgetRun) -> None:
    run = forgotten.run
    for note in inputs.unprinted_notes(run.notes, forgotten.findings):
        write(note)
    original = run.original or {}
    before = {"": "original", **score_cells(original), "seconds": ""}
    after = {"": run.method_name, **score_cells(run.scores), "seconds": f"{run.seconds:.2f}"}
    print_table([before, after])
    if run.samples["forget"] < SMALL and run.by_class.kind == "samples":
        for change in loss_change(original, run.scores):
            write(change)
    print_earlier_requests(run.earlier)
    request = f"{run.request_text}{_drawn_classes(run)}"
    samples = counted(run.samples["forget"], "sample")
    processed = f"{run.samples['processed']} of {samples} processed"
    write(f"{run.method_name}, {request}: {processed}. Run: {forgotten.folder}")
    if run.status != "nothing forgotten":
        write(verdict_without_audit(run, forgotten.folder))


def _drawn_classes(run: runs.Run) -> str:
    """Return the names of classes that were drawn at random: the request does not name them."""
    if not isinstance(run.experiment.request, ForgetRandomClasses):
        return ""
    names = run.by_class.names
    return f" ({', '.join(names[int(index)] for index in run.by_class.forget)})"
