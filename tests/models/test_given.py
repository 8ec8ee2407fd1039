"""Models as users have them: what cannot be used is said with what to do, what can be used
works."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import duck
from duck import cli
from duck.errors import BadInput
from duck.models import build
from duck.predict import accuracy
from tests.toys import toy_data, toy_net, trained_net

DATA = toy_data()


def forget(model: Any, **options: Any) -> Any:
    return duck.forget(model, DATA, **{"forget": duck.ForgetClasses([1]), **options})


class KeywordOnly(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or trained_net()

    def forward(self, *, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.inner(pixel_values)}


class Unnamed(KeywordOnly):
    def forward(self, *, first: Tensor, second: Tensor) -> Any:  # type: ignore[override]
        return self.inner(first)


class MoreKeywords(KeywordOnly):
    def forward(self, *, images: Tensor | None = None, **options: Any) -> Any:
        return self.inner(images)


class AnyKeywords(KeywordOnly):
    def forward(self, **inputs: Tensor) -> Any:  # type: ignore[override]
        return self.inner(inputs["picture"])


class TwoInputs(KeywordOnly):
    def forward(self, images: Tensor, mask: Tensor) -> Any:  # type: ignore[override]
        return self.inner(images * mask)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("model.pt", r"type str\. Build the model.*--weights"),
        (Path("model.pt"), r"Path\. Build the model.*--weights"),
        (trained_net().state_dict(), r"Dict\. Build the model, .*load_state_dict"),
        (type(trained_net()), r"type type\. Build the model"),
        (lambda images: images, r"type function\. Build the model"),
        ("jit", r"TorchScript.*give the nn\.Module"),
        (nn.DataParallel(trained_net()), r"DataParallel.*model\.module"),
        (Unnamed(), r"first: .*second: .*forward\(self, images\)"),
        (AnyKeywords(), r"forward\(self, images\)"),
        (TwoInputs(), r"'?mask'?.*forward\(self, images\)"),
    ],
    ids=[
        "text",
        "path",
        "state dict",
        "class",
        "function",
        "jit",
        "DataParallel",
        "unnamed",
        "any keywords",
        "two inputs",
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_is_not_a_model_that_can_be_used(model: Any, problem: str) -> None:
    if model == "jit":
        model = torch.jit.trace(trained_net(), torch.rand(5, 1, 8, 8))
    with pytest.raises(BadInput, match=problem):
        forget(model)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_must_be_on(off: Any) -> None:
    with off(), pytest.raises(BadInput, match=r"no_grad.*outside"):
        forget(trained_net())
    with off(), pytest.raises(BadInput, match=r"no_grad.*outside"):
        duck.train(toy_net, DATA, recipe=duck.Recipe(epochs=1), device="cpu")


@pytest.mark.parametrize("method", ["duck", "finetune", "retrained"])
def test_keyword_only_forwards_work_and_come_back_as_they_are(method: str) -> None:
    model = KeywordOnly()
    hooks = len(model._forward_pre_hooks)
    recipe = duck.Recipe(epochs=8, batch_size=32)
    result = forget(model, method=method, new_model=lambda: KeywordOnly(toy_net(1)), recipe=recipe)
    assert result.scores.retain > 0.9
    assert duck.audit(result).tier == "quick"
    for net in (model, result.model):
        assert isinstance(net, KeywordOnly)
        assert len(net._forward_pre_hooks) == hooks
        assert net(pixel_values=torch.zeros(2, 1, 8, 8))["logits"].shape == (2, 4)
        with pytest.raises(TypeError):
            net(torch.zeros(2, 1, 8, 8))


def test_the_image_is_known_by_its_name() -> None:
    assert forget(MoreKeywords(), method="original").scores.retain > 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_computed_in_float32(dtype: torch.dtype) -> None:
    model = trained_net().to(dtype)
    before = copy.deepcopy(model.state_dict())
    result = forget(model)
    assert {weight.dtype for weight in result.model.parameters()} == {dtype}
    assert {name: value.dtype for name, value in result.model.state_dict().items()} == {
        name: value.dtype for name, value in before.items()
    }
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # The scores are those of the weights that are returned.
    in_float32 = copy.deepcopy(result.model).float()
    assert accuracy(in_float32, DATA.train.take(result.scenario.retain)) == result.scores.retain
    assert (
        accuracy(in_float32, DATA.train.take(result.scenario.forget)) == result.scores.forget < 0.1
    )
    assert result.scores.retain > 0.9
    assert duck.audit(result).tier == "quick"


def test_half_precision_samples_go_with_them() -> None:
    batch = next(DATA.train.batches(240))
    train = TensorDataset(batch.images.bfloat16(), batch.labels)
    retain = duck.forget(trained_net().bfloat16(), train, duck.ForgetClasses([1])).scores.retain
    assert retain is not None
    assert retain > 0.9


RECIPE = duck.Recipe(epochs=12, batch_size=32, lr=0.05, schedule="cosine")


def test_training_takes_such_models_too() -> None:
    half = duck.train(lambda: toy_net(1).bfloat16(), DATA, recipe=RECIPE, device="cpu")
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert accuracy(half.float(), DATA.train) > 0.9
    by_keyword = duck.train(lambda: KeywordOnly(toy_net(1)), DATA, recipe=RECIPE, device="cpu")
    assert len(by_keyword._forward_pre_hooks) == 0
    assert accuracy(by_keyword.get_submodule("inner"), DATA.train) > 0.9


def test_training_refuses_probabilities_and_wrappers() -> None:
    with pytest.raises(BadInput, match=r"probabilities.*logits"):
        duck.train(
            lambda: nn.Sequential(toy_net(1), nn.Softmax(1)), DATA, recipe=RECIPE, device="cpu"
        )
    with pytest.raises(BadInput, match=r"DataParallel.*model\.module"):
        duck.train(lambda: nn.DataParallel(toy_net(1)), DATA, recipe=RECIPE, device="cpu")


@pytest.mark.parametrize("head", ["first", ""])
def test_a_head_that_takes_the_image_is_refused(head: str) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(64, 12), nn.Linear(12, 4)

        def forward(self, images: Tensor) -> Any:
            return self.out(torch.relu(self.first(images.flatten(1))))

    with pytest.raises(BadInput, match=r"image itself.*last layer"):
        forget(Flat(), head=head)
    assert forget(Flat(), head="out").scenario.kind == "class"


# What the command line does with a builder


MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.first, self.out = nn.Linear(64, 16), nn.Linear(16, num_classes)

    def forward(self, *, pixel_values):
        return self.out(torch.relu(self.first(pixel_values.flatten(1))))

def keywords(num_classes):
    return Net(num_classes)

def half(num_classes):
    layers = nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, num_classes)
    return nn.Sequential(*layers).bfloat16()
"""


@pytest.mark.parametrize("builder", ["keywords", "half"])
def test_builders_of_such_models_work(
    builder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "given_nets", raising=False)
    (tmp_path / "given_nets.py").write_text(MODULE)
    model = build(f"given_nets:{builder}", 10, (1, 8, 8), seed=0)
    torch.save(model.state_dict(), "weights.pt")
    own = ["--model", f"given_nets:{builder}", "--weights", "weights.pt", "--data", "digits"]
    assert cli.main(
        ["forget", *own, "--classes", "3", "--method", "finetune", "--out", "forgot"]
    ) in (0, 1)
    dtypes = {value.dtype for value in load_file("forgot/model.safetensors").values()}
    assert dtypes == {torch.bfloat16 if builder == "half" else torch.float32}
    assert cli.main(["audit", "forgot", "--original", "weights.pt", "--trust-model-code"]) in (
        0,
        1,
        3,
    )
