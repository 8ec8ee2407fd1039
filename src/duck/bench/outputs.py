"""Stored logits of unlearned models, so that attacks need neither the model nor a GPU."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from duck.artifacts import Artifact, ArtifactStore, Key
from duck.audits.scores import Outputs
from duck.predict import logits_on
from duck.types import Scenario


class Target(NamedTuple):
    """The outputs of a model to attack: on its forget set and on unseen samples."""

    forgotten: Outputs
    unseen: Outputs


def predict_target(model: nn.Module, scenario: Scenario) -> Artifact | None:
    """Return float32 logits of the forget set and of all test samples of the same classes.

    With other classes an attack would tell classes apart. The holdout is included: no model was
    trained on it, and a false positive rate of 0.1 % needs a thousand unseen samples. None: there
    are no test data.
    """
    test = scenario.data.test
    if test is None:
        return None
    forget = scenario.data.train.take(scenario.forget)
    unseen = test.take(torch.isin(test.labels, forget.labels).nonzero().flatten())
    tensors = {}
    ids = {}
    for name, examples in (("forgotten", forget), ("unseen", unseen)):
        tensors[f"{name}_logits"] = logits_on(model, examples).cpu()
        tensors[f"{name}_labels"] = examples.labels
        ids[name] = examples.ids.tolist()
    return Artifact(tensors, {"ids": ids})


def read_target(store: ArtifactStore, key: Key) -> Target | None:
    """Return the stored outputs of a model, or None."""
    artifact = store.read(key)
    if artifact is None:
        return None
    return Target(_outputs(artifact, "forgotten"), _outputs(artifact, "unseen"))


def _outputs(artifact: Artifact, name: str) -> Outputs:
    logits = artifact.tensors[f"{name}_logits"].numpy()
    labels = artifact.tensors[f"{name}_labels"].numpy()
    return Outputs(np.array(artifact.facts["ids"][name], dtype=np.str_), logits, labels)
