"""duck analyse: feature space and SHAP maps of stored runs."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import nn

from duck import files
from duck.analysis.attribution import IncompleteAttribution, require_captum
from duck.analysis.feature_space import DIMENSIONS, RunDensities, density_tests
from duck.analysis.study import MAP_POINTS, MAX_STORED_POINTS, RESULT, analyse
from duck.cli.console import emit, print_table, progress_bar, say, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import parse
from duck.errors import BadInput
from duck.runtime import pick_device
from duck.types import Data, Examples, Scenario
from duck.unlearning_runs import UnlearningRun, open_run

MIN_POINTS = 8
"""Fewer embeddings are no map."""


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
    original: Path | None = None
    """Run of the original, if it is not found."""
    retrained: Path | None = None
    """Run of the retrained model, if it is not found."""
    data: str | None = None
    """The data, if they are no longer where the run says."""
    root: Path | None = None
    """Folder that holds the named data sets, likewise."""
    points: int = MAP_POINTS
    """Embeddings in each map, of training and test samples together."""
    dimensions: float = field(default=DIMENSIONS)
    """Dimensions of the space in which densities are measured; below 1, the share of the variance
    to keep."""
    shap: int = 0
    """Number of unseen images of the forgotten classes to make SHAP maps of."""
    images: tuple[str, ...] = ()
    """Make SHAP maps of the images with these ids, of training or test. Maps of forgotten images
    stay in analysis.json; no figure shows them."""
    head: str | None = None
    """Name of the classifier head inside the model. Default: it is found."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code
    can do anything."""
    png: Path | None = None
    """Folder for the figures as PNG and PDF."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    json: bool = False
    """Print the content of analysis.json to stdout instead of tables; for several runs an object
    with `runs` and `tests`."""


def main(argv: list[str]) -> int:
    args = parse(AnalyseFlags, argv, "analyse")
    _check(args)
    results = _analyse_runs(args, pick_device(args.device))
    tests = density_tests(
        [RunDensities(result["density"], result["forgotten"]) for result in results]
    )
    if args.json:
        emit(results[0] if len(results) == 1 else {"runs": results, "tests": tests})
    else:
        for folder, result in zip(args.runs, results, strict=True):
            _print_run(folder, result)
        if len(results) > 1:
            _print_tests(tests, len(results))
    return DONE


def _check(args: AnalyseFlags) -> None:
    if not args.runs:
        raise BadInput("Name at least one run: duck analyse RUN.")
    if args.points < MIN_POINTS:
        raise BadInput(f"--points must be at least {MIN_POINTS}, got {args.points}.")
    if args.shap < 0:
        raise BadInput(f"--shap is a number of images, got {args.shap}.")
    if args.shap or args.images:
        require_captum()


def _analyse_runs(args: AnalyseFlags, device: torch.device) -> list[dict[str, Any]]:
    results = []
    data: Data | None = None
    for folder in args.runs:
        with progress_bar("reading data") as progress:
            run = open_run(
                folder,
                args.data,
                args.root,
                data=data,
                trust_model_code=args.trust_model_code,
                progress=progress,
            )
        data = run.data
        results.append(_analyse_run(args, run, device))
        if args.png:
            _draw(folder, args.png / _figure_folder(folder, args.runs))
    return results


def _figure_folder(folder: Path, runs: Sequence[Path]) -> str:
    """Return the name of the folder for the figures of a run, with its parent if two are alike."""
    if len(runs) == 1:
        return "."
    path = folder.resolve()
    same_names = sum(run.resolve().name == path.name for run in runs)
    return "-".join(path.parts[-2:]) if same_names > 1 else path.name


def _analyse_run(args: AnalyseFlags, run: UnlearningRun, device: torch.device) -> dict[str, Any]:
    models = _models(args, run, device)
    images = _images_to_explain(run.scenario, args.shap, args.images)
    say(f"{run.folder}: embeddings, maps and densities of {', '.join(models)} ...")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteAttribution)
        analysis = analyse(
            models,
            replace(run.scenario, data=run.scenario.data.to(device)),
            points=args.points,
            dimensions=args.dimensions,
            explain=images,
            head=args.head or run.experiment.head,
            seed=args.seed,
        )
    for warning in caught:
        say(str(warning.message))
    result = analysis.to_dict()
    # SHAP maps name images.
    files.write_json(run.folder / RESULT, result, indent=None, private="shap" in result)
    return result


