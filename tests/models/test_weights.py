import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import Tensor, nn

from duck.errors import BadInput
from duck.models import build
from duck.models.head import Head, WithEmbedding
from duck.models.weights import load_weights, save_weights


class Tied(nn.Module):
    """Encoder and head share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 4)
        self.head.weight = self.encoder.weight


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was-run",)


def net(seed: int, classes: int = 5) -> nn.Module:
    return build("convnet", classes, (1, 8, 8), seed=seed)


def same(model: nn.Module, state: dict[str, Tensor]) -> bool:
    now = model.state_dict()
    return now.keys() == state.keys() and all(torch.equal(now[name], state[name]) for name in state)


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved, loaded, path = net(0), net(1), tmp_path / "new" / "w.safetensors"
    saved(torch.randn(8, 1, 8, 8))
    save_weights(saved, path)
    load_weights(loaded, str(path))
    assert same(loaded, copied(saved))
    assert [file.name for file in path.parent.iterdir()] == ["w.safetensors"]


def test_two_processes_may_save_to_one_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have the same number, as in two containers."""
    path, others = tmp_path / "w.safetensors", [net(1)]

    def interrupted(model: nn.Module, file: str, metadata: dict[str, str]) -> None:
        save_model(model, file, metadata)
        if others:  # the other process writes, whole, before this one has moved its file
            save_weights(others.pop(), path)

    monkeypatch.setattr("duck.models.weights.save_model", interrupted)
    save_weights(net(0), path)
    loaded = net(2)
    load_weights(loaded, path)
    assert same(loaded, copied(net(0)))
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_channels_last_models_are_saved_with_their_values(tmp_path: Path) -> None:
    saved, loaded, path = net(0), net(1), tmp_path / "w.safetensors"
    expected = copied(saved)
    save_weights(saved.to(memory_format=torch.channels_last), path)  # type: ignore[call-overload]
    load_weights(loaded, path)
    assert same(loaded, expected)


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    saved, loaded, path = Tied(), Tied(), tmp_path / "w.safetensors"
    save_weights(saved, path)
    assert len(load_file(path)) == 2
    load_weights(loaded, path)
    assert same(loaded, copied(saved))
    assert loaded.head.weight is loaded.encoder.weight


def test_an_untied_model_needs_both_tensors(tmp_path: Path) -> None:
    save_weights(Tied(), tmp_path / "w.safetensors")
    untied = Tied()
    untied.head.weight = nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(BadInput, match="1 missing: "):
        load_weights(untied, tmp_path / "w.safetensors")


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize("key", [None, "state_dict", "model"])
@pytest.mark.parametrize(
    "prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."]
)
def test_state_dicts_of_all_makes(
    tmp_path: Path, suffix: str, key: str | None, prefix: str
) -> None:
    saved, loaded, path = net(0), net(1), tmp_path / f"w{suffix}"
    state = {prefix + name: tensor for name, tensor in saved.state_dict().items()}
    torch.save({key: state, "epoch": 3} if key else state, path)
    load_weights(loaded, path)
    assert same(loaded, copied(saved))


def test_prefixed_safetensors(tmp_path: Path) -> None:
    saved, loaded, path = net(0), net(1), tmp_path / "w.safetensors"
    save_file({f"module.{name}": tensor for name, tensor in saved.state_dict().items()}, path)
    load_weights(loaded, path)
    assert same(loaded, copied(saved))


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_model_that_has_a_part_called_module(tmp_path: Path, prefix: str) -> None:
    saved, loaded = (nn.ModuleDict({"module": nn.Linear(2, 2)}) for _ in range(2))
    torch.save(
        {prefix + name: tensor for name, tensor in saved.state_dict().items()}, tmp_path / "w.pt"
    )
    load_weights(loaded, tmp_path / "w.pt")
    assert same(loaded, copied(saved))


