"""What methods compute beforehand, kept by what it depends on: in memory, and in a folder where one is given."""

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

LOOKED_AT = 16


class Preparations:
    """A cache of prepared tensors. The seconds are those of the first making, also when it comes from the folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._kept: dict[str, tuple[Mapping[str, Tensor], float]] = {}

    def __call__(
        self, method: Method, model: nn.Module, task: Task
    ) -> tuple[Mapping[str, Tensor] | None, float]:
        """What `method` prepares for this task and how long that took; None for a method that prepares nothing."""
        if not isinstance(method, PreparingMethod):
            return None, 0.0
        key = _key(method, model, task)
        if key not in self._kept:
            self._kept[key] = self._read(key, device_of(model)) or self._make(
                key, method, model, task
            )
        return self._kept[key]

    def _make(
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
        place = self.folder / f"{key}.safetensors" if self.folder is not None else None
        if place is None or not place.exists():
            return None
        try:
            files.check_regular(place)
            with safe_open(place, "pt") as file:
                seconds = float(json.loads(file.metadata()["seconds"]))
            return load_file(place, device=str(device)), seconds
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            files.warn(f"{place} cannot be read ({error}): it is computed again.")
            return None


def _some(task: Task, everyone: Ids) -> list[bytes]:
    """A few images as the model gets them: other pixels or another normalisation under the same ids are other data."""
    chosen = everyone[:: max(1, len(everyone) // LOOKED_AT)]
    found: dict[str, Tensor] = {}
    for part in (task.forget, task.retain):
        rows = np.isin(part.ids, chosen).nonzero()[0]
        some = part.take(torch.from_numpy(rows))
        for batch in some.batches(LOOKED_AT) if len(rows) else ():
            found.update(zip(some.ids[batch.rows.cpu().numpy()], batch.images.cpu(), strict=True))
    return [found[name].contiguous().numpy().tobytes() for name in chosen]


def _key(method: Method, model: nn.Module, task: Task) -> str:
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
    ids, labels = (
        np.concatenate([task.forget.ids, task.retain.ids]),
        torch.cat([task.forget.labels, task.retain.labels]),
    )
    order = np.argsort(ids, kind="stable")
    everyone = ids[order]
    digest.update("\n".join(everyone.tolist()).encode())
    digest.update(labels.numpy()[order].tobytes())
    for image in _some(task, everyone):
        digest.update(image)
    if method.prepared_per_request:
        digest.update("\n".join(np.sort(task.forget.ids).tolist()).encode())
    return digest.hexdigest()
