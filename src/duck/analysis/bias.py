"""Bias removal: unlearn a patch that taught a model a wrong class, and compare with retraining."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from duck.analysis.attribution import Attribution, background_of, images_of, shap_values
from duck.analysis.paired import PairedTest, paired_test
from duck.data.patch import Patch
from duck.methods.base import Method
from duck.methods.duck import Duck
from duck.methods.presets import Preset, preset
from duck.methods.retrained import Retrained
from duck.predict import accuracy, predict
from duck.records import Count, Date, Environment, InvalidRecord, Label, Share
from duck.runtime import Stopwatch, device_of
from duck.scenarios import Debias
from duck.types import Data, Original, Recipe, Scenario
from duck.unlearning import Outcome, Watch, unlearn

MODELS = ("biased", "duck", "corrected")
RESULT, MAPS = "bias.json", "shap.npz"
FILES = (RESULT, MAPS, "biased.safetensors", "duck.safetensors", "corrected.safetensors")
"""The files that `duck debias` writes and `duck report` reads."""
IMAGES = 128
"""Unseen images whose SHAP values are computed."""
STORED_MAPS = 8
"""SHAP maps of each model that are stored."""
MIN_UNSEEN_IMAGES = 100
"""With fewer unseen images the result has a note."""
TOLERANCE = 0.01
"""Share of the mislabelled images that may keep the wrong label, as in DUCK's stop rule."""


@dataclass(frozen=True)
class MeasuredShare:
    """A share of images with its 95 % interval (Wilson)."""

    share: Share
    interval: list[float]

    def __post_init__(self) -> None:
        if len(self.interval) != 2:
            raise InvalidRecord("has an interval that is not a pair of numbers")


@dataclass(frozen=True)
class PatchShares:
    """How a model classifies unseen images of the true class."""

    wrong: MeasuredShare
    """With the patch, as the wrong class."""
    right: MeasuredShare
    right_without_patch: MeasuredShare
    test: Share | None
    """Test accuracy."""
    n: Count


@dataclass(frozen=True)
class PatchStatistics:
    """SHAP values of the pixels of the patch, for each model."""

    n: Count
    mean: dict[str, float]
    std: dict[str, float]
    factor: dict[str, float | None]
    """How many times smaller the mean is than in the biased model."""
    tests: dict[str, PairedTest]
    """Keys such as "biased - duck"."""
    largest_gap: dict[str, float]
    incomplete: dict[str, Count]
    """Images whose SHAP values do not add up."""


@dataclass(frozen=True, kw_only=True)
class RemovalRecord:
    """The content of bias.json."""

    data: str
    shape: list[Count]
    seed: Count
    true: Label
    wrong: Label
    count: Count
    patch: Count
    colour: tuple[Count, ...]
    n: Count
    predicted: dict[str, PatchShares]
    """The models: biased, duck and corrected."""
    forget: dict[str, Share]
    """Share of the mislabelled images that get the wrong label."""
    shap: PatchStatistics | None
    notes: list[str]
    seconds: dict[str, float]
    train_seconds: float
    preset: str
    method: dict[str, Any]
    """The settings of the method."""
    model: str
    recipe: dict[str, Any]
    """The settings of the training."""
    fingerprint: str
    environment: Environment
    created: Date
    command: str
    """The command that makes the same folder again."""

    def __post_init__(self) -> None:
        if not self.patch or not self.colour or not self.shape:
            raise InvalidRecord("has an empty patch, colour or shape")
        tables: dict[str, tuple[Mapping[str, Any], Sequence[str]]] = {
            "predicted": (self.predicted, MODELS),
            "forget": (self.forget, MODELS[:2]),
            "seconds": (self.seconds, MODELS[1:]),
        }
        if self.shap is not None:
            tables |= {"shap.mean": (self.shap.mean, MODELS), "shap.std": (self.shap.std, MODELS)}
        for name, (values, models) in tables.items():
            for model in models:
                if model not in values:
                    raise InvalidRecord(f"has no {name}.{model}")


@dataclass(frozen=True, eq=False)
class RemovalOutcome:
    """The biased model, the unlearned model, and a model trained with correct labels."""

    models: dict[str, nn.Module]
    outcome: Outcome
    retrain_seconds: float


def debias_method(debias: Debias, data: Data, name: Preset = "tuned") -> Duck:
    """Return DUCK for class removal, with the true class as the target of mislabelled images."""
    method = preset("duck", data.name, "class", len(data.train), name)
    assert isinstance(method, Duck)
    return replace(method, target_class=debias.classes(data)[0])


def remove_bias(
    debias: Debias,
    scenario: Scenario,
    biased: Original,
    method: Method,
    watch: Watch | None = None,
) -> RemovalOutcome:
    """Unlearn the mislabelled images, and retrain with correct labels.

    `biased` was trained on the data of the scenario.
    """
    model, recipe = biased.model, biased.recipe or Recipe()
    # For a few epochs compilation would cost more than it saves.
    eager = replace(biased, recipe=replace(recipe, compile=False))
    outcome = unlearn(method, eager, scenario, watch=watch)
    task = scenario.task(new_model=biased.new_model, recipe=recipe, report=watch)
    with Stopwatch(device_of(model)) as stopwatch:
        corrected = Retrained()(model, replace(task, retain=debias.corrected(scenario).train))
    models = dict(zip(MODELS, (model, outcome.model, corrected), strict=True))
    return RemovalOutcome(models, outcome, stopwatch.seconds)


