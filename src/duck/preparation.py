"""The cache of preparations of methods: in memory, and in a folder if one is given."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from duck import files
from duck.json_text import to_json
from duck.methods.base import METHODS, Method, PreparingMethod
from duck.runtime import Stopwatch, device_of
from duck.types import Ids, Task

PIXEL_SAMPLES = 16
"""Images whose pixels are part of the key of a preparation, about."""


class Preparations:
    """A cache of prepared tensors and of the time that they took when they were computed."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._cache: dict[str, tuple[Mapping[str, Tensor], float]] = {}

    def __call__(
        self, method: Method, model: nn.Module, task: Task
    ) -> tuple[Mapping[str, Tensor] | None, float]:
        """Return the preparation of a method for a task, or None if it has none, and its time."""
        if not isinstance(method, PreparingMethod):
            return None, 0.0
        key = _key(method, model, task)
        if key not in self._cache:
            stored = self._read(key, device_of(model))
            self._cache[key] = stored or self._compute(key, method, model, task)
        return self._cache[key]

    def _compute(
        self, key: str, method: PreparingMethod, model: nn.Module, task: Task
    ) -> tuple[Mapping[str, Tensor], float]:
        with Stopwatch(device_of(model)) as stopwatch:
            tensors = method.prepare(model, task)
        if self.folder is not None:
            with (
                files.writing_cache(self.folder),
                files.writing(self.folder / f"{key}.safetensors") as file,
            ):
                save_file(
                    {name: value.contiguous() for name, value in tensors.items()},
                    file,
                    {"seconds": to_json(stopwatch.seconds)},
                )
        return tensors, stopwatch.seconds

    def _read(self, key: str, device: object) -> tuple[Mapping[str, Tensor], float] | None:
        path = self.folder / f"{key}.safetensors" if self.folder is not None else None
        if path is None or not path.exists():
            return None
        try:
            files.check_regular(path)
            with safe_open(path, "pt") as file:
                seconds = float(json.loads(file.metadata()["seconds"]))
            return load_file(path, device=str(device)), seconds
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            files.warn(f"{path} cannot be read ({error}): it is computed again.")
            return None


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


def _key(method: Method, model: nn.Module, task: Task) -> str:
    """Return a digest of everything that the preparation depends on."""
    assert isinstance(method, PreparingMethod)
    digest = hashlib.blake2b(digest_size=12)
    settings = {name: getattr(method, name) for name in method.prepared_from}
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    facts = [
        METHODS.name_of(method),
        settings,
        task.num_classes,
        repr(task.recipe),
        task.head,
        frozen,
    ]
    digest.update(to_json(facts, default=str).encode())
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
    ids = np.concatenate([task.forget.ids, task.retain.ids])
    labels = torch.cat([task.forget.labels, task.retain.labels])
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    digest.update("\n".join(sorted_ids.tolist()).encode())
    digest.update(labels.numpy()[order].tobytes())
    for pixels in _sample_pixels(task, sorted_ids):
        digest.update(pixels)
    if method.prepared_per_request:
        digest.update("\n".join(np.sort(task.forget.ids).tolist()).encode())
    return digest.hexdigest()
