"""The head of any model, and the embedding that goes into it."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from duck.errors import BadInput
from duck.models import build
from duck.models.head import (
    Head,
    WithEmbedding,
    compute_logits,
    find_head,
    logits_of,
    with_embeddings,
)

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Nested(nn.Module):
    """Functional forward; the head comes first among the children and an unused Linear of its width
    last."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"second": nn.Linear(16, 10)})
        self.out = nn.ModuleDict({"head": nn.Linear(10, classes)})
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.5)
        self.unused = nn.Linear(10, classes)

    def features(self, images: Tensor) -> Tensor:
        x = torch.flatten(F.adaptive_avg_pool2d(F.relu(self.norm(self.first(images))), 1), 1)
        return F.relu(self.drop(self.body["second"](x)))

    def forward(self, images: Tensor) -> Any:
        return self.out["head"](self.features(images))


class AuxiliaryAfterHead(Nested):
    """Another Linear of the same width runs after the head; its output is a side product."""

    def forward(self, images: Tensor) -> Any:
        z = self.features(images)
        logits = self.out["head"](z)
        return logits, self.unused(z)


class LogSoftmax(AuxiliaryAfterHead):
    def forward(self, images: Tensor) -> Any:
        return F.log_softmax(super().forward(images)[0], 1)


class Temperature(AuxiliaryAfterHead):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images)[0] / 3


class Negated(AuxiliaryAfterHead):
    """Distances, the smallest of which wins."""

    def forward(self, images: Tensor) -> Any:
        return -super().forward(images)[0]


class Averaged(Nested):
    """No layer gives the logits: the last one of their width is taken."""

    def forward(self, images: Tensor) -> Any:
        z = self.features(images)
        return self.out["head"](z) + self.unused(z)


class AveragedViews(Nested):
    """The head runs before and after another layer of its width: the later call counts."""

    def forward(self, images: Tensor) -> Any:
        z, mirrored = self.features(images), self.features(images.flip(3))
        return self.out["head"](z) + self.unused(z) + self.out["head"](mirrored)


class ByKeyword(Nested):
    def forward(self, images: Tensor) -> Any:
        return self.out["head"](input=self.features(images))


class HalfPrecision(AuxiliaryAfterHead):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images)[0].half()


class ScaledAfterHead(AuxiliaryAfterHead):
    """What runs after the head ranks the classes exactly as the head does."""

    def __init__(self) -> None:
        super().__init__()
        self.unused.load_state_dict(
            {name: 2 * tensor for name, tensor in self.out["head"].state_dict().items()}
        )


class CalledTwice(Nested):
    """Two views, one head: the second call gives the logits."""

    def forward(self, images: Tensor) -> Any:
        self.out["head"](self.features(images.flip(3)))
        return self.out["head"](self.features(images))


class TiedHead(nn.Module):
    """Two Linear modules share a weight; the second is the head."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 192)
        self.encoder = nn.Linear(192, 192)
        self.head.weight = self.encoder.weight

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.encoder(images.flatten(1))))
        return logits


class ConvHead(nn.Module):
    """A 1x1 convolution as head, before or after the pooling."""

    def __init__(self, pool_first: bool, flatten: bool = True) -> None:
        super().__init__()
        self.pool_first, self.flatten = pool_first, flatten
        self.head = nn.Conv2d(10, 4, 1)
        self.body = nn.Conv2d(3, 10, 3)
        self.squeeze = nn.Conv2d(10, 10, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.squeeze(F.relu(self.body(images))))
        if self.pool_first:
            maps: Tensor = self.head(F.adaptive_avg_pool2d(x, 1))
        else:
            maps = F.adaptive_avg_pool2d(self.head(x), 1)
        return maps.flatten(1) if self.flatten else maps


class TokenHead(nn.Module):
    """The head is applied to every token (the columns of the image)."""

    def __init__(self, take: str) -> None:
        super().__init__()
        self.take = take
        self.body = nn.Linear(24, 10)
        self.head = nn.Linear(10, 4)

    def tokens(self, images: Tensor) -> Tensor:
        return torch.tanh(self.body(images.flatten(1, 2).transpose(1, 2)))

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.tokens(images))
        picked = {
            "first": outputs[:, 0],
            "last": outputs[:, -1],
            "mean": outputs.mean(1),
            "max": outputs.amax(1),
            "third": outputs[:, 2],
        }
        return picked[self.take]


class Functional(nn.Module):
    """The head is no module at all."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(192, 10)
        self.weight = nn.Parameter(torch.randn(4, 10))

    def forward(self, images: Tensor) -> Tensor:
        return F.linear(self.body(images.flatten(1)), self.weight)


