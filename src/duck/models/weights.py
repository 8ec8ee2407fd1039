"""Weights on disk: written as safetensors, read from safetensors or a state_dict.

No file may run code.
"""

import hashlib
import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_model
from torch import Tensor, nn

from duck import files
from duck.errors import BadInput
from duck.models.head import uncompiled
from duck.printable import listed

REQUEST_DIGEST = "duck.request_digest"
"""Metadata key of a weights file: the digest of the requests that its model has forgotten."""


def save_weights(
    model: nn.Module, path: Path | str, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights as safetensors, atomically; tied weights are stored once."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise BadInput(f"Weights are saved as .safetensors, got {path}.")
    with files.writing(path) as file:
        save_model(uncompiled(model), str(file), dict(metadata or {}))


def request_digest(path: Path) -> str:
    """Return the digest of the requests that the model of a weights file has forgotten, or ""."""
    if path.suffix != ".safetensors":
        return ""
    try:
        files.check_regular(path)
        with safe_open(path, "pt") as file:
            return str((file.metadata() or {}).get(REQUEST_DIGEST, ""))
    except (OSError, SafetensorError):  # `load_weights` raises an error that explains it
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
            "Check that the architecture and the number of classes are the same."
        )
    check_weights(found, owner)
    model.load_state_dict(found)


def copy_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all weights on the CPU; tied weights are copied, too."""
    state = uncompiled(model).state_dict()
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def holds_weights(path: Path, model: nn.Module) -> bool:
    """Return whether a file can be read and contains exactly the weights of a model."""
    own = copy_tensors(model)
    try:
        stored = _read(path)
    except BadInput:
        return False
    return all(name in own and torch.equal(stored[name], own[name]) for name in stored)


def check_weights(weights: Mapping[str, Tensor], owner: str) -> None:
    """Raise an error for weights that are NaN.

    Infinite weights may be intended, to hide a class or to mask attention.
    """
    floats = {name: value for name, value in weights.items() if value.is_floating_point()}
    broken = [name for name, value in floats.items() if value.isnan().any()]
    if broken:
        raise BadInput(
            f"{owner} contains values that are not numbers (NaN), in "
            f"{listed(broken)}: its training diverged, or the file is "
            "damaged. Use weights from before that."
        )


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadInput(f"The weights file {path} does not exist.")
    if path.suffix not in (".safetensors", ".pt", ".pth"):
        raise BadInput(f"Cannot read weights from {path}: expected .safetensors, .pt or .pth.")
    try:
        return load_file(path) if path.suffix == ".safetensors" else _read_pickle(path)
    except BadInput:
        raise
    except Exception as error:  # torch, pickle, zip and safetensors raise different errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"{path} is truncated or not a weights file ({reason}). Save or copy it again."
        ) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about formats that are refused anyway
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not _wants_code(path, str(error)):
            raise
        function = re.search(r"GLOBAL (\S+)", str(error))
        detail = f" (it refers to {function[1]})" if function else ""
        raise BadInput(
            f"{path} would run code when loaded{detail} and is refused. "
            f"Save a state_dict instead: torch.save(model.state_dict(), path)."
        ) from None
    return _state_dict(path, content)


def _wants_code(path: Path, message: str) -> bool:
    """Return whether a file that torch refused contains code.

    An unknown operand is noise, unless the file begins like a pickle: newer ones call functions so.
    """
    with path.open("rb") as file:
        return "Unsupported operand" not in message or file.read(1) == pickle.PROTO


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not all(isinstance(x, Tensor) for x in content.values()):
        raise BadInput(
            f"{path} contains no state_dict. Write it with torch.save(model.state_dict(), path)."
        )
    return {str(name): tensor for name, tensor in content.items()}


def _without_prefix(found: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefixes that DistributedDataParallel and torch.compile add to every name."""
    for prefix in ("module.", "_orig_mod.") * 2:
        if found.keys().isdisjoint(expected) and all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


def _tied(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return missing tensors that share memory with a stored one: safetensors stores only one."""
    groups: dict[tuple[int, torch.Size], list[str]] = defaultdict(list)
    for name, tensor in expected.items():
        if tensor.numel():
            groups[tensor.data_ptr(), tensor.shape].append(name)
    tied: dict[str, Tensor] = {}
    for group in groups.values():
        stored = next((name for name in group if name in found), None)
        if stored is not None:
            tied |= {name: found[stored] for name in group if name not in found}
    return tied


def _problems(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    expected_shapes = {name: tuple(value.shape) for name, value in expected.items()}
    kinds = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": [
            f"{name} {shapes[name]} instead of {shape}"
            for name, shape in expected_shapes.items()
            if shapes.get(name, shape) != shape
        ],
    }
    return [f"{len(names)} {kind}: {listed(names)}" for kind, names in kinds.items() if names]


def file_digest(path: Path) -> str:
    """Return a hash of a file of weights."""
    try:
        return hashlib.blake2b(files.read_bytes(path), digest_size=16).hexdigest()
    except OSError as error:
        raise BadInput(f"The weights {path} cannot be read: {error.strerror}.") from error
