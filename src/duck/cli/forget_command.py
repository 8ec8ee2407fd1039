"""duck forget: make a model forget and store the unlearned model as a run."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.audits.next_step import verdict_without_audit
from duck.cli.console import (
    emit,
    number,
    percent,
    print_earlier_requests,
    print_table,
    say,
    training_progress,
    write,
)
from duck.cli.exit_codes import DONE, FAILED
from duck.cli.inputs import (
    DataFlags,
    GivenFlags,
    RunFlags,
    apply_flags,
    load_config,
    parse,
    read_flags,
)
from duck.cli.original import (
    OriginalFlags,
    RequestFlags,
    add_notes,
    data_flags,
    data_name,
    data_samples,
    model_factory,
    report_findings,
    unprinted_notes,
)
from duck.data.checks import Finding
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.methods import METHODS
from duck.methods.base import Method
from duck.methods.presets import Preset, has_settings, preset
from duck.metrics import SMALL, check_limit, loss_change
from duck.preparation import Preparations
from duck.printable import counted
from duck.runtime import distributed, is_first, pick_device
from duck.scenarios import ForgetRandomClasses, Request
from duck.unlearning import Status, unlearn

EXIT_CODES: dict[Status, int] = {"done": DONE, "nothing forgotten": FAILED, "damaged": FAILED}


@dataclass
class ForgetFlags:
    """Make a model forget whole classes, a random fraction, or chosen samples.

    The model is a stored run (--run), or your own: --model package.module:function --weights FILE
    --data IMAGES. It can be the run of an earlier request: what that forgot stays out of the retain
    set and is scored again. The request is --classes 3 5, or --fraction 0.1, or --ids FILE with one
    id a line. Exit code 1: nothing was forgotten, too much accuracy was lost, or the model knows
    what an earlier request was to forget. Below are the settings of the chosen --method, with its
    preset for these data. --config takes them from a file.
    """

    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    request: RequestFlags
    method: str = "duck"
    """A name from `duck list methods`."""
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
    config = load_config(given)
    config_method = None if config is None else _method_of_config(config, given)
    args = _parse(argv, given, config, config_method or _method_for_help(given))
    config_request = config.request if config else None
    args.request.check(config_request)
    args.original.check()
    if config is not None and config.earlier and config.earlier != args.original.earlier():
        raise BadInput(
            f"{args.config} follows earlier requests: give --run the run that forgot them, and no "
            "other."
        )
    check_limit(args.max_accuracy_loss)
    with distributed(args.output.device) as device, ExitStack() as reserved:
        return _run(args, given, config_request, config_method, pick_device(device), reserved)


def _method_of_config(config: Experiment, given: GivenFlags) -> Method | None:
    """Return the method of --config; None if --method names another one."""
    if config.method is None or config.request is None:
        raise BadInput(
            f"{given['--config']} is the experiment of a training: it has no method and no request."
        )
    if given.get("--method"):
        return None
    if given.get("--preset") or given.get("--presets"):
        raise BadInput(
            "--config has every setting of its method: leave --preset and --presets out, or name "
            "the method with --method."
        )
    return config.method


def _parse(
    argv: Sequence[str], given: GivenFlags, config: Experiment | None, method: Method
) -> Any:
    """Parse the flags, among them the settings of the method."""
    flags = make_dataclass(
        "ForgetFlags", [("settings", type(method))], bases=(ForgetFlags,), kw_only=True
    )
    flags.__doc__ = ForgetFlags.__doc__
    output = RunFlags()
    original = OriginalFlags()
    request = RequestFlags()
    if config is not None:
        output = RunFlags(seed=config.seed)
        original = OriginalFlags(head=config.head)
        request = RequestFlags(protocol=config.protocol)
    default = flags(
        source=data_flags(given),
        output=output,
        original=original,
        request=request,
        method=METHODS.name_of(method),
        settings=method,
    )
    return parse(flags, argv, "forget", default)


def _method_for_help(given: GivenFlags) -> Method:
    """Return the settings that the help shows: the preset, as far as it is known without data."""
    name = given.get("--method") or "duck"
    kind = "class" if given.get("--classes") else "samples"
    if kind not in METHODS[name].scenarios:
        return METHODS[name]()
    data = data_name(given)
    which: Any = given.get("--preset") or "tuned"
    file = Path(given["--presets"]) if given.get("--presets") else None
    if file is not None and not has_settings(file, name, data, kind):
        file = None
    return preset(name, data, kind, data_samples(given), which, file)


def _run(
    args: Any,
    given: GivenFlags,
    config_request: Request | None,
    config_method: Method | None,
    device: torch.device,
    reserved: ExitStack,
) -> int:
    """Unlearn, store and print the run; `reserved` locks its folder until the command ends."""
    seed = args.output.seed
    protocol = args.request.protocol
    data = args.source.load(split=args.original.splits_data())
    request = args.request.build(data, config_request)
    training = args.original.training(data, args.source)
    copies = ""
    if args.with_copies:
        request, copies = args.original.with_copies(request, data, seed, protocol)
    scenario = args.original.scenario(request, data, seed, protocol)
    defaults = config_method or preset(
        args.method, data.name, scenario.kind, len(data.train), args.preset, args.presets
    )
    method = apply_flags(args.settings, given, defaults)
    head = args.original.other_head(training, data, device)
    experiment = Experiment(
        training, request, method, seed, protocol, args.original.earlier(), head
    )
    folder = args.output.out or runs.default_folder(experiment)
    if reserved.enter_context(runs.reserve(folder, experiment, args.output.overwrite)):
        say(f"{folder} already holds this run; --overwrite runs it again.")
        return print_run(folder, args.output.json, args.max_accuracy_loss)
    findings = report_findings(scenario)
    model = args.original.load(training, data, device)
    with training_progress(f"{args.method} on {training.data}", quiet=not is_first()) as watch:
        outcome = unlearn(
            method,
            model,
            replace(scenario, data=scenario.data.to(device)),
            new_model=model_factory(training, data),
            recipe=training.recipe,
            head=args.original.head_name(),
            watch=watch,
            preparations=Preparations(ArtifactStore(default_root(folder.parent))),
            max_accuracy_loss=args.max_accuracy_loss,
        )
    if not is_first():
        return DONE
    outcome = add_notes(outcome, method, training, data, args.original, findings, copies)
    run = runs.record(experiment, scenario, outcome, **args.original.places(folder, args.source))
    runs.save(run, outcome.model, folder, args.output.overwrite)
    return print_run(folder, args.output.json, args.max_accuracy_loss, findings)


def print_run(
    folder: Path,
    as_json: bool,
    max_accuracy_loss: float | None = None,
    printed: Sequence[Finding] = (),
) -> int:
    """Print a stored unlearning and return the exit code.

    max_accuracy_loss   the run is judged by this limit
    printed             findings that are printed already, with their ids
    """
    run = runs.judge(runs.load(folder), max_accuracy_loss)
    row = runs.row(folder, run)
    if as_json:
        emit(row)
    else:
        _print_text(folder, run, row, printed)
    return FAILED if any(scores.is_known for scores in run.earlier) else EXIT_CODES[run.status]


def _print_text(
    folder: Path, run: runs.Run, row: dict[str, Any], printed: Sequence[Finding]
) -> None:
    for note in unprinted_notes(run.notes, printed):
        write(note)
    original = run.original or {}
    rows = [
        ["original", *_cells(original), ""],
        [row["method"], *_cells(run.scores), f"{run.seconds:.2f}"],
    ]
    print_table(["", "AUS", *(f"{name} %" for name in runs.COLUMNS[1:]), "seconds"], rows)
    if run.samples["forget"] < SMALL and run.by_class.kind == "samples":
        for change in loss_change(original, run.scores):
            write(change)
    print_earlier_requests(run.earlier)
    request = f"{row['scenario']}{_drawn_classes(run)}"
    samples = counted(row["forget_samples"], "sample")
    processed = f"{row['processed']} of {samples} processed"
    write(f"{row['method']}, {request}: {processed}. Run: {folder}")
    if run.status != "nothing forgotten":
        write(verdict_without_audit(run, folder))


def _drawn_classes(run: runs.Run) -> str:
    """Return the names of classes that were drawn at random: the request does not name them."""
    if not isinstance(run.experiment.request, ForgetRandomClasses):
        return ""
    names = run.by_class.names
    return f" ({', '.join(names[int(index)] for index in run.by_class.forget)})"


def _cells(scores: dict[str, float | None]) -> list[str]:
    return [number(scores.get("aus")), *(percent(scores.get(name)) for name in runs.COLUMNS[1:])]
