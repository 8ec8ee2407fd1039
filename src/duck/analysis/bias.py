"""Bias removal: a patch that taught a model a wrong class, before and after unlearning and with a corrected retraining."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from duck.analysis.attribution import Attribution, background_of, images_of, shap_values
from duck.analysis.paired import paired_test
from duck.data.patch import Patch
from duck.methods.base import Method
from duck.methods.duck import Duck
from duck.methods.presets import Preset, preset
from duck.methods.retrained import Retrained
from duck.predict import accuracy, predict
from duck.runtime import Stopwatch, device_of
from duck.scenarios import Debias
from duck.types import Data, Recipe, Scenario
from duck.unlearning import Outcome, Watch, unlearn

RESULT, MAPS = "bias.json", "shap.npz"
FILES = (RESULT, MAPS, "biased.safetensors", "duck.safetensors", "corrected.safetensors")
"""What we write into the folder of a bias removal."""
"""What `duck debias` leaves in its folder, and `duck report` reads."""
IMAGES = 128
"""Unseen images whose SHAP values are taken."""
ENOUGH = 100
"""Below so many unseen images the result says that they are few."""
TOLERANCE = 0.01
"""Share of the mislabelled images that may keep the wrong label: DUCK's stop rule for class removal."""


@dataclass(frozen=True, eq=False)
class RemovalOutcome:
    """The model that learned the bias, the one that unlearned it, and one trained anew with the labels put right."""

    models: dict[str, nn.Module]
    outcome: Outcome
    retrain_seconds: float
    """0 where the corrected model was there already."""


def debias_method(debias: Debias, data: Data, name: Preset = "tuned") -> Duck:
    """DUCK with the settings for class removal, every mislabelled image sent to the centroid of the class it shows."""
    method = preset("duck", data.name, "class", len(data.train), name)
    assert isinstance(method, Duck)
    return replace(method, target_class=debias.classes(data)[0])


def remove_bias(
    debias: Debias,
    scenario: Scenario,
    biased: nn.Module,
    method: Method,
    *,
    new_model: Callable[[], nn.Module],
    recipe: Recipe,
    corrected: nn.Module | None = None,
    head: str | None = None,
    watch: Watch | None = None,
) -> RemovalOutcome:
    """Unlearn the mislabelled images and, unless a `corrected` model is given, retrain on the corrected data with the same recipe.

    `biased` has learned the scenario's data.
    """
    # For a few epochs compilation would cost more than it saves.
    eager = replace(recipe, compile=False)
    outcome = unlearn(
        method, biased, scenario, new_model=new_model, recipe=eager, head=head, watch=watch
    )
    stopwatch = Stopwatch(device_of(biased))
    if corrected is None:
        task = scenario.task(new_model=new_model, recipe=recipe, report=watch)
        with stopwatch:
            corrected = Retrained()(biased, replace(task, retain=debias.corrected(scenario).train))
    return RemovalOutcome(
        {"biased": biased, "duck": outcome.model, "corrected": corrected},
        outcome,
        stopwatch.seconds,
    )


def make_record(
    debias: Debias,
    scenario: Scenario,
    freed: RemovalOutcome,
    attributions: Mapping[str, Attribution] | None = None,
) -> dict[str, Any]:
    """All that the study found, as plain data."""
    data, (true, wrong) = scenario.data, debias.classes(scenario.data)
    said = measure_shares(debias, scenario, freed.models)
    forget = {"biased": freed.outcome.original.forget, "duck": freed.outcome.scores.forget}
    shap = patch_statistics(debias, attributions) if attributions else None
    return {
        "data": data.name,
        "shape": list(data.train.shape),
        "seed": scenario.seed,
        **asdict(debias),
        "true": data.classes[true],
        "wrong": data.classes[wrong],
        "n": said["biased"]["n"],
        "called": said,
        "forget": forget,
        "shap": shap,
        "notes": _notes(shap, forget, said["biased"]["n"]),
        "seconds": {
            "duck": round(freed.outcome.seconds, 3),
            "corrected": round(freed.retrain_seconds, 3),
        },
    }


