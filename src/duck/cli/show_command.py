"""duck show: print the record of a stored run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from duck import runs
from duck.cli.console import emit, print_earlier_requests, print_table, write
from duck.cli.exit_codes import DONE
from duck.cli.parsing import parse
from duck.commands.show import ShownRun, show_run
from duck.experiment import to_toml
from duck.printable import counted, printable
from duck.scenarios import describe

MAX_CLASSES = 10
"""Classes whose counts are printed; a request may have hundreds."""


@dataclass
class ShowFlags:
    """Print the record of a run: experiment, request, verdict, scores with n, seconds, versions."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    toml: bool = False
    """Print the experiment alone, as TOML."""
    json: bool = False
    """Print the whole record as one JSON value."""


def main(argv: list[str]) -> int:
    args = parse(ShowFlags, argv, "show")
    shown = show_run(args.run)
    if args.json:
        emit(shown.record)
    elif args.toml:
        print(printable(to_toml(shown.run.experiment)), end="")
    else:
        _print_run(shown)
    return DONE


def _print_run(shown: ShownRun) -> None:
    run, record = shown.run, shown.record
    experiment = run.experiment
    training = experiment.training
    subject = f"{training.model} on {training.data}, seed {experiment.seed}"
    write(f"Run {run.id} of {run.created}: {subject}")
    if experiment.request:
        write(f"Request: {_describe_request(run)}.")
    for line in shown.verdict:
        write(line)
    if training.recipe_assumed:
        recipe = _format_settings(record["experiment"]["training"]["recipe"])
        write(f"The original was trained elsewhere. Its recipe is not known; assumed: {recipe}.")
    for note in run.notes:
        write(note)
    if experiment.method:
        method = record["experiment"]["method"]
        settings = _format_settings(method)
        write(f"Method {method['name']}" + (f": {settings}" if settings else ""))
    _print_scores(run)
    print_earlier_requests(run.earlier)
    if run.environment:
        python = {"Python": run.environment.python}
        packages = {**python, **run.environment.packages}.items()
        versions = ", ".join(f"{name} {version}" for name, version in packages)
        write(f"{run.seconds:.2f} s on {run.environment.device}; {versions}")


def _print_scores(run: runs.Run) -> None:
    before = run.original or {}
    rows = []
    for name, score in run.scores.items():
        row = {"score": name, "original": _format_score(before.get(name))}
        rows.append({**row, "this run": _format_score(score), "n": str(run.samples.get(name, ""))})
    print_table(rows)


def _format_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items() if key != "name")


def _describe_request(run: runs.Run) -> str:
    """Return the request in words, with the number of samples of each class."""
    assert run.experiment.request is not None
    names = run.by_class.names
    counts = run.by_class.forget
    classes = [f"{names[int(label)]!r} {count}" for label, count in counts.items()]
    hidden = len(classes) - MAX_CLASSES
    rest = f" and {hidden} classes more" if hidden > 0 else ""
    by_class = f" ({', '.join(classes[:MAX_CLASSES])}{rest})" if classes else ""
    request = describe(run.experiment.request, names)
    samples = counted(run.samples["forget"], "sample")
    # A request by ids is described by its count.
    return f"{request}{by_class}" if request == samples else f"{request}, {samples}{by_class}"


def _format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
