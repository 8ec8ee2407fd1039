"""duck show: what a stored run holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from duck import store
from duck.cli.console import emit, table
from duck.cli.inputs import parse


@dataclass
class Show:
    """Print the record of a run: experiment, scores with n, seconds, versions."""

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

        print(to_toml(store.load(args.run).experiment), end="")
    else:
        _print(record)
    return 0


def _print(record: dict[str, Any]) -> None:
    made, samples = record["experiment"]["training"], record["samples"]
    seed = record["experiment"].get("seed", 0)
    print(f"Run {record.get('id', '')} of {record['created']}: {made['model']} on {made['data']}, seed {seed}")
    for note in record["notes"]:
        print(note)
    if record["experiment"].get("method"):
        settings = ", ".join(f"{key} {value}" for key, value in record["experiment"]["method"].items() if key != "name")
        print(f"Method {record['experiment']['method']['name']}: {settings}")
    before = record["original"] or {}
    rows = [[name, _plain(before.get(name)), _plain(value), str(samples.get(name, ""))] for name, value in record["scores"].items()]
    table(["score", "original", "this run", "n"], rows)
    env = record["environment"]
    if env:
        versions = ", ".join(f"{name} {version}" for name, version in env["packages"].items())
        print(f"{record['seconds']:.2f} s on {env['device']}; Python {env['python']}, {versions}")


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