def _models(args: AnalyseFlags, run: UnlearningRun, device: torch.device) -> dict[str, nn.Module]:
    if args.original:
        original: Path | None = run.check_related(args.original, "original")
    else:
        original = run.find_original()
    if args.retrained:
        retrained: Path | None = run.check_related(args.retrained, "retrained")
    else:
        retrained = run.find_by_method("retrained")
    places = {"original": original, "unlearned": run.folder, "retrained": retrained}
    models = {}
    for name, place in places.items():
        if place is None:
            say(f"{run.folder}: no {name} model was found, and none is compared. Name it: --{name}")
        else:
            models[name] = run.load_model(place, device)
    return models


def _images_to_explain(scenario: Scenario, count: int, ids: Sequence[str]) -> Examples | None:
    """Return the images whose SHAP maps are made."""
    data = scenario.data
    if ids:
        return _images_by_id(data, ids)
    if not count:
        return None
    rows = scenario.forget_test if len(scenario.forget_test) else scenario.test
    if data.test is None or not len(rows):
        raise BadInput(
            f"{data.name} has no test images to explain: name training images with --images ID."
        )
    return data.test.take(rows[:count])


def _images_by_id(data: Data, ids: Sequence[str]) -> Examples:
    for part in (data.train, data.test):
        if part is None:
            continue
        rows = {name: row for row, name in enumerate(part.ids.tolist())}
        if all(name in rows for name in ids):
            return part.take(torch.tensor([rows[name] for name in ids]))
    raise BadInput(
        f"Not all of {', '.join(ids)} are ids of training images, nor all of test images of "
        f"{data.name}."
    )


def _draw(folder: Path, target: Path) -> None:
    from duck.report import matplotlib_figures, plots_analysis, records

    (run,) = records.read_runs([folder])
    if plots_analysis.withheld_shap_images(run):
        say(
            f"{folder}: no figure of the SHAP maps of forgotten training images: they show what "
            "was to be forgotten."
        )
    plots = (
        plots_analysis.plot_features(run, MAX_STORED_POINTS),
        plots_analysis.plot_density(run),
        plots_analysis.plot_shap(run),
    )
    for plot in plots:
        for file in matplotlib_figures.save_figure(plot, target) if plot else ():
            say(f"Figure: {file}")


def _print_run(folder: Path, result: dict[str, Any]) -> None:
    spaces = ", ".join(
        f"{name} {space['dimensions']} ({100 * space['variance']:.0f} %)"
        for name, space in result["spaces"].items()
    )
    counts = ", ".join(f"{split} {count}" for split, count in result["samples"].items())
    write(
        f"{folder}: log density (natural) of each class; n: {counts}; dimensions (variance kept): "
        f"{spaces}"
    )
    columns = _density_columns(result)
    print_table(["class", *(f"{name} {split}" for name, split in columns)], _density_rows(result))
    for image in result.get("shap", {}).get("images", []):
        probabilities = ", ".join(
            f"{name} {numbers['probability']:.3f} (gap {numbers['gap']:.4f})"
            for name, numbers in image["numbers"].items()
        )
        write(f"SHAP of {image['title']}: probability of its class: {probabilities}")
    write(f"{result['seconds']:.1f} s; all of it in {folder / RESULT}")


def _print_tests(tests: Sequence[dict[str, Any]], runs: int) -> None:
    if not tests:
        write(
            "No tests over these runs: they compare forgotten classes with retained ones, and not "
            "every run removed a class."
        )
        return
    smallest = 2.0 ** (1 - runs)
    write(
        f"Two-sided Wilcoxon signed-rank tests over {runs} runs, which allow no p below "
        f"{smallest:.3g}:"
    )
    rows = []
    for test in tests:
        difference = f"{test['difference']:+.2f}"
        numbers = [f"{test['p']:.3g}", str(test["n"]), f"{test['least_p']:.3g}"]
        rows.append([test["split"], test["compared"], difference, *numbers])
    print_table(["split", "log density", "median difference", "p", "n", "least p"], rows)


def _density_columns(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the models with their splits."""
    columns: list[tuple[str, str]] = []
    for model, splits in result["density"].items():
        columns += [(model, split) for split in splits]
    return columns


def _density_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for index, name in enumerate(result["classes"]):
        mark = " (forgotten)" if index in result["forgotten"] else ""
        cells = []
        for model, split in _density_columns(result):
            densities = result["density"][model][split]
            cells.append(_format_density(densities.get(str(index), math.nan)))
        rows.append([f"{name}{mark}", *cells])
    return rows


def _format_density(density: float | None) -> str:
    if density is None:
        return "one point"
    return "-" if math.isnan(density) else f"{density:.2f}"
