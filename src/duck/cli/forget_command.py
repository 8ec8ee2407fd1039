"""duck forget: a stored or foreign model, without what it was told to forget."""

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
from duck.cli.inputs import DataFlags, RunFlags, apply_flags, load_config, parse, peek
from duck.cli.original import (
    OriginalFlags,
    RequestFlags,
    data_flags,
    data_name,
    data_samples,
    factory,
    noted,
    notes_left,
    report_findings,
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
class Forget:
    """Make a model forget whole classes, a random share, or chosen samples.

    The model is a stored run (--run), or your own: --model package.module:function --weights FILE --data IMAGES.
    The run of an earlier request is taken, too: what it forgot stays out of the retain set and is scored again.
    Say who: --classes 3 5, or --fraction 0.1, or --ids FILE with one id a line.
    Exit code 1: nothing was forgotten, too much accuracy was lost, or the model knows what an earlier request was to forget.
    Below are the settings of the chosen --method, with its preset for these data. --config takes them from a file.
    """

    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    who: RequestFlags
    method: str = "duck"
    """A name from `duck list methods`."""
    preset: Preset = "tuned"
    """paper: the paper's settings; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    max_accuracy_loss: float | None = None
    """Share of accuracy on unseen samples that may be lost, such as 0.1 for 10 points. A model that loses more is reported as damaged,
    with exit code 1. Where not given: the larger of 5 points and 3 standard errors."""
    config: Path | None = None
    """An experiment as `duck show RUN --toml` prints it: method, settings, who, seed. Flags go on top."""
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


def main(argv: list[str]) -> int:
    config = load_config(argv)
    if config is not None and (config.method is None or config.request is None):
        raise BadInput(
            f"{peek(argv, '--config')} is the experiment of a training: it names no method and nobody to forget."
        )
    kept = None if config is None or peek(argv, "--method") else config.method
    if kept is not None and (peek(argv, "--preset") or peek(argv, "--presets")):
        raise BadInput(
            "--config brings every setting of its method: leave --preset and --presets out, or name the method with --method."
        )
    shown = kept or _shown(argv)
    name = METHODS.name_of(shown)
    flags = make_dataclass("Forget", [("settings", type(shown))], bases=(Forget,), kw_only=True)
    flags.__doc__ = Forget.__doc__
    who, output, original = RequestFlags(), RunFlags(), OriginalFlags()
    if config is not None:
        original = OriginalFlags(head=config.head)
        who, output = RequestFlags(protocol=config.protocol), RunFlags(seed=config.seed)
    default = flags(
        source=data_flags(argv),
        output=output,
        original=original,
        who=who,
        method=name,
        settings=shown,
    )
    args = parse(flags, argv, "forget", default)
    default_request = config.request if config else None
    args.who.check(default_request)
    args.original.check()
    if config is not None and config.earlier and config.earlier != args.original.earlier():
        raise BadInput(
            f"{args.config} follows earlier requests: give --run the run that forgot them, and no other."
        )
    check_limit(args.max_accuracy_loss)
    with distributed(args.output.device) as device, ExitStack() as held:
        return _run(args, argv, default_request, kept, pick_device(device), held)


def _shown(argv: list[str]) -> Method:
    """The settings that the help shows: the preset as far as it is known before the data are read."""
    name, kind = peek(argv, "--method", "duck"), "class" if peek(argv, "--classes") else "samples"
    if kind not in METHODS[name].scenarios:
        return METHODS[name]()
    chosen: Any = peek(argv, "--preset", "tuned")
    data, file = data_name(argv), peek(argv, "--presets")
    more = Path(file) if file and has_settings(Path(file), name, data, kind) else None
    return preset(name, data, kind, data_samples(argv), chosen, more)


def _run(
    args: Any,
    argv: list[str],
    default: Request | None,
    kept: Method | None,
    device: torch.device,
    held: ExitStack,
) -> int:
    """`default` and `kept`: the request and the method of --config; `held`: the run folder, until the command ends."""
    data = args.source.load(split=args.original.splits_data())
    request = args.who.request(data, default)
    training = args.original.training(data, args.source)
    copies = ""
    if args.with_copies:
        request, copies = args.original.with_copies(
            request, data, args.output.seed, args.who.protocol
        )
    scenario = args.original.scenario(request, data, args.output.seed, args.who.protocol)
    real = kept or preset(
        args.method, data.name, scenario.kind, len(data.train), args.preset, args.presets
    )
    method = apply_flags(args.settings, argv, real)
    head = args.original.other_head(training, data, device)
    experiment = Experiment(
        training,
        request,
        method,
        args.output.seed,
        args.who.protocol,
        args.original.earlier(),
        head,
    )
    folder = args.output.out or runs.default_folder(experiment)
    if held.enter_context(runs.reserve(folder, experiment, args.output.overwrite)):
        say(f"{folder} already holds this run; --overwrite makes it anew.")
        return tell(folder, args.output.json, args.max_accuracy_loss)
    findings = report_findings(scenario)
    model = args.original.load(training, data, device)
    with training_progress(f"{args.method} on {training.data}", quiet=not is_first()) as watch:
        outcome = unlearn(
            method,
            model,
            replace(scenario, data=scenario.data.to(device)),
            new_model=factory(training, data),
            recipe=training.recipe,
            head=args.original.head_name(),
            watch=watch,
            preparations=Preparations(ArtifactStore(default_root(folder.parent))),
            max_accuracy_loss=args.max_accuracy_loss,
        )
    if not is_first():
        return DONE
    outcome = noted(outcome, method, training, data, args.original, findings, copies)
    run = runs.record(experiment, scenario, outcome, **args.original.places(folder, args.source))
    runs.save(run, outcome.model, folder, args.output.overwrite)
    return tell(folder, args.output.json, args.max_accuracy_loss, findings)


def tell(
    folder: Path,
    as_json: bool,
    max_accuracy_loss: float | None = None,
    printed: Sequence[Finding] = (),
) -> int:
    """Print a stored unlearning, without the findings that were printed with their ids before; exit code 1 if it forgot nothing, lost
    too much accuracy (by the limit that is given now), or if an earlier request is known."""
    run = runs.judge(runs.load(folder), max_accuracy_loss)
    line = runs.row(folder, run)
    if as_json:
        emit(line)
    else:
        for note in notes_left(run.notes, printed):
            write(note)
        rows = [[name, *_cells(scores), seconds] for name, scores, seconds in _pairs(run, line)]
        print_table(["", "AUS", *(f"{name} %" for name in runs.COLUMNS[1:]), "seconds"], rows)
        if run.samples["forget"] < SMALL and run.by_class.kind == "samples":
            for change in loss_change(run.original or {}, run.scores):
                write(change)
        print_earlier_requests(run.earlier)
        asked = f"{line['scenario']}{_drawn_classes(run)}"
        write(
            f"{line['method']}, {asked}: {line['processed']} of {counted(line['forget_samples'], 'sample')} processed. Run: {folder}"
        )
        if run.status != "nothing forgotten":
            write(verdict_without_audit(run, folder))
    return FAILED if any(scores.is_known for scores in run.earlier) else EXIT_CODES[run.status]


def _drawn_classes(run: runs.Run) -> str:
    """Return the names of classes that were drawn at random: the request does not say them."""
    if not isinstance(run.experiment.request, ForgetRandomClasses):
        return ""
    names, forgotten = run.by_class.names, run.by_class.forget
    return f" ({', '.join(names[int(index)] for index in forgotten)})"


def _pairs(run: runs.Run, line: dict[str, Any]) -> list[tuple[str, dict[str, float | None], str]]:
    return [
        ("original", run.original or {}, ""),
        (line["method"], run.scores, f"{run.seconds:.2f}"),
    ]


def _cells(scores: dict[str, float | None]) -> list[str]:
    return [number(scores.get("aus")), *(percent(scores.get(name)) for name in runs.COLUMNS[1:])]