class Counter(Nested):
    """Counts its calls, draws noise and overrides train: all of which a probe must leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last = nn.Buffer(torch.zeros(())), nn.Buffer(torch.zeros(()))
        self.switched = 0

    def train(self, mode: bool = True) -> "Counter":
        self.switched += 1
        return super().train(mode)

    def forward(self, images: Tensor) -> Any:
        self.calls.add_(1)
        self.last = nn.Buffer(self.calls + 1)
        F.batch_norm(images, torch.zeros(3), torch.ones(3), training=True)
        return super().forward(images + 0.1 * torch.randn_like(images))


def hooks_of(model: nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def two_layer() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(192, 10),
        nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 4)),
    )


@pytest.mark.parametrize(
    "output",
    [
        lambda x: x,
        lambda x: SimpleNamespace(logits=x),
        lambda x: {"logits": x},
        lambda x: (x, 3),
        lambda x: [x],
    ],
)
def test_logits_in_every_kind_of_output(output: Any) -> None:
    logits = torch.randn(2, 3)
    assert logits_of(output(logits)) is logits


def test_logits_with_a_trailing_pixel_are_flattened() -> None:
    assert logits_of(torch.randn(2, 3, 1, 1)).shape == (2, 3)
    assert logits_of(torch.randn(0, 3, 1, 1)).shape == (0, 3)


@pytest.mark.parametrize(
    "output",
    [
        None,
        (),
        {"scores": torch.zeros(2, 3)},
        SimpleNamespace(logits=None),
        ("a", torch.zeros(2, 3)),
    ],
)
def test_an_output_without_logits(output: object) -> None:
    with pytest.raises(BadInput, match="No logits in"):
        logits_of(output)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (2, 3, 1, 2)])
def test_logits_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=re.escape(f"shape {shape}; expected (samples, classes)")):
        logits_of(torch.zeros(shape))


HEADS = [
    (Nested, "out.head"),
    (AuxiliaryAfterHead, "out.head"),
    (LogSoftmax, "out.head"),
    (Temperature, "out.head"),
    (Negated, "out.head"),
    (Averaged, "unused"),
    (AveragedViews, "out.head"),
    (ByKeyword, "out.head"),
    (HalfPrecision, "out.head"),
    (ScaledAfterHead, "out.head"),
    (CalledTwice, "out.head"),
    (Counter, "out.head"),
    (TiedHead, "head"),
    (lambda: ConvHead(pool_first=True), "head"),
    (lambda: ConvHead(pool_first=False), "head"),
    (lambda: ConvHead(pool_first=True, flatten=False), "head"),
    (lambda: TokenHead("first"), "head"),
    (lambda: TokenHead("last"), "head"),
    (lambda: TokenHead("mean"), "head"),
    (
        lambda: nn.Sequential(
            nn.Flatten(2),
            nn.Conv1d(3, 5, 3),
            nn.Conv1d(5, 4, 1),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        ),
        "2",
    ),
    (two_layer, "2.2"),
    (lambda: build("convnet", 4, (3, 8, 8)), "head"),
    (lambda: build("allcnn", 4, (3, 8, 8)), "head.2"),
    (lambda: build("resnet18", 4, (3, 8, 8)), "head"),
    (lambda: build("resnet50", 4, (3, 8, 8)), "head"),
    (
        lambda: nn.Sequential(
            nn.Flatten(), nn.LazyLinear(10), nn.LazyBatchNorm1d(), nn.LazyLinear(4)
        ),
        "3",
    ),
]


# Those whose logits are not what the head gives, or not twice the same.
CHANGED = (LogSoftmax, Temperature, Negated, Averaged, AveragedViews, HalfPrecision, Counter)


@pytest.mark.parametrize(("make", "head"), HEADS)
def test_the_head_is_found(make: Any, head: str) -> None:
    assert find_head(make(), IMAGES).name == head


def test_objects_with_logits_have_a_head_too() -> None:
    class Output(Nested):
        def forward(self, images: Tensor) -> Any:
            return SimpleNamespace(loss=None, logits=super().forward(images))

    assert find_head(Output(), IMAGES).name == "out.head"


def test_a_model_that_is_a_single_linear() -> None:
    model, vectors = nn.Linear(7, 3), torch.randn(5, 7)
    with with_embeddings(model, find_head(model, vectors).name, vectors) as net:
        assert torch.equal(net(vectors)[1], vectors)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_has_the_head_of_its_inside() -> None:
    model = Nested().eval()
    compiled: Any = torch.compile(model, backend="eager")
    compiled(IMAGES)
    with with_embeddings(compiled, None, IMAGES) as net:
        assert net.head.name == "out.head"
        assert torch.equal(net(IMAGES)[1], model.features(IMAGES))


def test_a_model_compiled_in_place_is_refused() -> None:
    model = Nested()
    model.compile(backend="eager")
    with pytest.raises(BadInput, match="the model before compiling"):
        find_head(model, IMAGES)


def test_no_head_found_lists_the_candidates() -> None:
    with pytest.raises(BadInput, match=r"the 4 logits; .*Candidates: body\."):
        find_head(Functional(), IMAGES)


def test_a_wider_convolution_is_no_head() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(BadInput, match="the 4 logits"):
        find_head(model, IMAGES)


def test_tokens_under_a_temperature() -> None:
    class Warm(TokenHead):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) / 2

    assert find_head(Warm("last"), IMAGES) == Head("head", "last token")
    assert find_head(Warm("last"), IMAGES, "head") == Head("head", "last token")


def test_no_candidates_at_all() -> None:
    with pytest.raises(BadInput, match="Candidates: none"):
        find_head(nn.Flatten(), IMAGES)


@pytest.mark.parametrize("take", ["max", "third"])
def test_tokens_that_fit_no_logits_are_an_error(take: str) -> None:
    with pytest.raises(BadInput, match=r"'head' .*\(6, 8, 10\) .*\(6, 8, 4\)"):
        find_head(TokenHead(take), IMAGES)


def test_a_wrong_name_is_answered_with_the_right_one() -> None:
    with pytest.raises(BadInput, match=r"'out\.haed' .* mean 'out\.head'"):
        find_head(Nested(), IMAGES, "out.haed")


def test_a_named_head_that_never_runs() -> None:
    with pytest.raises(BadInput, match="'unused' does not run"):
        find_head(Nested(), IMAGES, "unused")


class FeaturesFirst(Nested):
    """What a user may think of, and what is taken for logits of ten classes."""

    def forward(self, images: Tensor) -> Any:
        z = self.features(images)
        return z, self.out["head"](z)


def test_a_head_that_gives_another_element_of_a_tuple_is_refused() -> None:
    with pytest.raises(
        BadInput,
        match=r"'out\.head' has 4 outputs .* 10 logits\. .*a tuple, .*first",
    ):
        find_head(FeaturesFirst(), IMAGES, "out.head")
    assert find_head(AuxiliaryAfterHead(), IMAGES, "body.second").name == "body.second"


def test_a_model_that_is_asked_only_for_its_outputs_stays_as_it_was() -> None:
    model = Counter().train()
    before, state = snapshot(model), torch.get_rng_state()
    assert compute_logits(model, IMAGES).shape == (6, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("in_place", [True, False])
def test_outputs_of_a_compiled_model(in_place: bool) -> None:
    model = Nested()
    if in_place:
        model.compile(backend="eager")
    compiled: Any = model if in_place else torch.compile(model, backend="eager")
    assert compute_logits(compiled, IMAGES).shape == (6, 4)


def test_a_failure_of_the_device_is_no_fault_of_the_input() -> None:
    class Full(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        compute_logits(Full(), IMAGES)


def test_a_named_head_may_be_any_module() -> None:
    model = two_layer()
    with with_embeddings(model, "2", IMAGES) as net:
        assert torch.equal(net(IMAGES)[1], model[1](IMAGES.flatten(1)))  # type: ignore[index]


def test_a_named_head_that_pools_by_itself_averages_maps_over_space() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(5, 4))
    )
    with with_embeddings(model, "1", IMAGES) as net:
        assert torch.allclose(net(IMAGES)[1], model[0](IMAGES).mean((2, 3)), atol=1e-6)


def test_a_named_head_that_mixes_tokens_by_itself_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(2), nn.Sequential(nn.Flatten(), nn.Linear(192, 4)))
    with pytest.raises(BadInput, match=r"shape \(6, 3, 64\) .* shape \(6, 4\)"):
        find_head(model, IMAGES, "1")


def test_a_named_head_that_sees_other_rows_is_refused() -> None:
    model = nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (2, 96)),
        nn.Flatten(0, 1),
        nn.Linear(96, 10),
        nn.Unflatten(0, (6, 2)),
        nn.Flatten(),
        nn.Linear(20, 4),
    )
    assert find_head(model, IMAGES).name == "6"
    with pytest.raises(BadInput, match=r"'3' .*\(12, 96\)"):
        find_head(model, IMAGES, "3")


def test_a_probe_leaves_everything_as_it_was() -> None:
    model = Counter().train()
    model.norm.eval()
    model.out.eval()
    switched, modes = (
        model.switched,
        {name: module.training for name, module in model.named_modules()},
    )
    before, last, state = snapshot(model), model.last, torch.get_rng_state()
    find_head(model, IMAGES)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.last is last
    assert model.switched == switched
    assert torch.equal(torch.get_rng_state(), state)
    assert hooks_of(model) == 0
    assert torch.is_grad_enabled()


def test_a_probe_is_one_small_pass_in_evaluation_mode() -> None:
    seen: list[tuple[bool, int]] = []
    model = Nested().train()
    model.drop.register_forward_hook(
        lambda module, _, output: seen.append((module.training, len(output)))
    )
    find_head(model, IMAGES.repeat(10, 1, 1, 1))
    assert seen == [(False, 8)]


def test_a_failed_probe_leaves_everything_as_it_was() -> None:
    model = Nested().train()
    state = torch.get_rng_state()
    with pytest.raises(
        BadInput,
        match=r"float32 .*\(6, 2, 8, 8\), .*3 channels",
    ):
        find_head(model, IMAGES[:, :2])
    assert hooks_of(model) == 0
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("make", "head"), [case for case in HEADS if case[0] not in CHANGED])
def test_the_head_turns_the_embedding_into_the_logits(make: Any, head: str) -> None:
    model = make().eval()
    with with_embeddings(model, None, IMAGES) as net:
        logits, embeddings = net(IMAGES)
    module = model.get_submodule(head)
    space = {nn.Conv1d: (1,), nn.Conv2d: (1, 1)}.get(type(module), ())
    again = module(embeddings.reshape(*embeddings.shape, *space)).flatten(1)
    assert embeddings.dim() == 2
    assert torch.equal(logits, logits_of(model(IMAGES)))
    assert torch.allclose(again, logits, atol=1e-5)


def test_the_embedding_by_hand() -> None:
    model = Nested().eval()
    with with_embeddings(model, None, IMAGES) as net:
        assert torch.equal(net(IMAGES)[1], model.features(IMAGES))


@pytest.mark.parametrize(
    ("take", "pool"), [("first", "first token"), ("last", "last token"), ("mean", "mean token")]
)
def test_token_embeddings_by_hand(take: str, pool: str) -> None:
    model = TokenHead(take)
    tokens = model.tokens(IMAGES)
    expected = {"first": tokens[:, 0], "last": tokens[:, -1], "mean": tokens.mean(1)}[take]
    with with_embeddings(model, None, IMAGES) as net:
        assert net.head == Head("head", pool)
        assert torch.allclose(net(IMAGES)[1], expected)


def test_gradients_flow_through_both_outputs() -> None:
    model = Nested().train()
    with with_embeddings(model, None, IMAGES) as net:
        net(IMAGES)[1].sum().backward()
        assert model.first.weight.grad is not None
        assert model.out["head"].weight.grad is None
        net(IMAGES)[0].sum().backward()
        assert model.out["head"].weight.grad is not None


def test_one_forward_pass_updates_batchnorm_once() -> None:
    model = Nested().train()
    with with_embeddings(model, None, IMAGES) as net:
        net(IMAGES)
    assert model.norm.num_batches_tracked == 1


def test_modes_and_state_are_those_of_the_model() -> None:
    model = Nested().eval()
    with with_embeddings(model, None, IMAGES) as net:
        assert not net.training
        net.train()
        assert model.drop.training
        assert net.state_dict().keys() == model.state_dict().keys()
        assert [id(p) for p in net.parameters()] == [id(p) for p in model.parameters()]
        other = Nested().state_dict()
        net.load_state_dict(other)
    assert all(torch.equal(tensor, other[name]) for name, tensor in model.state_dict().items())


def test_no_hook_stays_also_after_an_error() -> None:
    model = Nested()

    def failing() -> None:
        with with_embeddings(model, None, IMAGES) as net:
            assert hooks_of(model) == 1
            net(IMAGES[:, :2])

    with pytest.raises(RuntimeError, match="to have 3 channels"):
        failing()
    assert hooks_of(model) == 0


def test_nothing_is_stored_between_calls() -> None:
    model = Nested().eval()
    with with_embeddings(model, None, IMAGES) as net:
        net(IMAGES)
        model(IMAGES)
        assert net._recorder.input is None
        model.out["head"].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            net(IMAGES)
        assert net._recorder.input is None


def test_unwrap_gives_the_model_back() -> None:
    model = Nested()
    net = WithEmbedding(model, find_head(model, IMAGES))
    assert net.unwrap() is model
    assert hooks_of(model) == 0
    with pytest.raises(BadInput, match=r"'out\.head' did not run"):
        net(IMAGES)


def test_a_head_that_sees_other_rows_is_an_error() -> None:
    net = WithEmbedding(two_layer(), Head("1", "flat"))
    net.model[1].register_forward_pre_hook(lambda _, args: args[0].repeat(2, 1), prepend=True)  # type: ignore[index]
    net.model[2].register_forward_pre_hook(lambda _, args: args[0][:6])  # type: ignore[index]
    with pytest.raises(BadInput, match=r"\(12, 192\) for logits of shape \(6, 4\)"):
        net(IMAGES)


def test_a_copy_is_independent() -> None:
    model = Nested().eval()
    with with_embeddings(model, None, IMAGES) as net:
        twin = copy.deepcopy(net)
        nn.init.zeros_(twin.model.get_submodule("body.second").weight)  # type: ignore[arg-type]
        assert not torch.equal(twin(IMAGES)[1], net(IMAGES)[1])
        assert torch.equal(net(IMAGES)[1], model.features(IMAGES))
    assert hooks_of(twin.model) == 1
    assert hooks_of(twin.unwrap()) == 0


def test_a_copy_of_the_model_made_meanwhile_keeps_nothing() -> None:
    model = Nested().eval()
    with with_embeddings(model, None, IMAGES) as net:
        clone = copy.deepcopy(model)
        clone(IMAGES)
        hook: Any = next(iter(clone.get_submodule("out.head")._forward_pre_hooks.values()))
        assert hook.input is None
        assert torch.equal(net(IMAGES)[1], model.features(IMAGES))


@pytest.fixture
def fresh_compiler() -> None:
    """The compiler counts recompilations over all tests, and gives up at eight."""
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    "make", [Nested, lambda: ConvHead(pool_first=False, flatten=False), lambda: TokenHead("mean")]
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph(make: Any, backend: str) -> None:
    model = make().eval()
    with with_embeddings(model, None, IMAGES) as net:
        compiled = torch.compile(net, backend=backend, fullgraph=True)
        for images in (IMAGES, IMAGES + 1):
            logits, embeddings = compiled(images)
            expected = net(images)
            assert torch.allclose(logits, expected[0], atol=1e-5)
            assert torch.allclose(embeddings, expected[1], atol=1e-5)
        embeddings.sum().backward()
    # All but the head has a gradient.
    assert {name.split(".")[-2] for name, p in model.named_parameters() if p.grad is None} <= {
        "head",
        "unused",
    }
    assert hooks_of(model) == 0


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_wrappers_of_different_heads_do_not_share_a_graph() -> None:
    for head, width in (("2.2", 12), ("2.0", 10), ("2.2", 12)):
        with with_embeddings(two_layer(), head, IMAGES) as net:
            logits, embeddings = torch.compile(net, backend="eager", fullgraph=True)(IMAGES)
            assert embeddings.shape == (6, width)
            assert torch.equal(embeddings, net(IMAGES)[1])
            assert torch.equal(logits, net(IMAGES)[0])


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_wrapper_is_reused_for_another_model() -> None:
    count = CompileCounter()
    for _ in range(3):
        model = Nested().eval()
        with with_embeddings(model, None, IMAGES) as net:
            assert torch.equal(
                torch.compile(net, backend=count, fullgraph=True)(IMAGES)[1], model.features(IMAGES)
            )
    assert count.frame_count == 1


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_distributed_data_parallel() -> None:
    model = AuxiliaryAfterHead().train()
    model.drop.p = 0.0
    model.unused.requires_grad_(False)
    twin = copy.deepcopy(model)
    with with_embeddings(model, None, IMAGES) as net:
        parallel = DistributedDataParallel(net)
        for _ in range(2):
            logits, embeddings = parallel(IMAGES)
            (logits.square().sum() + embeddings.square().sum()).backward()
    for _ in range(2):
        z = twin.features(IMAGES)
        (twin.out["head"](z).square().sum() + z.square().sum()).backward()
    ours, theirs = ([p.grad for p in net.parameters() if p.requires_grad] for net in (model, twin))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(ours) == 8
