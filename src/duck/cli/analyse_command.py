"""duck analyse: feature space and SHAP maps of stored runs."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from duck.analysis.density_tests import DensityTest, density_tests
from duck.analysis.study import RESULT, Analysis
from duck.cli.console import CONSOLE, emit, print_table, say, write
from duck.cli.exit_codes import DONE
from duck.cli.parsing import parse
from duck.commands.analyse import AnalyseOptions, analyse_runs


@dataclass
class AnalyseFlags:
    """Compute a map of the embeddings (t-SNE), the density of each class, and SHAP maps.

    The original and the retrained model of the same request are compared, too; they are looked for
    in the folder of the run. The result is stored as analysis.json in the folder of each run. Over
    several runs, Wilcoxon signed-rank tests compare the densities of forgotten and retained
    classes.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of unlearning runs."""
    analysis: AnalyseOptions = field(default_factory=AnalyseOptions)
    png: Path | None = None
    """Folder for the figures as PNG and PDF."""
    json: bool = False
    """Print the content of analysis.json to stdout instead of tables; for several runs an object
    with `runs` and `tests`."""


def main(argv: list[str]) -> int:
    args = parse(AnalyseFlags, argv, "analyse")
    analyses = analyse_runs(args.runs, args.analysis, CONSOLE)
    if args.png:
        from duck.report import draw_analysis

        for file in draw_analysis(args.runs, args.png, say):
            say(f"Figure: {file}")
    tests = density_tests(analyses)
    if args.json:
        plain = [analysis.to_dict() for analysis in analyses]
        tested = [
            {"split": test.split, "compared": test.compared, **asdict(test.result)}
            for test in tests
        ]
        emit(plain[0] if len(plain) == 1 else {"runs": plain, "tests": tested})
        return DONE
    for folder, analysis in zip(args.runs, analyses, strict=True):
        _print_run(folder, analysis)
    if len(analyses) > 1:
        _print_tests(tests, len(analyses))
    return DONE


def _print_run(folder: Path, analysis: Analysis) -> None:
    spaces = ", ".join(
        f"{name} {space.dimensions} ({100 * space.variance:.0f} %)"
        for name, space in analysis.spaces.items()
    )
    counts = ", ".join(f"{split} {count}" for split, count in analysis.samples.items())
    write(
        f"{folder}: log density (natural) of each class; n: {counts}; dimensions (variance kept): "
        f"{spaces}"
    )
    _print_densities(analysis)
    for image in analysis.shap.images if analysis.shap else ():
        probabilities = ", ".join(
            f"{name} {numbers.probability:.3f} (gap {numbers.gap:.4f})"
            for name, numbers in image.numbers.items()
        )
        write(f"SHAP of {image.title}: probability of its class: {probabilities}")
    write(f"{analysis.seconds:.1f} s; all of it in {folder / RESULT}")


def _print_densities(analysis: Analysis) -> None:
    rows = []
    for index, name in enumerate(analysis.classes):
        row = {"class": f"{name} (forgotten)" if index in analysis.forgotten else name}
        for model, splits in analysis.density.items():
            for split, densities in splits.items():
                density = densities.get(str(index), math.nan)
                row[f"{model} {split}"] = _format_density(density)
        rows.append(row)
    print_table(rows)


def _format_density(density: float | None) -> str:
    if density is None:
        return "one point"
    return "-" if math.isnan(density) else f"{density:.2f}"


def _print_tests(tests: Sequence[DensityTest], runs: int) -> None:
    if not tests:
        write(
            "No tests over these runs: they compare forgotten classes with retained ones, and not "
            "every run removed a class."
        )
        return
    write(
        f"Two-sided Wilcoxon signed-rank tests over {runs} runs, which allow no p below "
        f"{2.0 ** (1 - runs):.3g}:"
    )
    rows = []
    for test in tests:
        row = {"split": test.split, "log density": test.compared}
        row["median difference"] = f"{test.result.difference:+.2f}"
        row |= {"p": f"{test.result.p:.3g}", "n": str(test.result.n)}
        rows.append({**row, "least p": f"{test.result.least_p:.3g}"})
    print_table(rows)
