"""Residual memory: how much of what the original remembers of the forget samples is left.

ρ = (value of the model - retrained) / (original - retrained). It is 0 for a model that never saw
the samples and 1 for the original. Several measures are read in this way.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from torch import nn

from duck.audits.measurements import FLOOR, Measure, Measurement, calibrated, js
from duck.audits.outputs import (
    ModelOutputs,
    Setting,
    SplitOutputs,
    compute_outputs,
    make_setting,
    temperature_of,
)
from duck.audits.probes import JUDGED, linear, prototypes
from duck.audits.scores import margins
from duck.audits.statistics import rank_auc
from duck.errors import BadInput
from duck.types import Scenario

MAX_MARGIN = {"class": 4.0, "samples": 8.0}
"""Margins are clipped to ± this: a few extreme samples would decide the mean otherwise. How far an
unknown class lies below zero depends on the recipe more than on memory."""
ABOUT = {
    "class": "mean calibrated margin of the forgotten class on its samples minus that on others",
    "samples": "mean calibrated margin of the forget samples minus that of unseen ones",
}
ABOUT_PROBE = {
    "class": "share of the forgotten class found by its mean embedding, learned from 1 label",
    "samples": "share of forget samples that a linear probe fitted on retained ones classifies "
    "correctly, minus that of unseen samples",
}
EMBEDDING = "embedding"
INNER = "inner embedding"
CLASS_LOGIT = "class logit"
LIKENESS = "likeness to the original"
PRIMARY = ("margin", "margin of copies")
"""The measures that must lie below the limit of residual memory. The others scatter more between
retrained models, so that their limit is wider."""
SEARCH_MEASURES = (PRIMARY[0], CLASS_LOGIT)
"""Outputs alone: embeddings scatter more."""
LEAST_DISTANCE = 0.1
"""Between the original and the retrained model, for searches. A measure that separates them less is
left out."""
LEAST_ERROR = 0.002
"""An AUC is cut off this far from 0 and 1, where its normal quantile would be infinite."""


def memory_measures(setting: Setting, original: ModelOutputs) -> list[Measure]:
    """Return the measures of memory, each judged as residual memory."""
    about = ABOUT[setting.kind]
    about_probe = ABOUT_PROBE[setting.kind]
    measures = [
        _measure("margin", about, lambda outputs: _margin(outputs, outputs.forget, setting)),
        _measure(
            "margin of copies",
            f"{about}; copies of the forget samples with a little noise",
            lambda outputs: _margin(outputs, outputs.copies or outputs.forget, setting),
        ),
        _measure(
            "margin of contrast copies",
            f"{about}; copies of the forget samples with more contrast",
            lambda outputs: _margin(outputs, outputs.far_copies or outputs.forget, setting),
        ),
    ]
    if setting.kind == "class":
        # They read outputs of a model that does not name the class any more.
        measures += [
            _measure(
                CLASS_LOGIT,
                "how well the logit of the forgotten class finds its samples among others, "
                "whatever its level (normal quantile of the AUC)",
                lambda outputs: _class_logit(outputs, setting),
            ),
            _measure(
                LIKENESS,
                "-log of the divergence from the original's outputs on the forget samples, without "
                "the forgotten class",
                lambda outputs: _likeness(outputs, original, setting),
            ),
        ]
    return [
        *measures,
        _measure(
            EMBEDDING,
            about_probe,
            lambda outputs: _probe(_without_added_layer(outputs, original), setting),
        ),
        _measure(
            INNER,
            f"{about_probe}; one layer earlier",
            lambda outputs: _probe(_with_inner(outputs), setting),
        ),
    ]


def _measure(name: str, about: str, value: Callable[[ModelOutputs], float]) -> Measure:
    def measure(outputs: ModelOutputs) -> Measurement:
        return Measurement(value(outputs), None, None, len(outputs.forget))

    return Measure(name, about, "score", measure, question="remembers")


def is_comparable(measure: str, outputs: ModelOutputs, original: ModelOutputs) -> bool:
    """Return whether a measure of memory reads the same layer in both models."""
    if measure != INNER or outputs.forget.inner is None or original.forget.inner is None:
        return True
    is_as_wide = outputs.forget.inner.shape[1] == original.forget.inner.shape[1]
    return is_as_wide and outputs.depth == original.depth


def _without_added_layer(outputs: ModelOutputs, original: ModelOutputs) -> ModelOutputs:
    """Return the outputs with the embeddings of the layer that is the last one of the original.

    A layer that is added after the logits, such as an identity, would hide that embedding.
    """
    width = original.forget.embeddings.shape[1]
    inner = outputs.forget.inner
    is_last = outputs.forget.embeddings.shape[1] == width
    is_earlier = inner is not None and inner.shape[1] == width
    return _with_inner(outputs) if is_earlier and not is_last else outputs


def _class_logit(outputs: ModelOutputs, setting: Setting) -> float:
    """Return how well the logit of a class finds its samples, as the mean over the classes.

    A constant that is added to the logit hides the class and does not change this.
    """
    found = []
    for label in setting.forgotten_classes:
        forget = outputs.forget.logits[outputs.forget.labels == label]
        others = outputs.unseen.logits[setting.retain_test]
        logits = np.concatenate([forget, others])
        heights = logits[:, label] - logits[:, setting.retained_classes].mean(1)
        auc = rank_auc(heights, np.arange(len(heights)) < len(forget))
        found.append(float(norm.ppf(np.clip(auc, LEAST_ERROR, 1 - LEAST_ERROR))))
    return float(np.mean(found))


def _likeness(outputs: ModelOutputs, original: ModelOutputs, setting: Setting) -> float:
    """Return how near the outputs on forget samples are to those of the original."""
    models = (outputs, original)
    distances = js(*(calibrated(model, model.forget, setting) for model in models))
    return -float(np.log(distances.mean() + FLOOR))


def _margin(outputs: ModelOutputs, split: SplitOutputs, setting: Setting) -> float:
    """Return the mean clipped margin of forget samples minus that of unseen ones.

    All logits are divided by the temperature of the model. A change of the recipe moves both
    sides. Unseen samples are of the same classes; where these are forgotten themselves, samples
    of retained classes are read as if they belonged to a forgotten one.
    """
    scale = temperature_of(outputs, setting)
    most = MAX_MARGIN[setting.kind]

    def mean_margin(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
        return float(np.clip(margins(logits / scale, labels), -most, most).mean())

    members = split.take(setting.members)
    forget = mean_margin(members.logits, members.labels)
    if setting.kind == "samples":
        unseen = outputs.unseen.take(setting.matched)
        return forget - mean_margin(unseen.logits, unseen.labels)
    logits = outputs.unseen.logits[setting.retain_test]
    others = [
        mean_margin(logits, np.full(len(logits), label)) for label in setting.forgotten_classes
    ]
    return forget - float(np.mean(others))


def _probe(outputs: ModelOutputs, setting: Setting) -> float:
    if setting.kind == "class":
        return prototypes(outputs, setting, JUDGED).value
    known = outputs.retain.embeddings, outputs.retain.labels
    forget, unseen = (
        linear(*known, split.embeddings) == split.labels
        for split in (outputs.forget, outputs.unseen)
    )
    return float(forget[setting.members].mean() - unseen[setting.matched].mean())


def _with_inner(outputs: ModelOutputs) -> ModelOutputs:
    """Return the outputs with the embeddings of one layer earlier, where there is one."""
    return outputs.map(
        lambda split: split if split.inner is None else replace(split, embeddings=split.inner)
    )


class ResidualMemory:
    """Measures residual memory by one retrained model: for searches, without an interval.

    0: as the retrained model, 1: as the original. Single samples that a model knows less than the
    retrained one count as well: they stand out.
    """

    def __init__(
        self,
        scenario: Scenario,
        original: nn.Module,
        retrained: nn.Module,
        head: str | None = None,
    ) -> None:
        self.scenario = scenario
        self.head = head
        before = self._values(original)
        self.lowest = self._values(retrained)
        distances = {name: before[name] - value for name, value in self.lowest.items()}
        self.distances = {
            name: distance for name, distance in distances.items() if distance > LEAST_DISTANCE
        }
        if not self.distances:
            raise BadInput(
                "The original does not stand out from a retrained model on these samples: there "
                "is no memory to measure. Take another objective, gap or aus."
            )

    def _values(self, model: nn.Module) -> dict[str, float]:
        outputs = compute_outputs(model, self.scenario, self.head)
        # The measures are functions of this scenario, which cannot be sent to other processes.
        # Those that searches read do not look at the original, which may be any model here.
        measures = memory_measures(make_setting(self.scenario), outputs)
        return {
            measure.name: measure.of_model(outputs).value
            for measure in measures
            if measure.name in SEARCH_MEASURES and measure.of_model is not None
        }

    def __call__(self, model: nn.Module) -> float:
        """Return the largest residual memory over the measures."""
        values = self._values(model)
        shares = [
            (values[name] - self.lowest[name]) / distance
            for name, distance in self.distances.items()
        ]
        if self.scenario.kind == "samples":
            shares = [abs(share) for share in shares]
        return max([0.0, *shares])
