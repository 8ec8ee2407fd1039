"""duck compare: run many methods on one scenario and print one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duck.cli import inputs
from duck.cli.console import CONSOLE, emit, number, percent, print_table, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.parsing import parse
from duck.commands.compare import Comparison, run_comparison
from duck.commands.forget import ForgetOptions
from duck.commands.options import DataOptions, OriginalOptions
from duck.comparison import CompareOptions
from duck.data.checks import Finding
from duck.metrics import KeptAccuracy
from duck.scenarios import describe

SPLITS = ("forget", "retain", "test", "forget_test", "retain_test")


@dataclass
class CompareFlags:
    """Run many methods on one scenario and print one table: scores, gaps to Retrained, seconds.

    The model is --run RUN, or your own as for `duck forget`. With neither, a model is trained on
    --data first. With --out, each unlearned model is stored as a run below that folder as it ends,
    with its accuracies after each epoch. --engine and --workers run several methods at the same
    time. Exit code 1 if every method failed or lost too much accuracy.
    """

    source: DataOptions
    output: inputs.RunFlags
    original: OriginalOptions
    request: inputs.RequestFlags
    engine: inputs.EngineFlags
    compare: CompareOptions = field(default_factory=CompareOptions)
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


def main(argv: list[str]) -> int:
    default = CompareFlags(*inputs.default_flags(argv))
    args = parse(CompareFlags, argv, "compare", default)
    forget = ForgetOptions(
        args.request.read(),
        args.original,
        args.source,
        args.output,
        protocol=args.request.protocol,
        max_accuracy_loss=args.compare.max_accuracy_loss,
        with_copies=args.with_copies,
    )
    comparison = run_comparison(forget, args.compare, args.engine.create(), CONSOLE)
    if args.output.json:
        emit(comparison.rows)
    else:
        _print_comparison(comparison)
    if not comparison.is_complete:
        return INTERRUPTED
    return DONE if comparison.is_sound else FAILED


def _print_comparison(comparison: Comparison) -> None:
    found = comparison.rows
    damaged = {row["method"] for row in found if row.get("status") == "damaged"}
    for row in found:
        if row["method"] in damaged:
            write(f"{row['method']}: {KeptAccuracy(**row['kept_accuracy'])}")
    has_gaps = any(row.get("gaps") for row in found)
    _print_scores(comparison, has_gaps)
    for row in found:
        if "error" in row:
            write(f"{row['method']} failed: {row['error']}")
    _print_notes(found, damaged, comparison.prepared.findings)
    before = "`before` are the seconds of what a method prepares once for an original."
    write(f"Gaps are to Retrained, in points; {before}" if has_gaps else before)


def _print_scores(comparison: Comparison, has_gaps: bool) -> None:
    scenario = comparison.prepared.scenario
    counts = {name: len(getattr(scenario, name)) for name in SPLITS}
    splits = [name for name in SPLITS if counts[name]]
    sizes = ", ".join(f"{name} {counts[name]}" for name in splits)
    request = describe(comparison.prepared.request, scenario.data.classes)
    write(f"Forget {request} of {scenario.data.name}; n: {sizes}")
    gaps: tuple[str, ...] = ()
    if has_gaps:
        gaps = ("retain_test", "forget_test") if scenario.kind == "class" else ("test", "forget")
    table = []
    for row in comparison.rows:
        if "error" not in row:
            cells = {"method": row["method"], "AUS": number(row["scores"]["aus"])}
            cells |= {f"{name} %": percent(row["scores"][name]) for name in splits}
            cells |= {f"gap {name}": _format_gap((row["gaps"] or {}).get(name)) for name in gaps}
            cells["seconds"] = f"{row['seconds']:.2f}"
            table.append({**cells, "before": f"{row['prepare_seconds']:.2f}"})
    print_table(table)


def _print_notes(
    found: Sequence[Mapping[str, Any]], damaged: set[str], printed: Sequence[Finding]
) -> None:
    """Print each note once, with the methods that it is about."""
    methods_by_note: dict[str, list[str]] = {}
    for row in found:
        # The original forgets nothing: its notes say what everybody expects.
        if row["method"] == "original":
            continue
        # The first note of a damaged model says that, and is printed already.
        own_notes = row.get("notes", [])[row["method"] in damaged :]
        for note in inputs.unprinted_notes(own_notes, printed):
            methods_by_note.setdefault(note, []).append(row["method"])
    for note, methods in methods_by_note.items():
        write(f"{', '.join(methods)}: {note}")


def _format_gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:+.2f}"
