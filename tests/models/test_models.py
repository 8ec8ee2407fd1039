"""Building models by name: the table, seeds, and a user's own builders."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from duck.errors import BadInput, UnknownName
from duck.models import MODELS, build

NAMES = ["allcnn", "convnet", "resnet18", "resnet34", "resnet50", "vit-b16"]

OWN = """
from torch import nn

def both(num_classes, shape):
    return nn.Linear(shape[0] * shape[1] * shape[2], num_classes)

def classes_only(num_classes=7):
    return nn.Linear(2, num_classes)

def neither():
    return nn.Linear(2, 3)

def options(**options):
    assert "shape" not in options
    return nn.Linear(2, options["num_classes"])

def positional(num_classes=5, /):
    return nn.Linear(2, num_classes)

def wants_width(num_classes, width):
    return nn.Linear(width, num_classes)

def wrong():
    return "no model"

def breaks(num_classes):
    raise RuntimeError("disk on fire")

class Net(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(4, num_classes)

not_callable = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that lies in the working folder and nowhere on the path."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_needy.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / f"{name}_broken.py").write_text("def oops(:\n")
    monkeypatch.chdir(tmp_path)
    return name


def weights_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_table_holds_every_family() -> None:
    assert sorted(MODELS) == NAMES


@pytest.mark.parametrize("name", ["allcnn", "convnet", "resnet18"])
def test_same_seed_same_weights_and_another_seed_others(name: str) -> None:
    first, again, other = (build(name, 4, (1, 8, 8), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(weights_of(first), weights_of(again))
    assert not torch.equal(weights_of(first), weights_of(other))


def test_a_seed_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build("convnet", 4, (1, 8, 8), seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_generator_decides() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first, second = build("convnet", 4, (1, 8, 8)), build("convnet", 4, (1, 8, 8))
    assert torch.equal(weights_of(first), weights_of(build("convnet", 4, (1, 8, 8), seed=3)))
    assert not torch.equal(weights_of(first), weights_of(second))


def test_models_are_made_on_the_cpu_whatever_the_default_device() -> None:
    with torch.device("meta"):
        model = build("convnet", 4, (1, 8, 8))
    assert {p.device.type for p in model.parameters()} == {"cpu"}


def test_an_unknown_name_is_answered_from_the_table() -> None:
    with pytest.raises(UnknownName, match=r"'resnet81'\. Did you mean 'resnet18'"):
        build("resnet81", 10, (3, 32, 32))


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8, 1), (0, 8, 8)])
def test_a_shape_that_is_none_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"\(channels, height, width\), got"):
        build("convnet", 10, shape)


def test_no_classes_are_refused() -> None:
    with pytest.raises(BadInput, match="num_classes=0"):
        build("convnet", 0, (1, 8, 8))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        ("both", (6, 12)),
        ("classes_only", (6, 2)),
        ("neither", (3, 2)),
        ("options", (6, 2)),
        ("positional", (5, 2)),
        ("Net", (6, 4)),
    ],
)
def test_an_own_builder_gets_what_it_takes_by_name(
    own: str, function: str, shape: tuple[int, int]
) -> None:
    model = build(f"{own}:{function}", 6, (3, 2, 2))
    assert isinstance(model, nn.Linear)
    assert model.weight.shape == shape


def test_an_own_builder_is_seeded_too(own: str) -> None:
    first, again = (build(f"{own}:both", 6, (3, 2, 2), seed=5) for _ in range(2))
    assert torch.equal(weights_of(first), weights_of(again))


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (":bot", "has no function 'bot'. Did you mean 'both'?"),
        (":not_callable", "has no function 'not_callable'"),
        (":", "write it as package.module:function"),
        (":wrong", "returned a str; .* a torch.nn.Module"),
        (":wants_width", "missing a required argument: 'width'. .*num_classes and shape"),
        (":breaks", "RuntimeError: disk on fire"),
        ("_absent:build", "or run from the folder"),
        (".inner.deep:build", "No module named 'own_.*inner'"),
        ("_needy:build", "No module named 'a_package_that_is_not_there'"),
        ("_broken:build", "SyntaxError"),
    ],
)
def test_an_own_builder_that_cannot_be_used_says_why(own: str, end: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build(f"{own}{end}", 6, (3, 2, 2))


def test_the_path_is_as_before_also_after_an_error(own: str) -> None:
    before = list(sys.path)
    build(f"{own}:both", 6, (3, 2, 2))
    with pytest.raises(BadInput, match="disk on fire"):
        build(f"{own}:breaks", 6, (3, 2, 2))
    assert sys.path == before