def _notes(shap: Mapping[str, Any] | None, forget: Mapping[str, float], unseen: int) -> list[str]:
    notes = []
    if forget["duck"] >= TOLERANCE:
        notes.append(
            f"After unlearning {100 * forget['duck']:.1f} % of the mislabelled images still get the wrong label."
        )
    if unseen < ENOUGH:
        notes.append(
            f"n too small: {unseen} unseen images of the class, where at least {ENOUGH} would be wanted."
        )
    if shap and any(shap["incomplete"].values()):
        notes.append(f"SHAP values do not add up: {shap['incomplete']} images.")
    return notes


def measure_shares(
    debias: Debias, scenario: Scenario, models: Mapping[str, nn.Module]
) -> dict[str, dict[str, Any]]:
    """What each model calls unseen images of the true class that carry the patch, and how it does on clean test images."""
    patched, clean = debias.unseen(scenario), debias.unseen(scenario, patched=False)
    (true, wrong), test = debias.classes(scenario.data), scenario.data.test
    found = {}
    for name, model in models.items():
        with_patch, without = (
            predict(model, images).logits.argmax(1) for images in (patched, clean)
        )
        shares = {
            "wrong": with_patch == wrong,
            "right": with_patch == true,
            "right_without_patch": without == true,
        }
        found[name] = {
            **{said: _share(hits) for said, hits in shares.items()},
            "test": accuracy(model, test.take(scenario.test)) if test is not None else None,
            "n": len(patched),
        }
    return found


def explain_models(
    debias: Debias,
    scenario: Scenario,
    models: Mapping[str, nn.Module],
    images: int = IMAGES,
    seed: int = 0,
) -> dict[str, Attribution]:
    """SHAP values for the wrong class on unseen images with the patch, against a background without it."""
    unseen = debias.unseen(scenario)
    chosen = images_of(unseen.take(torch.arange(min(images, len(unseen)))))
    task, wrong = scenario.task(), debias.classes(scenario.data)[1]
    background = background_of(task.holdout if task.holdout is not None else task.retain, seed)
    return {name: shap_values(model, chosen, wrong, background) for name, model in models.items()}


def patch_values(debias: Debias, attribution: Attribution) -> Tensor:
    """Mean SHAP value of the patch's pixels, the channels of a pixel together, for each image."""
    down, across = Patch(debias.patch, debias.colour).place(tuple(attribution.values.shape[1:]))
    return attribution.maps[:, down, across].mean((1, 2))


def patch_statistics(debias: Debias, attributions: Mapping[str, Attribution]) -> dict[str, Any]:
    """Mean and spread of the patch's SHAP values for each model, how much they fell, and p-values paired over images."""
    values = {
        name: patch_values(debias, found).double().numpy() for name, found in attributions.items()
    }
    means = {name: float(found.mean()) for name, found in values.items()}
    return {
        "n": len(next(iter(values.values()))),
        "mean": means,
        "std": {
            name: float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
            for name, found in values.items()
        },
        "factor": {
            name: _factor(means["biased"], mean) for name, mean in means.items() if name != "biased"
        },
        "tests": {
            f"{one} - {other}": asdict(paired_test(values[one], values[other]))
            for one, other in combinations(values, 2)
        },
        "largest_gap": {name: float(found.gaps.max()) for name, found in attributions.items()},
        "incomplete": {name: int((~found.complete).sum()) for name, found in attributions.items()},
    }


def first_maps(attributions: Mapping[str, Attribution], count: int = 8) -> dict[str, Any]:
    """The first few SHAP maps of each model, small enough to keep."""
    return {
        name: found.maps[:count].numpy().astype(np.float16) for name, found in attributions.items()
    }


def _factor(before: float, after: float) -> float | None:
    return None if after == 0 else before / abs(after)


def _share(hits: Tensor) -> dict[str, Any]:
    count, n = int(hits.sum()), len(hits)
    interval = binomtest(count, n).proportion_ci(0.95, "wilson")
    return {"share": count / n, "interval": [float(interval.low), float(interval.high)]}