def test_wrapped_and_compiled_models_have_plain_names(tmp_path: Path) -> None:
    saved, path = net(0), tmp_path / "w.safetensors"
    wrapped = WithEmbedding(saved, Head("head", "flat"))
    for model in (wrapped, torch.compile(saved, backend="eager")):
        assert isinstance(model, nn.Module)
        save_weights(model, path)
        assert load_file(path).keys() == saved.state_dict().keys()
        load_weights(model, path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, zipped: bool
) -> None:
    path, model = tmp_path / "w.pt", net(1)
    monkeypatch.chdir(tmp_path)
    if zipped:
        torch.save({"a": RunsCode()}, path)
    else:
        path.write_bytes(pickle.dumps(RunsCode(), protocol=protocol))
    with pytest.raises(BadInput, match=r"would run code .*state_dict"):
        load_weights(model, path)
    assert not (tmp_path / "was-run").exists()


def test_a_whole_pickled_model_is_refused_and_named(tmp_path: Path) -> None:
    torch.save(net(0), tmp_path / "w.pt")
    with pytest.raises(
        BadInput,
        match=r"would run code .*to duck\.models\.convnet\.ConvNet\)",
    ):
        load_weights(net(1), tmp_path / "w.pt")


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {"state_dict": {"a": 1}}])
def test_a_file_without_a_state_dict(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(BadInput, match=r"w\.pt contains no state_dict"):
        load_weights(net(1), tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("kept", [0, 3, 2000])
def test_a_truncated_file_is_named(tmp_path: Path, name: str, kept: int) -> None:
    path, model = tmp_path / name, net(1)
    before = copied(model)
    if name == "w.pt":
        torch.save(net(0).state_dict(), path)
    else:
        save_weights(net(0), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadInput, match=f"{name} is truncated"):
        load_weights(model, path)
    assert same(model, before)


@pytest.mark.parametrize("noise", [b"hello world, this is text", b"\xfe" * 500])
def test_noise_is_not_called_code(tmp_path: Path, noise: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(noise)
    with pytest.raises(BadInput, match="not a weights file"):
        load_weights(net(1), tmp_path / "w.pt")


def test_a_missing_file_and_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"weights file .*absent\.pt does not exist"):
        load_weights(net(1), tmp_path / "absent.pt")
    (tmp_path / "w.onnx").write_bytes(b"")
    with pytest.raises(BadInput, match=r"w\.onnx.*\.safetensors, \.pt or \.pth"):
        load_weights(net(1), tmp_path / "w.onnx")
    with pytest.raises(BadInput, match=r"\.safetensors, got .*w\.pt"):
        save_weights(net(1), tmp_path / "w.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_what_does_not_fit_is_named_and_nothing_changes(tmp_path: Path, suffix: str) -> None:
    path, model = tmp_path / f"w{suffix}", net(1)
    before = copied(model)
    state = net(0, classes=6).state_dict()
    state["extra"] = state.pop("features.0.weight")
    (torch.save if suffix == ".pt" else save_file)(state, path)
    with pytest.raises(BadInput) as caught:
        load_weights(model, path)
    message = str(caught.value)
    assert f"w{suffix} does not fit this model: 1 missing: 'features.0.weight'" in message
    assert "1 unexpected: 'extra'; 2 of another shape: 'head.weight (6, 64) instead" in message
    assert same(model, before)


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    torch.save({"head.bias": torch.zeros(5)}, tmp_path / "w.pt")
    with pytest.raises(
        BadInput, match=r"19 missing: 'features\.0\.weight', ('\S+',? ){4}and 14 more\. Check"
    ):
        load_weights(net(1), tmp_path / "w.pt")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path, broken = tmp_path / "w.safetensors", nn.Linear(2, 2)
    save_weights(nn.Linear(2, 2), path)
    before = path.read_bytes()
    broken.register_buffer("odd", torch.zeros(2, dtype=torch.complex128))
    with pytest.raises(Exception, match="complex128"):
        save_weights(broken, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_saving_replaces_a_file_and_does_not_write_into_it(tmp_path: Path) -> None:
    path, kept = tmp_path / "w.safetensors", tmp_path / "kept.safetensors"
    save_weights(net(0), path)
    kept.hardlink_to(path)
    before = kept.read_bytes()
    save_weights(net(1), path)
    assert kept.read_bytes() == before
    assert path.read_bytes() != before


def test_nothing_is_left_where_the_file_cannot_go(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").mkdir()
    with pytest.raises(IsADirectoryError):
        save_weights(net(0), tmp_path / "w.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]
