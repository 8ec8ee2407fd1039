"""duck compare: run many methods on one scenario and print one table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from duck.cli import inputs
from duck.cli.console import CONSOLE, emit, number, percent, print_table, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.parsing import parse
from duck.commands.compare import Comparison, compare_methods
from duck.comparison import Compared, CompareOptions, gap_to, rows, scores_of_retrained
from duck.data.checks import Finding
from duck.metrics import Scores
from duck.scenarios import describe

SPLITS = ("forget", "retain", "test", "forget_test", "retain_test")


@dataclass
class CompareFlags(inputs.SharedFlags):
    """Run many methods on one scenario and print one table: scores, gaps to Retrained, seconds.

    The model is --run RUN, or your own as for `duck forget`. With neither, a model is trained on
    the data first. With --out, each unlearned model is stored as a run below that folder as it
    ends, with its accuracies after each epoch. --engine and --workers run several methods at the
    same time. Exit code 1 if every method failed or lost too much accuracy.
    """

    engine: inputs.EngineFlags
    compare: CompareOptions = field(default_factory=CompareOptions)
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


def main(argv: list[str]) -> int:
    args = parse(CompareFlags, argv, "compare")
    forget = args.forget_options(
        max_accuracy_loss=args.compare.max_accuracy_loss, with_copies=args.with_copies
    )
    comparison = compare_methods(forget, args.compare, args.engine.create(), CONSOLE)
    if args.output.json:
        emit(rows(comparison.in_order))
    else:
        _print_comparison(comparison)
    if not comparison.is_complete:
        return INTERRUPTED
    return DONE if comparison.is_sound else FAILED


def _print_comparison(comparison: Comparison) -> None:
    compared = comparison.in_order
    for row in compared:
        if row.outcome and row.outcome.status == "damaged":
            write(f"{row.name}: {row.outcome.kept_accuracy}")
    retrained = scores_of_retrained(compared)
    _print_scores(comparison, retrained)
    for row in compared:
        if row.error is not None:
            write(f"{row.name} failed: {row.error}")
    _print_notes(compared, comparison.prepared.findings)
    text = "`preparation` are the seconds of what a method prepares once for an original."
    write(f"Gaps are to Retrained, in points; {text}" if retrained else text)


def _print_scores(comparison: Comparison, retrained: Scores | None) -> None:
    scenario = comparison.prepared.scenario
    counts = {name: len(getattr(scenario, name)) for name in SPLITS}
    splits = [name for name in SPLITS if counts[name]]
    sizes = ", ".join(f"{name} {counts[name]}" for name in splits)
    request = describe(comparison.prepared.request, scenario.data.classes)
    write(f"Forget {request} of {scenario.data.name}; n: {sizes}")
    gaps: tuple[str, ...] = ()
    if retrained:
        gaps = ("retain_test", "forget_test") if scenario.kind == "class" else ("test", "forget")
    table = []
    for row in comparison.in_order:
        if row.outcome is None:
            continue
        scores = row.outcome.scores
        cells = {"method": row.name, "AUS": number(scores.aus)}
        cells |= {f"{name} %": percent(getattr(scores, name)) for name in splits}
        if retrained:
            found = {name: gap_to(retrained, scores, name) for name in gaps}
            cells |= {f"gap {name}": _format_gap(gap) for name, gap in found.items()}
        cells["seconds"] = f"{row.outcome.seconds:.2f}"
        table.append({**cells, "preparation": f"{row.outcome.prepare_seconds:.2f}"})
    print_table(table)


def _print_notes(compared: Sequence[Compared], printed: Sequence[Finding]) -> None:
    """Print each note once, with the methods that it is about."""
    methods_by_note: dict[str, list[str]] = {}
    for row in compared:
        # The original forgets nothing by definition, so its notes are not printed.
        if row.outcome is None or row.name == "original":
            continue
        # The first note of a damaged model says that, and is printed already.
        own_notes = row.notes[row.outcome.status == "damaged" :]
        for note in inputs.unprinted_notes(own_notes, printed):
            methods_by_note.setdefault(note, []).append(row.name)
    for note, methods in methods_by_note.items():
        write(f"{', '.join(methods)}: {note}")


def _format_gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:+.2f}"
