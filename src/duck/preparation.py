"""The preparations of methods: cached in memory and, if a store is given, on disk."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duck.artifacts import Artifact, ArtifactStore, Key
from duck.experiment import Training
from duck.methods.base import METHODS, Method, PreparingMethod
from duck.runtime import Stopwatch, device_of
from duck.types import Ids, Task

PIXEL_SAMPLES = 16
"""Images whose pixels, as the model receives them, are part of the key of a preparation, about.
The fingerprint of the training has those of all images."""


class Preparations:
    """Prepared tensors of methods, and the time that they took when they were computed."""

    def __init__(
        self, store: ArtifactStore | None = None, training: Training | None = None
    ) -> None:
        """Share preparations by a store. Only commands have one, and they know the training.

        training   how the original was trained: its data and the code of its model count, too
        """
        self._store = store or ArtifactStore()
        self._fingerprint = training.fingerprint if training else ""
        self._model = training.model if training else ""
        self._in_memory: dict[Key, tuple[Mapping[str, Tensor], float]] = {}

    def __call__(
        self, method: Method, model: nn.Module, task: Task
    ) -> tuple[Mapping[str, Tensor] | None, float]:
        """Return the preparation of a method for a task, or None if it has none, and its time."""
        if not isinstance(method, PreparingMethod):
            return None, 0.0
        depends_on = {**_dependencies(method, model, task), "fingerprint": self._fingerprint}
        key = Key.of("preparations", depends_on, self._model)
        if key not in self._in_memory:
            self._in_memory[key] = self._store.get_or_make(
                key,
                lambda: _prepare(method, model, task),
                lambda artifact: (artifact.tensors, float(artifact.facts["seconds"])),
                device=device_of(model),
            )
        return self._in_memory[key]


def _prepare(method: PreparingMethod, model: nn.Module, task: Task) -> Artifact:
    with Stopwatch(device_of(model)) as stopwatch:
        tensors = method.prepare(model, task)
    return Artifact(tensors, {"seconds": stopwatch.seconds})


def _dependencies(method: PreparingMethod, model: nn.Module, task: Task) -> dict[str, Any]:
    """Return everything that a preparation depends on."""
    ids = np.concatenate([task.forget.ids, task.retain.ids])
    labels = torch.cat([task.forget.labels, task.retain.labels])
    order = np.argsort(ids, kind="stable")
    weights = (value.detach().cpu().contiguous() for value in model.state_dict().values())
    samples = [_text(ids[order]), labels.numpy()[order].tobytes()]
    forget = _digest([_text(np.sort(task.forget.ids))])
    return {
        "method": METHODS.name_of(method),
        "settings": {name: repr(getattr(method, name)) for name in method.prepared_from},
        "num_classes": task.num_classes,
        "recipe": task.recipe,
        "head": task.head,
        "frozen": [name for name, value in model.named_parameters() if not value.requires_grad],
        "weights": _digest(value.view(-1).numpy().tobytes() for value in weights),
        "samples": _digest([*samples, *_sample_pixels(task, ids[order])]),
        "forget": forget if method.prepared_per_request else "",
    }


def _text(ids: Ids) -> bytes:
    return "\n".join(ids.tolist()).encode()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _sample_pixels(task: Task, ids: Ids) -> list[bytes]:
    """Return the pixels of a few images as the model receives them.

    They reveal other pixels or another normalisation under the same ids.
    """
    chosen = ids[:: max(1, len(ids) // PIXEL_SAMPLES)]
    images: dict[str, Tensor] = {}
    for part in (task.forget, task.retain):
        rows = np.isin(part.ids, chosen).nonzero()[0]
        if not len(rows):
            continue
        samples = part.take(torch.from_numpy(rows))
        for batch in samples.batches(PIXEL_SAMPLES):
            names = samples.ids[batch.rows.cpu().numpy()]
            images.update(zip(names, batch.images.cpu(), strict=True))
    return [images[name].contiguous().numpy().tobytes() for name in chosen]
