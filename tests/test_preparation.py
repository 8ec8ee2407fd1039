"""What is computed beforehand is found again by what it depends on, and by nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from duck.artifacts import ArtifactStore
from duck.data.examples import Pixels, examples
from duck.experiment import Training
from duck.files import CacheWarning
from duck.methods import METHODS, Original
from duck.methods.base import ForgetsBy, Kinds, clone
from duck.preparation import Preparations
from duck.scenarios import ForgetClasses
from duck.types import Recipe, Task
from duck.unlearning import unlearn
from tests.toys import class_scenario, head_of, toy_data, toy_task, trained_net

MADE: list[int] = []


@dataclass(frozen=True)
class Slow:
    """Counts how often it prepares."""

    paper: ClassVar[str] = "none"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "nothing"
    prepared_from: ClassVar[tuple[str, ...]] = ("power",)
    prepared_per_request: ClassVar[bool] = False
    power: int = 2
    alpha: float = field(default=1.0)

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        MADE.append(self.power)
        return {"powers": torch.arange(3.0) ** self.power}

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        assert task.prepared is not None
        assert task.prepared["powers"].tolist() == [0.0, 1.0, 2.0**self.power]
        return clone(model)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setitem(METHODS._entries, "slow", Slow)


def test_a_preparation_is_computed_once_for_an_original_and_timed_separately() -> None:
    cache, model = Preparations(), trained_net()
    outcomes = [
        unlearn(Slow(), model, ForgetClasses([label])(toy_data()), preparations=cache)
        for label in (0, 1)
    ]
    assert MADE == [2]
    assert outcomes[0].prepare_seconds == outcomes[1].prepare_seconds > 0
    unlearn(Slow(alpha=3.0), model, class_scenario(), preparations=cache)
    assert MADE == [2]


def test_other_settings_weights_or_data_make_it_again() -> None:
    cache, model, task = Preparations(), trained_net(), toy_task(class_scenario())
    cache(Slow(), model, task)
    cache(Slow(power=3), model, task)
    with torch.no_grad():
        head_of(model).bias[0] += 1
    cache(Slow(), model, task)
    fewer = toy_data().train.take(torch.arange(100))
    cache(Slow(), model, Task(fewer, fewer.take(torch.arange(50)), None, 4))
    assert MADE == [2, 3, 2, 2]


def test_other_pixels_or_another_normalisation_under_the_same_ids_make_it_again() -> None:
    cache, model, data = Preparations(), trained_net(), toy_data()
    train = data.train
    darker = examples(train.images // 2, train.labels, train.ids, train.pixels)  # type: ignore[attr-defined]
    scaled = replace(train, pixels=Pixels((0.3,), (0.7,)))
    for one in (train, darker, scaled, train):
        for label in (0, 1):
            cache(Slow(), model, toy_task(ForgetClasses([label])(replace(data, train=one))))
    assert MADE == [2, 2, 2]


def test_other_labels_another_head_or_other_frozen_weights_make_it_again() -> None:
    cache, model, data = Preparations(), trained_net(), toy_data()
    train = data.train
    rotated = examples(train.images, train.labels.roll(1), train.ids, train.pixels)  # type: ignore[attr-defined]
    fewer = torch.arange(10)
    for one in (train, rotated, train):
        cache(Slow(), model, Task(one.take(fewer), one.take(fewer + 10), None, 4))
    assert MADE == [2, 2]
    cache(Slow(), model, Task(train.take(fewer), train.take(fewer + 10), None, 4, head="head"))
    head_of(model).requires_grad_(False)
    cache(Slow(), model, Task(train.take(fewer), train.take(fewer + 10), None, 4))
    assert MADE == [2, 2, 2, 2]


def test_data_or_model_code_that_changed_make_it_again_also_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model, task = ArtifactStore(tmp_path), trained_net(), toy_task(class_scenario())
    code = Path("prepared_builder.py")
    monkeypatch.chdir(tmp_path)
    code.write_text("def build(): ...\n")
    first = Training("toy", "prepared_builder:build", Recipe(), fingerprint="first")
    for training in (first, first, replace(first, fingerprint="second")):
        Preparations(store, training)(Slow(), model, task)
    assert MADE == [2, 2]
    code.write_text("def build(): return 1\n")
    for _ in range(2):
        Preparations(store, first)(Slow(), model, task)
    assert MADE == [2, 2, 2]


def test_the_same_samples_in_another_order_are_the_same() -> None:
    cache, model, train = Preparations(), trained_net(), toy_data().train
    for rows in (torch.arange(20), torch.arange(20).flip(0)):
        cache(Slow(), model, Task(train.take(rows[:10]), train.take(rows[10:]), None, 4))
    assert MADE == [2]


def test_what_depends_on_the_request_is_kept_per_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "prepared_per_request", True)
    cache, model = Preparations(), trained_net()
    for label in (0, 1, 0):
        cache(Slow(), model, toy_task(ForgetClasses([label])(toy_data())))
    assert MADE == [2, 2]


def test_it_is_found_again_on_disk_with_the_seconds_of_the_first_making(tmp_path: Path) -> None:
    model, task = trained_net(), toy_task(class_scenario())
    first = Preparations(ArtifactStore(tmp_path))(Slow(), model, task)
    again = Preparations(ArtifactStore(tmp_path))(Slow(), model, task)
    assert MADE == [2]
    assert first[0] is not None
    assert again[0] is not None
    assert torch.equal(first[0]["powers"], again[0]["powers"])
    assert first[1] == again[1]
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.parent == tmp_path / "preparations"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("content", [b"", b"half", None])
def test_a_file_that_cannot_be_read_is_made_again(content: bytes | None, tmp_path: Path) -> None:
    model, task = trained_net(), toy_task(class_scenario())
    expected, _ = Preparations(ArtifactStore(tmp_path))(Slow(), model, task)
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-5] if content is None else content)
    with pytest.warns(CacheWarning, match=rf"{file.name} cannot be read"):
        again, _ = Preparations(ArtifactStore(tmp_path))(Slow(), model, task)
    assert expected is not None
    assert again is not None
    assert torch.equal(expected["powers"], again["powers"])
    Preparations(ArtifactStore(tmp_path))(Slow(), model, task)
    assert MADE == [2, 2]


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(CacheWarning, match=r"file/below .*\(Not a directory\)"):
        tensors, _ = Preparations(ArtifactStore(tmp_path / "file" / "below"))(
            Slow(), trained_net(), toy_task(class_scenario())
        )
    assert tensors is not None
    assert tensors["powers"].tolist() == [0.0, 1.0, 4.0]


def test_methods_that_prepare_nothing_take_no_time() -> None:
    assert Preparations()(Original(), trained_net(), toy_task(class_scenario())) == (None, 0.0)
