"""The training loop: schedules, masks, stopping, divergence, resuming, several processes."""

import copy
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.data.examples import examples
from duck.errors import BadInput, Diverged, OutOfMemory
from duck.predict import accuracy
from duck.runtime import global_seed, seeded
from duck.training import loop as loop_module
from duck.training.batching import JoinedBatches, ShuffledPass, Step
from duck.types import Progress, Recipe
from tests.toys import RECIPE, toy_data, toy_net, trained_net

SHORT = Recipe(epochs=3, batch_size=32, lr=0.05, schedule="one-cycle", augment="crop-flip")


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def plain_loss(net: nn.Module, step: Step) -> Tensor:
    return cross_entropy(net(step["train"].images), step["train"].labels)


def passes(size: int = 32) -> ShuffledPass:
    return ShuffledPass("train", toy_data().train, size)


def test_training_learns() -> None:
    assert accuracy(trained_net(), toy_data().test) > 0.95  # type: ignore[arg-type]


def test_no_gradients_are_left_behind() -> None:
    """On a GPU they would hold the memory of the recorded steps."""
    net = toy_net()
    loop_module.fit(net, passes(), plain_loss, replace(SHORT, epochs=1), seeded(0))
    assert [name for name, weight in net.named_parameters() if weight.grad is not None] == []


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe(schedule="constant"), [1, 1, 1, 1, 1]),
        (Recipe(schedule="cosine"), [1, 0.8535534, 0.5, 0.1464466, 0]),
        (Recipe(schedule="one-cycle", warmup=0.4), [0.5, 1, 0.8333333, 0.4166667, 0]),
        (Recipe(schedule="step", milestones=(2, 4), gamma=0.1), [1, 1, 0.1, 0.1, 0.01]),
    ],
)
def test_schedules(recipe: Recipe, expected: list[float]) -> None:
    assert [loop_module.rate(recipe, step, 5, epoch=step) for step in range(5)] == pytest.approx(
        expected, abs=1e-6
    )


def test_sgd_follows_the_textbook() -> None:
    model = nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 2.0)

    def loss(net: nn.Module, step: Step) -> Tensor:
        return 3 * net.weight.sum()  # type: ignore[operator]

    recipe = Recipe(
        epochs=1, batch_size=120, lr=0.1, momentum=0.5, weight_decay=0.01, schedule="constant"
    )
    loop_module.fit(model, passes(120), loss, recipe, seeded(0))
    first = 3 + 0.01 * 2.0
    weight = 2.0 - 0.1 * first
    weight -= 0.1 * (0.5 * first + 3 + 0.01 * weight)
    assert model.weight.item() == pytest.approx(weight, rel=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_masked_weights_hold_under_decay_and_momentum(optimizer: str) -> None:
    model = toy_net()
    before = weights(model)
    free = {
        name: torch.rand(value.shape, generator=seeded(1)) < 0.5
        for name, value in model.named_parameters()
    }
    recipe = replace(SHORT, optimizer=optimizer, weight_decay=0.1, augment="none")  # type: ignore[arg-type]
    loop_module.fit(model, passes(), plain_loss, recipe, seeded(0), masks=free)
    for name, value in model.named_parameters():
        assert torch.equal(value[~free[name]], before[name][~free[name]])
        assert not torch.equal(value[free[name]], before[name][free[name]])


def test_a_mask_for_no_parameter_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"heads\.weight"):
        loop_module.fit(
            toy_net(),
            passes(),
            plain_loss,
            SHORT,
            seeded(0),
            masks={"heads.weight": torch.ones(1, dtype=torch.bool)},
        )


def test_stop_is_asked_after_each_epoch_or_every_few_steps() -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 2

    assert (
        loop_module.fit(
            toy_net(), passes(60), plain_loss, replace(SHORT, epochs=5), seeded(0), stop=stop
        )
        == 2
    )
    asked.clear()
    assert (
        loop_module.fit(
            toy_net(),
            passes(60),
            plain_loss,
            replace(SHORT, epochs=5),
            seeded(0),
            stop=stop,
            check_every=2,
        )
        == 1
    )
    asked.clear()
    steps: list[int] = []

    def counted(net: nn.Module, step: Step) -> Tensor:
        steps.append(1)
        return plain_loss(net, step)

    loop_module.fit(
        toy_net(),
        passes(60),
        counted,
        replace(SHORT, epochs=5),
        seeded(0),
        stop=stop,
        check_every=1,
    )
    assert len(steps) == 2


