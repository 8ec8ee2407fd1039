"""Weights on disk: safetensors of our own, safetensors or a state_dict of the user's. No file is allowed to run code."""

import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_model
from torch import Tensor, nn

from duck import files
from duck.errors import BadInput
from duck.models.head import uncompiled

SHOWN = 5
"""Tensors named in an error message, of each kind."""
REQUEST_DIGEST = "duck.request_digest"
"""Key of the metadata of a weights file: the digest of what its model has forgotten."""


def save_weights(
    model: nn.Module, path: Path | str, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights as safetensors, whole or not at all; tied weights are stored once."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise BadInput(f"Weights are saved as .safetensors, got {path}.")
    with files.writing(path) as file:
        save_model(uncompiled(model), str(file), dict(metadata or {}))


def request_digest(path: Path) -> str:
    """Return the digest of what the model in a weights file has forgotten, where we wrote one; else ""."""
    if path.suffix != ".safetensors":
        return ""
    try:
        files.check_regular(path)
        with safe_open(path, "pt") as file:
            return str((file.metadata() or {}).get(REQUEST_DIGEST, ""))
    except (OSError, SafetensorError):  # `load_weights` says what is wrong with the file
        return ""


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Read weights into the model, all of them or none."""
    load_tensors(model, _read(Path(path)), str(path))


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], owner: str) -> None:
    """Copy weights into the model, all of them or none; `owner` names their source in errors."""
    model = uncompiled(model)
    expected: dict[str, Tensor] = model.state_dict()
    found = _without_prefix(dict(tensors), expected)
    found = {**found, **_tied(found, expected)}
    problems = _problems(found, expected)
    if problems:
        raise BadInput(
            f"{owner} does not fit this model: {'; '.join(problems)}. "
            "Were the architecture and the number of classes the same?"
        )
    check_weights(found, owner)
    model.load_state_dict(found)


def copy_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all weights on the CPU; tied weights are copied, too."""
    state = uncompiled(model).state_dict()
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def check_weights(weights: Mapping[str, Tensor], owner: str) -> None:
    """Raise an error where a weight is not a number. Infinite ones may be meant: they hide a class, or mask attention."""
    broken = [
        name
        for name, tensor in weights.items()
        if tensor.is_floating_point() and tensor.isnan().any()
    ]
    if broken:
        raise BadInput(
            f"{owner} holds values that are not numbers (NaN), in {_first([repr(name) for name in broken])}: "
            "its training diverged, or the file is damaged. Use weights from before that."
        )


def _read(path: Path) -> dict[str, Tensor]:
    readers: dict[str, Callable[[Path], dict[str, Tensor]]] = {
        ".safetensors": load_file,
        ".pt": _read_pickle,
        ".pth": _read_pickle,
    }
    if not path.is_file():
        raise BadInput(f"There is no weights file {path}.")
    if path.suffix not in readers:
        raise BadInput(f"Cannot read weights from {path}: expected {', '.join(readers)}.")
    try:
        return readers[path.suffix](path)
    except BadInput:
        raise
    except Exception as error:  # torch, pickle, zip and safetensors each have their own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"{path} is truncated or not a weights file ({reason}). Save or copy it again."
        ) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are refused here anyway
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not _wants_code(path, str(error)):
            raise
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        raise BadInput(
            f"{path} would run code when loaded{f' (it asks for {wanted[1]})' if wanted else ''} and is refused. "
            f"Save a state_dict instead: torch.save(model.state_dict(), path)."
        ) from None
    return _state_dict(path, content)


def _wants_code(path: Path, message: str) -> bool:
    """An operand unknown to torch is noise, except in what begins like a pickle: newer ones call functions that way."""
    with path.open("rb") as file:
        return "Unsupported operand" not in message or file.read(1) == pickle.PROTO


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not all(isinstance(x, Tensor) for x in content.values()):
        raise BadInput(
            f"{path} holds no state_dict. Write it with torch.save(model.state_dict(), path)."
        )
    return {str(name): tensor for name, tensor in content.items()}


def _without_prefix(found: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without what DistributedDataParallel and torch.compile put before every name."""
    for prefix in ("module.", "_orig_mod.") * 2:
        if found.keys().isdisjoint(expected) and all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


def _tied(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The absent tensors that share memory with a present one: safetensors stores such only once."""
    groups: dict[tuple[int, torch.Size], list[str]] = defaultdict(list)
    for name, tensor in expected.items():
        if tensor.numel():
            groups[tensor.data_ptr(), tensor.shape].append(name)
    twins = {
        name: [twin for twin in group if twin in found]
        for group in groups.values()
        for name in group
        if name not in found
    }
    return {name: found[present[0]] for name, present in twins.items() if present}


def _problems(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    missing = [f"{name} {_shape(tensor)}" for name, tensor in expected.items() if name not in found]
    unexpected = [
        f"{name} {_shape(tensor)}" for name, tensor in found.items() if name not in expected
    ]
    misshaped = [
        f"{name} {_shape(found[name])} instead of {_shape(tensor)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": misshaped}
    return [f"{len(names)} {kind}: {_first(names)}" for kind, names in kinds.items() if names]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _first(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
