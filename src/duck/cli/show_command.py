"""duck show: what a stored run holds."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from duck import runs
from duck.audits.next_step import audit_command_here, verdict_without_audit
from duck.audits.verdict import NOT_FORGOTTEN, TIERS, file_of
from duck.cli.console import emit, print_earlier_requests, print_table, write
from duck.cli.inputs import parse
from duck.files import read_text
from duck.printable import counted, printable
from duck.scenarios import describe

LISTED_CLASSES = 10


@dataclass
class Show:
    """Print the record of a run: experiment, who was forgotten, the verdict, scores with n, seconds, versions."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    toml: bool = False
    """The experiment alone, as TOML."""
    json: bool = False
    """The whole record as one JSON value."""


def main(argv: list[str]) -> int:
    args = parse(Show, argv, "show")
    record = _judged(args.run)
    if args.json:
        emit(record)
    elif args.toml:
        from duck.experiment import to_toml

        print(printable(to_toml(runs.load(args.run).experiment)), end="")
    else:
        _print(record, args.run)
    return 0


def _judged(folder: Path) -> dict[str, Any]:
    """Return the record, judged by the default limit of the loss of accuracy."""
    record = runs.read_record(folder)
    if not record.get("kept_accuracy"):
        return record
    run = runs.load(folder)
    assert run.kept_accuracy is not None
    kept_accuracy = asdict(run.kept_accuracy)
    return {**record, "status": run.status, "kept_accuracy": kept_accuracy, "notes": run.notes}


def _print(record: dict[str, Any], folder: Path) -> None:
    run = runs.load(folder)
    made, samples = record["experiment"]["training"], run.samples
    seed = record["experiment"].get("seed", 0)
    write(f"Run {run.id} of {run.created}: {made['model']} on {made['data']}, seed {seed}")
    if record["experiment"].get("request"):
        write(f"Request: {_request(run)}.")
        for line in _verdict(folder, run):
            write(line)
    if made.get("recipe_assumed"):
        write(
            f"The original was trained elsewhere. Its recipe is not known; assumed: {_listed_settings(made['recipe'])}."
        )
    for note in run.notes:
        write(note)
    if record["experiment"].get("method"):
        method = record["experiment"]["method"]
        write(f"Method {method['name']}: {_listed_settings(method)}")
    before = run.original or {}
    rows = [
        [name, _plain(before.get(name)), _plain(value), str(samples.get(name, ""))]
        for name, value in run.scores.items()
    ]
    print_table(["score", "original", "this run", "n"], rows)
    print_earlier_requests(run.earlier)
    env = run.environment
    if env:
        versions = ", ".join(f"{name} {version}" for name, version in env.packages.items())
        write(f"{run.seconds:.2f} s on {env.device}; Python {env.python}, {versions}")


def _listed_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items() if key != "name")


def _request(run: runs.Run) -> str:
    """Who was forgotten, and how many samples of each class."""
    assert run.experiment.request is not None
    names, counts = run.by_class.names, run.by_class.forget
    classes = [f"{names[int(label)]!r} {count}" for label, count in counts.items()]
    rest = (
        f" and {len(classes) - LISTED_CLASSES} classes more"
        if len(classes) > LISTED_CLASSES
        else ""
    )
    spread = f" ({', '.join(classes[:LISTED_CLASSES])}{rest})" if classes else ""
    return f"{describe(run.experiment.request, names)}, {counted(run.samples['forget'], 'sample')}{spread}"


def _verdict(folder: Path, run: runs.Run) -> list[str]:
    """What the strongest stored audit concluded; without one, what the scores alone say."""
    lines: list[str] = []
    for tier in reversed(TIERS):
        file = folder / file_of(tier)
        try:
            return [*lines, f"Verdict ({tier} audit): {json.loads(read_text(file))['verdict']}."]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            lines.append(
                f"{file} cannot be read: run `{audit_command_here(run, folder, tier)}` again."
            )
    if run.forgot is False:
        return [*lines, f"Verdict: {NOT_FORGOTTEN}."]
    return [*lines, verdict_without_audit(run, folder)]


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
