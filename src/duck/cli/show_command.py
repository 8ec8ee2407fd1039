"""duck show: what a stored run holds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from duck import store
from duck.audits.verdict import NOT_FORGOTTEN, TIERS, file_of
from duck.cli.console import emit, print_earlier, table, write
from duck.cli.inputs import parse
from duck.files import read_text
from duck.printable import printable
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
    record = store.read_record(args.run)
    if args.json:
        emit(record)
    elif args.toml:
        from duck.config import to_toml

        print(printable(to_toml(store.load(args.run).experiment)), end="")
    else:
        _print(record, args.run)
    return 0


def _print(record: dict[str, Any], folder: Path) -> None:
    made, samples = record["experiment"]["training"], record["samples"]
    seed = record["experiment"].get("seed", 0)
    write(f"Run {record.get('id', '')} of {record['created']}: {made['model']} on {made['data']}, seed {seed}")
    if record["experiment"].get("request"):
        write(f"Request: {_request(store.load(folder))}.")
        for line in _verdict(folder, record["notes"]):
            write(line)
    for note in record["notes"]:
        write(note)
    if record["experiment"].get("method"):
        settings = ", ".join(f"{key} {value}" for key, value in record["experiment"]["method"].items() if key != "name")
        write(f"Method {record['experiment']['method']['name']}: {settings}")
    before = record["original"] or {}
    rows = [[name, _plain(before.get(name)), _plain(value), str(samples.get(name, ""))] for name, value in record["scores"].items()]
    table(["score", "original", "this run", "n"], rows)
    print_earlier(record.get("earlier", []))
    env = record["environment"]
    if env:
        versions = ", ".join(f"{name} {version}" for name, version in env["packages"].items())
        write(f"{record['seconds']:.2f} s on {env['device']}; Python {env['python']}, {versions}")


def _request(run: store.Run) -> str:
    """Who was forgotten, and how many samples of each class."""
    assert run.experiment.request is not None
    names, counts = run.by_class.get("names", []), run.by_class.get("forget", {})
    classes = [f"{names[int(label)]!r} {count}" for label, count in counts.items()]
    rest = f" and {len(classes) - LISTED_CLASSES} classes more" if len(classes) > LISTED_CLASSES else ""
    spread = f" ({', '.join(classes[:LISTED_CLASSES])}{rest})" if classes else ""
    return f"{describe(run.experiment.request)}, {run.samples['forget']} samples{spread}"


def _verdict(folder: Path, notes: list[str]) -> list[str]:
    """What the strongest stored audit concluded; without one, what the scores alone say."""
    lines: list[str] = []
    for tier in reversed(TIERS):
        file = folder / file_of(tier)
        try:
            return [*lines, f"Verdict ({tier} audit): {json.loads(read_text(file))['verdict']}."]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            lines.append(f"{file} cannot be read: run `duck audit {folder} --tier {tier}` again.")
    if any(note.startswith("Nothing was forgotten") for note in notes):
        return [*lines, f"Verdict: {NOT_FORGOTTEN}."]
    return [*lines, f"Verdict: none without an audit. Run `duck audit {folder}`."]


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