def make_record(
    debias: Debias,
    scenario: Scenario,
    removal: RemovalOutcome,
    attributions: Mapping[str, Attribution] | None = None,
    **rest: Any,
) -> RemovalRecord:
    """Return the record of a bias removal; `rest` are further fields."""
    data, (true, wrong) = scenario.data, debias.classes(scenario.data)
    shares = measure_shares(debias, scenario, removal.models)
    n = len(debias.unseen(scenario))
    forget = {"biased": removal.outcome.original.forget, "duck": removal.outcome.scores.forget}
    shap = patch_statistics(debias, attributions) if attributions else None
    return RemovalRecord(
        data=data.name,
        shape=list(data.train.shape),
        seed=scenario.seed,
        true=data.classes[true],
        wrong=data.classes[wrong],
        count=debias.count,
        patch=debias.patch,
        colour=debias.colour,
        n=n,
        predicted=shares,
        forget=forget,
        shap=shap,
        notes=_notes(shap, forget, n),
        seconds={
            "duck": round(removal.outcome.seconds, 3),
            "corrected": round(removal.retrain_seconds, 3),
        },
        **rest,
    )


def _notes(shap: PatchStatistics | None, forget: Mapping[str, float], unseen: int) -> list[str]:
    notes = []
    if forget["duck"] >= TOLERANCE:
        notes.append(
            f"After unlearning, {100 * forget['duck']:.1f} % of the mislabelled images still get "
            "the wrong label."
        )
    if unseen < MIN_UNSEEN_IMAGES:
        notes.append(
            f"The shares are imprecise: only {unseen} unseen images of the class "
            f"({MIN_UNSEEN_IMAGES} or more recommended)."
        )
    if shap and any(shap.incomplete.values()):
        notes.append(f"SHAP values do not add up: {shap.incomplete} images.")
    return notes


def measure_shares(
    debias: Debias, scenario: Scenario, models: Mapping[str, nn.Module]
) -> dict[str, PatchShares]:
    """Measure how each model classifies unseen images of the true class, with and without patch."""
    patched, clean = debias.unseen(scenario), debias.unseen(scenario, patched=False)
    (true, wrong), test = debias.classes(scenario.data), scenario.data.test
    found = {}
    for name, model in models.items():
        with_patch, without = (
            predict(model, images).logits.argmax(1) for images in (patched, clean)
        )
        found[name] = PatchShares(
            wrong=_share(with_patch == wrong),
            right=_share(with_patch == true),
            right_without_patch=_share(without == true),
            test=accuracy(model, test.take(scenario.test)) if test is not None else None,
            n=len(patched),
        )
    return found


def explain_models(
    debias: Debias,
    scenario: Scenario,
    models: Mapping[str, nn.Module],
    images: int = IMAGES,
    seed: int = 0,
) -> dict[str, Attribution]:
    """Compute SHAP values for the wrong class on unseen images with the patch.

    The background has no patch.
    """
    unseen = debias.unseen(scenario)
    chosen = images_of(unseen.take(torch.arange(min(images, len(unseen)))))
    task, wrong = scenario.task(), debias.classes(scenario.data)[1]
    background = background_of(task.holdout if task.holdout is not None else task.retain, seed)
    return {name: shap_values(model, chosen, wrong, background) for name, model in models.items()}


def patch_values(debias: Debias, attribution: Attribution) -> Tensor:
    """Return the mean SHAP value of the pixels of the patch, for each image."""
    down, across = Patch(debias.patch, debias.colour).place(tuple(attribution.values.shape[1:]))
    return attribution.maps[:, down, across].mean((1, 2))


def patch_statistics(debias: Debias, attributions: Mapping[str, Attribution]) -> PatchStatistics:
    """Return mean and spread of the patch's SHAP values, how much they fell, and paired tests."""
    values = {
        name: patch_values(debias, found).double().numpy() for name, found in attributions.items()
    }
    means = {name: float(found.mean()) for name, found in values.items()}
    return PatchStatistics(
        n=len(next(iter(values.values()))),
        mean=means,
        std={
            name: float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
            for name, found in values.items()
        },
        factor={
            name: means["biased"] / abs(mean) if mean else None
            for name, mean in means.items()
            if name != "biased"
        },
        tests={
            f"{one} - {other}": paired_test(values[one], values[other])
            for one, other in combinations(values, 2)
        },
        largest_gap={name: float(found.gaps.max()) for name, found in attributions.items()},
        incomplete={name: int((~found.complete).sum()) for name, found in attributions.items()},
    )


def first_maps(attributions: Mapping[str, Attribution]) -> dict[str, Any]:
    """Return the first SHAP maps of each model, small enough to store."""
    return {
        name: found.maps[:STORED_MAPS].numpy().astype(np.float16)
        for name, found in attributions.items()
    }


def _share(hits: Tensor) -> MeasuredShare:
    count, n = int(hits.sum()), len(hits)
    interval = binomtest(count, n).proportion_ci(0.95, "wilson")
    return MeasuredShare(count / n, [float(interval.low), float(interval.high)])
