"""The artifact store: made once, shared by key, and never a reason to fail."""

import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from duck.artifacts import Artifact, ArtifactStore, Facts, Key, default_root
from duck.errors import BadInput
from duck.experiment import Experiment, Training
from duck.files import CacheWarning
from duck.models.weights import request_digest
from duck.scenarios import Debias, ForgetClasses
from duck.types import Recipe
from tests.toys import toy_net, trained_net

KEY = Key("retrained", "a")
CPU = torch.device("cpu")
TRAINING = Training("digits", "convnet", Recipe(epochs=1), 0, fingerprint="data")


class Maker:
    """Counts how often an artifact is made."""

    def __init__(self, value: float = 1.0, seconds: float = 0.0) -> None:
        self.count = 0
        self.value = value
        self.seconds = seconds

    def __call__(self) -> Artifact:
        self.count += 1
        time.sleep(self.seconds)
        return Artifact({"x": torch.full((3,), self.value)}, {"number": self.count})


def first_value(artifact: Artifact) -> float:
    return float(artifact.tensors["x"][0])


def test_an_artifact_is_made_once_and_found_by_another_store(tmp_path: Path) -> None:
    make = Maker(2.5)
    for _ in range(2):
        assert ArtifactStore(tmp_path).get_or_make(KEY, make, first_value) == 2.5
    assert make.count == 1
    assert KEY in ArtifactStore(tmp_path)
    found = ArtifactStore(tmp_path).read(KEY)
    assert found is not None
    assert found.facts == {"number": 1}


def test_another_kind_or_id_is_another_artifact(tmp_path: Path) -> None:
    store, make = ArtifactStore(tmp_path), Maker()
    for key in (KEY, Key("retrained", "b"), Key("originals", "a")):
        store.get_or_make(key, make, first_value)
    assert make.count == 3