def test_a_diverged_loss_says_where_and_keeps_the_weights_from_before() -> None:
    model, calls = toy_net().eval(), []

    def loss(net: nn.Module, step: Step) -> Tensor:
        calls.append(1)
        return plain_loss(net, step) * (float("nan") if len(calls) == 11 else 1.0)

    after_first: dict[str, Tensor] = {}

    def remember(news: Progress) -> None:
        if news.is_epoch_end:
            after_first.update(weights(news.model))

    with pytest.raises(Diverged, match=r"step 3 of epoch 2.*\(now 0.05\)"):
        loop_module.fit(model, passes(), loss, SHORT, seeded(0), report=remember)
    assert len(passes()) == 8
    assert_same(weights(model), after_first)
    assert not any(module.training for module in model.modules())
    assert [name for name, weight in model.named_parameters() if weight.grad is not None] == []


def test_weights_and_images_that_are_no_numbers_are_named() -> None:
    broken = toy_net()
    with torch.no_grad():
        next(broken.parameters()).view(-1)[0] = float("nan")
    name = next(iter(dict(broken.named_parameters())))
    with pytest.raises(BadInput, match=f"NaN.*'{re.escape(name)}'"):
        loop_module.fit(broken, passes(), plain_loss, SHORT, seeded(0))
    images = torch.rand(60, 1, 8, 8)
    images[7, 0, 3, 3] = float("nan")
    data = examples(images, torch.arange(60) % 4, np.arange(60).astype(str), None)
    with pytest.raises(BadInput, match=r"Images of the train samples .*NaN .* sample 7 "):
        loop_module.train(toy_net(), data, SHORT, seeded(0))


def test_a_frozen_model_says_what_to_do() -> None:
    with pytest.raises(
        BadInput,
        match=r"All parameters are frozen",
    ):
        loop_module.fit(toy_net().requires_grad_(False), passes(), plain_loss, SHORT, seeded(0))


