"""Analyse stored runs: find their models, compare them, and store analysis.json in each folder."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from duck import files
from duck.analysis.attribution import IncompleteAttribution, require_captum
from duck.analysis.feature_space import DIMENSIONS
from duck.analysis.study import MAP_POINTS, RESULT, Analysis, analyse
from duck.commands.stored_runs import UnlearningRun, open_run
from duck.display import Display
from duck.errors import BadInput
from duck.runtime import pick_device
from duck.types import Data, Examples, Scenario

MIN_POINTS = 8
"""Fewer embeddings are no map."""


@dataclass(frozen=True)
class AnalyseOptions:
    """What is computed about stored runs, and with which models they are compared."""

    original: Path | None = None
    """Run of the original, if it is not found."""
    retrained: Path | None = None
    """Run of the retrained model, if it is not found."""
    data: str | None = None
    """The data, if they are no longer where the run says."""
    root: Path | None = None
    """Folder of the named data sets, if it is another than the run says."""
    points: int = MAP_POINTS
    """Embeddings in each map, of training and test samples together."""
    dimensions: float = DIMENSIONS
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
    """Import and call the model builder (package.module:function) that a stored run names. This
    runs third-party code."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""

    def check(self) -> None:
        """Raise an error for wrong options, before anything is read."""
        if self.points < MIN_POINTS:
            raise BadInput(f"--points must be at least {MIN_POINTS}, got {self.points}.")
        if self.shap < 0:
            raise BadInput(f"--shap is a number of images, got {self.shap}.")
        if self.shap or self.images:
            require_captum()


def analyse_runs(
    folders: Sequence[Path], options: AnalyseOptions | None = None, display: Display | None = None
) -> list[Analysis]:
    """Analyse the runs of unlearnings and store the analysis in the folder of each.

    `duck.analysis.density_tests.density_tests` compares the densities of several runs.
    """
    options = options or AnalyseOptions()
    display = display or Display()
    if not folders:
        raise BadInput("Name at least one run: duck analyse RUN.")
    options.check()
    device = pick_device(options.device)
    analyses = []
    data: Data | None = None
    for folder in folders:
        with display.progress("reading data") as progress:
            run = open_run(
                folder,
                options.data,
                options.root,
                data=data,
                trust_model_code=options.trust_model_code,
                progress=progress,
            )
        data = run.data
        analyses.append(_analyse_run(run, options, device, display.message))
    return analyses


def _analyse_run(
    run: UnlearningRun, options: AnalyseOptions, device: torch.device, say: Callable[[str], None]
) -> Analysis:
    models = _models(run, options, device, say)
    images = _images_to_explain(run.scenario, options.shap, options.images)
    say(f"{run.folder}: embeddings, maps and densities of {', '.join(models)} ...")
    with attribution_warnings(say):
        analysis = analyse(
            models,
            replace(run.scenario, data=run.scenario.data.to(device)),
            points=options.points,
            dimensions=options.dimensions,
            explain=images,
            head=options.head or run.experiment.head,
            seed=options.seed,
        )
    # SHAP maps name images.
    is_private = analysis.shap is not None
    files.write_json(run.folder / RESULT, analysis.to_dict(), indent=None, private=is_private)
    return analysis


@contextmanager
def attribution_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Show warnings about SHAP values as messages."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteAttribution)
        yield
    for warning in caught:
        say(str(warning.message))


def _models(
    run: UnlearningRun, options: AnalyseOptions, device: torch.device, say: Callable[[str], None]
) -> dict[str, nn.Module]:
    if options.original:
        original: Path | None = run.check_related(options.original, "original")
    else:
        original = run.find_original()
    if options.retrained:
        retrained: Path | None = run.check_related(options.retrained, "retrained")
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