def test_renewing_makes_it_again_and_replaces_it(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_make(KEY, Maker(1.0), first_value)
    assert store.get_or_make(KEY, Maker(2.0), first_value, renew=True) == 2.0
    assert store.get_or_make(KEY, Maker(3.0), first_value) == 2.0


def test_without_a_folder_nothing_is_stored() -> None:
    store, make = ArtifactStore(), Maker()
    for _ in range(2):
        store.get_or_make(KEY, make, first_value)
    assert make.count == 2
    assert KEY not in store
    assert store.read(KEY) is None


@pytest.mark.parametrize("damage", ["empty", "half", "cut", "no facts"])
def test_an_unreadable_artifact_is_made_again(damage: str, tmp_path: Path) -> None:
    store, make = ArtifactStore(tmp_path), Maker()
    store.get_or_make(KEY, make, first_value)
    file = store.path(KEY)
    whole = file.read_bytes()
    contents = {"empty": b"", "half": b"half", "cut": whole[:-5]}
    file.write_bytes(contents.get(damage, whole.replace(b"duck.facts", b"duck.other")))
    with pytest.warns(CacheWarning, match=f"{file.name} cannot be read"):
        assert store.get_or_make(KEY, make, first_value) == 1.0
    assert make.count == 2
    store.get_or_make(KEY, make, first_value)
    assert make.count == 2


def test_a_folder_in_the_place_of_the_file_costs_time_only(tmp_path: Path) -> None:
    store, make = ArtifactStore(tmp_path), Maker()
    store.path(KEY).mkdir(parents=True)
    with pytest.warns(CacheWarning, match="cannot be written"):
        assert store.get_or_make(KEY, make, first_value) == 1.0
    assert make.count == 1


def test_a_stored_artifact_that_does_not_fit_is_made_again(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_make(KEY, Maker(1.0), first_value)

    def only_two(artifact: Artifact) -> float:
        if first_value(artifact) != 2.0:
            raise BadInput("It is not 2.")
        return 2.0

    with pytest.warns(CacheWarning, match="It is not 2"):
        assert store.get_or_make(KEY, Maker(2.0), only_two) == 2.0
    assert store.get_or_make(KEY, Maker(3.0), first_value) == 2.0


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store, make = ArtifactStore(tmp_path / "file" / "store"), Maker()
    for count in (1, 2):
        with pytest.warns(CacheWarning, match=r"store cannot be .*\(Not a directory\)"):
            assert store.get_or_make(KEY, make, first_value) == 1.0
        assert make.count == count


def test_two_that_need_the_same_artifact_make_it_once(tmp_path: Path) -> None:
    make = Maker(seconds=0.3)
    values: list[float] = []

    def work() -> None:
        values.append(ArtifactStore(tmp_path).get_or_make(KEY, make, first_value))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1.0] * 3
    assert make.count == 1
    assert [path.name for path in tmp_path.iterdir()] == ["retrained"]  # no lock is left


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> Artifact:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ArtifactStore(tmp_path / "store").get_or_make(KEY, fail, first_value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "modes"), [("originals", (0o644, 0o755)), ("retrained", (0o600, 0o700))]
)
def test_names_that_depend_on_sample_ids_are_private(
    kind: str, modes: tuple[int, int], tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        key = replace(KEY, kind=kind)  # type: ignore[arg-type]
        store = ArtifactStore(tmp_path)
        store.get_or_make(key, Maker(), first_value)
    finally:
        os.umask(before)
    file = store.path(key)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == modes


def test_a_model_is_trained_once_and_loaded_with_the_same_weights(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    expected = trained_net().state_dict()
    trainings: list[int] = []

    def train() -> tuple[nn.Module, Facts]:
        trainings.append(1)
        return trained_net(), {"seconds": 2.0}

    state = torch.random.get_rng_state()
    for _ in range(2):
        model, facts = store.get_or_train(KEY, toy_net, train, dict, device=CPU)
        assert facts == {"seconds": 2.0}
        assert not model.training
        found = model.state_dict()
        assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert trainings == [1]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_tied_weights_are_stored(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model[1].weight = model[0].weight
        return model

    store, trained = ArtifactStore(tmp_path), tied()
    for _ in range(2):
        model, _ = store.get_or_train(KEY, tied, lambda: (trained, {}), dict, device=CPU)
        assert torch.equal(model[0].weight, trained[0].weight)  # type: ignore[index]
        assert model[0].weight is model[1].weight  # type: ignore[index]


def test_a_model_of_another_shape_is_trained_again(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    small, large = nn.Linear(2, 2), nn.Linear(3, 3)
    store.get_or_train(KEY, lambda: nn.Linear(2, 2), lambda: (small, {}), dict, device=CPU)
    with pytest.warns(CacheWarning, match="does not fit"):
        model, _ = store.get_or_train(
            KEY, lambda: nn.Linear(3, 3), lambda: (large, {}), dict, device=CPU
        )
    assert torch.equal(model.weight, large.weight)  # type: ignore[arg-type]


def test_an_unlearned_model_carries_the_digest_of_its_request(tmp_path: Path) -> None:
    store, key = ArtifactStore(tmp_path), Key("unlearned", "a")
    store.write(key, Artifact({"x": torch.ones(1)}, {}, "digest"))
    assert request_digest(store.path(key)) == "digest"


def test_an_original_depends_on_its_training_and_not_on_the_request() -> None:
    original = Key.of_original(Experiment(TRAINING))
    assert original.id == Experiment(TRAINING).id
    seeded = replace(TRAINING, seed=7)
    assert Key.of_original(Experiment(seeded)).id == Experiment(seeded, seed=7).id
    assert Key.of_original(Experiment(TRAINING, ForgetClasses([3]), seed=5)) == original
    others = [
        replace(TRAINING, data="cifar10"),
        replace(TRAINING, fingerprint="other data"),
        replace(TRAINING, model="allcnn"),
        replace(TRAINING, recipe=Recipe(epochs=2)),
        replace(TRAINING, seed=1),
        replace(TRAINING, image_size=16),
        replace(TRAINING, mean=(0.5,), std=(0.5,)),
    ]
    keys = {Key.of_original(Experiment(training)) for training in others}
    assert len(keys) == len(others)
    assert original not in keys
    biased = {Key.of_original(Experiment(TRAINING, Debias(1, wrong))) for wrong in (8, 9)}
    assert len(biased | {original}) == 3


BUILDER = """
from torch import nn


def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""


def test_a_model_of_the_user_depends_on_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "builder_of_artifacts.py"
    file.write_text(BUILDER)
    experiment = Experiment(replace(TRAINING, model="builder_of_artifacts:build"))
    key = Key.of_original(experiment)
    assert Key.of_original(experiment) == key
    file.write_text(BUILDER + "# changed\n")
    assert Key.of_original(experiment) != key


@dataclass(frozen=True)
class Dependencies:
    name: str
    value: float


def test_equal_dependencies_are_equal_keys() -> None:
    key = Key.of("preparations", Dependencies("a", 0.1))
    assert key == Key.of("preparations", Dependencies("a", 0.1))
    assert key != Key.of("preparations", Dependencies("a", 0.2))


def test_the_default_folder_is_with_the_runs_or_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DUCK_ARTIFACTS", raising=False)
    assert default_root() == Path("runs/.artifacts")
    run, original = tmp_path / "runs" / "forgot", tmp_path / "others" / "original"
    assert default_root(run, original) == tmp_path / "runs" / ".artifacts"
    assert default_root(None, original) == tmp_path / "others" / ".artifacts"
    assert default_root(None, None) == Path("runs/.artifacts")
    monkeypatch.setenv("DUCK_ARTIFACTS", str(tmp_path / "store"))
    assert default_root() == default_root(original) == tmp_path / "store"