def test_on_the_cpu_no_other_device_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not put back must not be touched."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    with global_seed(seeded(0), torch.device("cpu")):
        first = torch.rand(3)
    with global_seed(seeded(0), torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert seeds == []


def test_out_of_memory_says_what_to_lower() -> None:
    def loss(net: nn.Module, step: Step) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(OutOfMemory, match=r"Lower the batch size \(now 32\)"):
        loop_module.fit(toy_net(), passes(), loss, SHORT, seeded(0))


@pytest.mark.parametrize(
    ("field", "value"),
    [("epochs", 0), ("batch_size", 0), ("lr", -1.0), ("lr", float("nan")), ("warmup", 1.0)],
)
def test_impossible_recipes(field: str, value: float) -> None:
    with pytest.raises(BadInput, match=f"{field} .*got"):
        loop_module.train(toy_net(), toy_data().train, replace(SHORT, **{field: value}), seeded(0))  # type: ignore[arg-type]


def test_progress_ends_each_epoch_and_modes_are_put_back() -> None:
    heard: list[Progress] = []
    model = toy_net().eval()
    model.head.train()
    loop_module.train(model, toy_data().train, SHORT, seeded(0), heard.append)
    epoch_ends = [news for news in heard if news.is_epoch_end]
    assert [news.epoch for news in epoch_ends] == [1, 2, 3]
    assert epoch_ends[-1].loss < epoch_ends[0].loss
    assert model.head.training
    assert not model.blocks.training


def test_a_joined_epoch_is_one_pass_over_retain_while_forget_cycles() -> None:
    data = toy_data().train
    forget, retain = data.take(torch.arange(10)), data.take(torch.arange(10, 70))
    steps = list(JoinedBatches(forget, retain, forget_size=4, retain_size=20).epoch(seeded(0)))
    assert sorted(torch.cat([step["retain"].rows for step in steps]).tolist()) == list(range(60))
    assert set(torch.cat([step["forget"].rows for step in steps]).tolist()) == set(range(10))


class Killed(Exception):
    pass


def test_resuming_after_a_break_gives_the_same_weights(tmp_path: Path) -> None:
    whole = toy_net()
    loop_module.train(whole, toy_data().train, SHORT, seeded(0))

    def kill(news: Progress) -> None:
        if news.is_epoch_end and news.epoch == 2:
            raise Killed

    file = tmp_path / "checkpoint.pt"
    with pytest.raises(Killed):
        loop_module.train(toy_net(), toy_data().train, SHORT, seeded(0), kill, file)
    assert torch.load(file, weights_only=True)["epoch"] == 1
    resumed, heard = toy_net(seed=9), []
    loop_module.train(
        resumed, toy_data().train, SHORT, seeded(5), lambda news: heard.append(news.epoch), file
    )
    assert min(heard) == 2
    assert_same(weights(whole), weights(resumed))


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(b"half")
    with pytest.raises(BadInput, match=r"checkpoint\.pt cannot be read"):
        loop_module.train(toy_net(), toy_data().train, SHORT, seeded(0), checkpoint=file)


def test_compiled_training_is_plain_training() -> None:
    plain, compiled = toy_net(dropout=0.0), toy_net(dropout=0.0)
    recipe = replace(SHORT, epochs=1, precision="float32")
    loop_module.train(plain, toy_data().train, recipe, seeded(0))
    torch.compiler.reset()
    real = torch.compile
    backend = {"backend": "aot_eager"}
    torch.compile = lambda model, **options: real(model, **options, **backend)  # type: ignore[assignment, call-overload]
    loop_module.train(compiled, toy_data().train, replace(recipe, compile=True), seeded(0))
    torch.compile = real
    for name, value in weights(plain).items():
        torch.testing.assert_close(weights(compiled)[name], value, rtol=1e-4, atol=1e-5)


PROCESSES = """
    import sys, torch
    from torch import nn
    from duck.training import loop as loop_module
    from duck.runtime import distributed, is_first, seeded
    from tests.training.test_loop import SHORT, Plain
    from tests.toys import toy_data
    with distributed("cpu"):
        model = Plain()
        loop_module.train(model, toy_data().train, SHORT, seeded(0))
        if is_first():
            torch.save(model.state_dict(), sys.argv[1])
"""


class Plain(nn.Module):
    """No BatchNorm: its statistics are each process's own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 4)
        torch.nn.init.constant_(self.head.weight, 0.01)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    script, result = tmp_path / "script.py", tmp_path / "weights.pt"
    script.write_text(textwrap.dedent(PROCESSES))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
        str(result),
    ]
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    alone = Plain()
    loop_module.train(alone, toy_data().train, SHORT, seeded(0))
    for name, value in torch.load(result, weights_only=True).items():
        torch.testing.assert_close(value, alone.state_dict()[name], rtol=1e-4, atol=1e-6)
    assert not torch.equal(alone.head.weight, Plain().head.weight)


def test_bfloat16_autocast_is_used_when_asked() -> None:
    seen: set[torch.dtype] = set()

    def loss(net: nn.Module, step: Step) -> Tensor:
        logits = net(step["train"].images)
        seen.add(logits.dtype)
        return cross_entropy(logits.float(), step["train"].labels)

    for precision in ("float32", "bfloat16"):
        loop_module.fit(
            toy_net(), passes(), loss, replace(SHORT, epochs=1, precision=precision), seeded(0)
        )
    assert seen == {torch.float32, torch.bfloat16}


def test_label_smoothing_reaches_the_loss() -> None:
    losses = []
    for smoothing in (0.0, 0.5):
        recipe = replace(RECIPE, epochs=1, lr=0.0, label_smoothing=smoothing)
        loop_module.train(
            copy.deepcopy(trained_net()),
            toy_data().train,
            recipe,
            seeded(0),
            lambda news: losses.append(news.loss),
        )
    assert losses[-1] > losses[0] + 0.2


def test_fused_sgd_takes_a_parameter_whose_first_gradient_comes_later() -> None:
    def weights_of(fused: bool) -> list[Tensor]:
        early, late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD(
            [early, late], lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True, fused=fused
        )
        if fused:
            loop_module.add_momentum_buffers(optimizer)
        for step in range(4):
            optimizer.zero_grad()
            loss = early.square().sum() + (late.square().sum() if step > 1 else 0)
            loss.backward()
            optimizer.step()
        return [early.detach(), late.detach()]

    for fused, plain in zip(weights_of(True), weights_of(False), strict=True):
        torch.testing.assert_close(fused, plain)
