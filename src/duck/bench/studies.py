"""Studies of the models of a grid: densities of classes in feature space, and bias removal."""

from dataclasses import asdict, replace

import numpy as np
from torch import nn

from duck.analysis import bias
from duck.analysis.feature_space import measure_densities
from duck.analysis.study import forgotten_classes
from duck.bench.results import Values
from duck.commands.options import model_factory
from duck.experiment import Experiment
from duck.methods.retrained import Retrained
from duck.predict import predict
from duck.runtime import Stopwatch, device_of
from duck.scenarios import Debias
from duck.types import Data, Scenario
from duck.unlearning import unlearn


def measure_density(model: nn.Module, scenario: Scenario, dimensions: int) -> Values:
    """Measure how densely each class lies in the feature space of a model (DUCK, figure 4C).

    The scores are mean log densities of the forgotten and of the retained classes.
    """
    test = scenario.data.test
    splits = {"train": scenario.data.train}
    if test is not None:
        splits["test"] = test.take(scenario.test)
    with Stopwatch(device_of(model)) as stopwatch:
        predictions = {name: predict(model, examples) for name, examples in splits.items()}
        density, space = measure_densities(predictions, dimensions)
    forgotten = forgotten_classes(scenario)
    scores: dict[str, float | None] = {}
    for split in ("train", "test"):
        sides: dict[str, list[float]] = {"forget": [], "retain": []}
        for label, value in density.get(split, {}).items():
            if value is not None:
                sides["forget" if int(label) in forgotten else "retain"].append(value)
        for name, values in sides.items():
            scores[f"{name}_{split}"] = float(np.mean(values)) if values else None
    return Values(
        scores=scores,
        density=density,
        space=asdict(space),
        forgotten=forgotten,
        seconds=stopwatch.seconds,
    )


def measure_bias_removal(
    biased: nn.Module, experiment: Experiment, data: Data, images: int
) -> Values:
    """Remove a planted bias with the method of an experiment, and measure what is left of it.

    `original` is the model that learned the bias. `retrained` is trained from scratch on all images
    with the right labels, as in the paper. The scores are shares of unseen images with the square.
    """
    request, method = experiment.request, experiment.method
    assert isinstance(request, Debias)
    assert method is not None
    scenario, training = request(data, experiment.seed, experiment.protocol), experiment.training
    new_model = model_factory(training, data)
    notes: tuple[str, ...] = ()
    if isinstance(method, Retrained):
        task = scenario.task(new_model=new_model, recipe=training.recipe)
        with Stopwatch(device_of(biased)) as stopwatch:
            model = method(biased, replace(task, retain=request.corrected(scenario).train))
        seconds = stopwatch.seconds
    else:
        # For a few epochs compilation would cost more than it saves.
        recipe = replace(training.recipe, compile=False)
        outcome = unlearn(method, biased, scenario, new_model=new_model, recipe=recipe)
        model, seconds = outcome.model, outcome.seconds
        notes = (*outcome.unmet, *outcome.method_notes)
    shares = bias.measure_shares(request, scenario, {"model": model})["model"]
    scores: dict[str, float | None] = {
        "wrong": shares.wrong.share,
        "right": shares.right.share,
        "right_without_patch": shares.right_without_patch.share,
        "test": shares.test,
        "shap": None,
    }
    shap_values = None
    if images:
        attribution = bias.explain_models(
            request, scenario, {"model": model}, images, experiment.seed
        )
        values = bias.patch_values(request, attribution["model"]).double()
        scores["shap"] = float(values.mean())
        shap_values = [round(value, 6) for value in values.tolist()]
    return Values(
        scores=scores, unseen=shares.n, shap_values=shap_values, seconds=seconds, notes=list(notes)
    )
