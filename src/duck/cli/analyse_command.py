"""duck analyse: feature space and SHAP maps of stored runs, beside their original and a retrained model."""

import math
import warnings
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
from duck.cli.console import emit, print_table, say, write
from duck.cli.inputs import parse
from duck.cli.reference_models import Unlearning, unlearning
from duck.errors import BadInput
from duck.runtime import pick_device
from duck.types import Data, Examples


@dataclass
class Analyse:
    """Look inside unlearned models: a map of their embeddings (t-SNE), how densely each class lies, and SHAP maps.

    The original and the retrained model for the same request are looked for beside the run. The result goes to analysis.json in each
    run's folder. Over several runs, Wilcoxon signed-rank tests tell whether forgotten classes lie less densely than retained ones.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of unlearning runs."""
    original: Path | None = None
    """Run of the original, where it is not found."""
    retrained: Path | None = None
    """Run of the retrained model, where it is not found."""
    data: str | None = None
    """The data, where they are no longer where the run says."""
    root: Path | None = None
    """Folder that holds the named data sets, likewise."""
    points: int = MAP_POINTS
    """Embeddings, of training and test together, in each map."""
    dimensions: float = field(default=DIMENSIONS)
    """Of the space in which densities are measured; below 1, the share of the variance to keep."""
    shap: int = 0
    """SHAP maps of so many unseen images of the forgotten classes."""
    images: tuple[str, ...] = ()
    """SHAP maps of the images with these ids, of training or test. Those of forgotten ones stay in analysis.json; no figure shows them."""
    head: str | None = None
    """Name of the classifier head inside the model; found by a probe where not given."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code can do anything."""
    png: Path | None = None
    """Folder for the figures as PNG and PDF."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    json: bool = False
    """What analysis.json holds to stdout instead of tables; for several runs an object with `runs` and `tests`."""


def main(argv: list[str]) -> int:
    args = parse(Analyse, argv, "analyse")
    if not args.runs:
        raise BadInput("Name at least one run: duck analyse RUN.")
    if args.points < 8:
        raise BadInput(f"--points must be at least 8, got {args.points}.")
    if args.shap < 0:
        raise BadInput(f"--shap is a number of images, got {args.shap}.")
    if args.shap or args.images:
        require_captum()
    device, found = pick_device(args.device), []
    data: Data | None = None
    for folder in args.runs:
        run = unlearning(folder, args.data, args.root, data, trusted=args.trust_model_code)
        data = run.data
        found.append(_analysed(args, run, device))
        if args.png:
            _draw(folder, args.png / _name(folder, args.runs))
    tests = density_tests([RunDensities(one["density"], one["forgotten"]) for one in found])
    if args.json:
        emit(found[0] if len(found) == 1 else {"runs": found, "tests": tests})
    else:
        _tell(args.runs, found, tests)
    return 0


def _name(folder: Path, runs: tuple[Path, ...]) -> str:
    """Of the folder for its figures; with its parent where two runs are called alike."""
    if len(runs) == 1:
        return "."
    alike = sum(run.resolve().name == folder.resolve().name for run in runs) > 1
    return "-".join(folder.resolve().parts[-2:]) if alike else folder.resolve().name


def _analysed(args: Analyse, run: Unlearning, device: torch.device) -> dict[str, Any]:
    models = _models(args, run, device)
    explain = _chosen(run, args.shap, args.images)
    say(f"{run.folder}: embeddings, maps and densities of {', '.join(models)} ...")
    scenario = replace(run.scenario, data=run.scenario.data.to(device))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteAttribution)
        result = analyse(
            models,
            scenario,
            points=args.points,
            dimensions=args.dimensions,
            explain=explain,
            head=args.head or run.experiment.head,
            seed=args.seed,
        ).to_dict()
    for warning in caught:
        say(str(warning.message))
    files.write_json(
        run.folder / RESULT, result, indent=None, private="shap" in result
    )  # which names images
    return result


def _models(args: Analyse, run: Unlearning, device: torch.device) -> dict[str, nn.Module]:
    places = {
        "original": run.named(args.original, "original") if args.original else run.original(),
        "unlearned": run.folder,
        "retrained": run.named(args.retrained, "retrained")
        if args.retrained
        else run.by("retrained"),
    }
    for name, place in places.items():
        if place is None:
            say(
                f"{run.folder}: no {name} model beside it; name one with --{name}. Going on without."
            )
    return {name: run.model(place, device) for name, place in places.items() if place is not None}


def _chosen(run: Unlearning, count: int, ids: tuple[str, ...]) -> Examples | None:
    """The images whose SHAP maps are wanted."""
    scenario, data = run.scenario, run.scenario.data
    if ids:
        for part in (data.train, data.test):
            places = (
                {name: place for place, name in enumerate(part.ids.tolist())}
                if part is not None
                else {}
            )
            if part is not None and all(name in places for name in ids):
                return part.take(torch.tensor([places[name] for name in ids]))
        raise BadInput(
            f"Not all of {', '.join(ids)} are ids of training images, nor all of test images of {data.name}."
        )
    if not count:
        return None
    rows = scenario.forget_test if len(scenario.forget_test) else scenario.test
    if data.test is None or not len(rows):
        raise BadInput(
            f"{data.name} has no test images to explain: name training images with --images ID."
        )
    return data.test.take(rows[:count])


def _draw(folder: Path, target: Path) -> None:
    from duck.report import matplotlib_figures, plots_analysis, records

    (run,) = records.read_runs([folder])
    if plots_analysis.withheld_shap_images(run):
        say(
            f"{folder}: no figure of the SHAP maps of forgotten training images: they show what was to be forgotten."
        )
    for plot in (
        plots_analysis.plot_features(run, MAX_STORED_POINTS),
        plots_analysis.plot_density(run),
        plots_analysis.plot_shap(run),
    ):
        for file in matplotlib_figures.save_figure(plot, target) if plot else ():
            say(f"Figure: {file}")


def _tell(
    folders: tuple[Path, ...], found: list[dict[str, Any]], tests: list[dict[str, Any]]
) -> None:
    for folder, result in zip(folders, found, strict=True):
        spaces = ", ".join(
            f"{name} {space['dimensions']} ({100 * space['variance']:.0f} %)"
            for name, space in result["spaces"].items()
        )
        write(
            f"{folder}: log density (natural) of each class; n: {_counts(result['samples'])}; dimensions (variance kept): {spaces}"
        )
        print_table(
            ["class", *(f"{name} {split}" for name, split in _columns(result))], _rows(result)
        )
        for image in result.get("shap", {}).get("images", []):
            parts = [
                f"{name} {numbers['probability']:.3f} (gap {numbers['gap']:.4f})"
                for name, numbers in image["numbers"].items()
            ]
            write(f"SHAP of {image['title']}: probability of its class: {', '.join(parts)}")
        write(f"{result['seconds']:.1f} s; all of it in {folder / RESULT}")
    if len(found) > 1 and not tests:
        write(
            "No tests over these runs: they compare forgotten classes with retained ones, and not every run removed a class."
        )
    elif len(found) > 1:
        write(
            f"Two-sided Wilcoxon signed-rank tests over {len(found)} runs, which allow no p below {2.0 ** (1 - len(found)):.3g}:"
        )
        cells = [
            [
                t["split"],
                t["compared"],
                f"{t['difference']:+.2f}",
                f"{t['p']:.3g}",
                str(t["n"]),
                f"{t['least_p']:.3g}",
            ]
            for t in tests
        ]
        print_table(["split", "log density", "median difference", "p", "n", "least p"], cells)


def _columns(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, split) for name, splits in result["density"].items() for split in splits]


def _rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for index, name in enumerate(result["classes"]):
        values = [
            result["density"][model][split].get(str(index), math.nan)
            for model, split in _columns(result)
        ]
        mark = " (forgotten)" if index in result["forgotten"] else ""
        rows.append(
            [
                f"{name}{mark}",
                *(
                    "one point" if v is None else "-" if math.isnan(v) else f"{v:.2f}"
                    for v in values
                ),
            ]
        )
    return rows


def _counts(samples: dict[str, int]) -> str:
    return ", ".join(f"{split} {count}" for split, count in samples.items())
