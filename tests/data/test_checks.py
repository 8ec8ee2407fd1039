"""Data that would make a result wrong: found and named."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import duck
from duck import cli
from duck.api import Result
from duck.data.checks import check_data
from duck.data.examples import Pixels, examples
from duck.errors import BadInput
from duck.scenarios import add_copies
from duck.types import Data
from tests.data.test_examples import streamed
from tests.toys import toy_data, toy_examples, trained_net


def floats(split: Any) -> TensorDataset:
    """The toy images as the trained net takes them."""
    batch = next(split.batches(10_000))
    return TensorDataset(batch.images, batch.labels)


TRAIN, TEST = floats(toy_data().train), floats(toy_data().test)


def forget(
    train: Dataset[Any], ids: Any, test: Dataset[Any] | None = TEST, **options: Any
) -> Result:
    return duck.forget(trained_net(), train, ids, test=test, method="original", **options)  # type: ignore[arg-type]


def named(notes: list[str], words: str) -> list[str]:
    return [note for note in notes if words in note]


def test_clean_data_get_no_notes() -> None:
    assert check_data(duck.ForgetSamples([1, 2])(toy_data())) == []


def test_each_sample_has_a_digest_of_its_pixels() -> None:
    source = toy_examples(40, seed=0)
    assert len(set(source.digests)) == 40
    assert source.take(torch.tensor([3, 1])).digests == [source.digests[3], source.digests[1]]
    assert streamed(source).digests == source.digests
    assert replace(source, images=source.images + 1).digests != source.digests


def test_digests_of_cifar_size_images_are_cheap() -> None:
    images = torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8)
    source = examples(
        images, torch.zeros(5000), np.arange(5000).astype(np.str_), Pixels((0.5,) * 3, (0.5,) * 3)
    )
    begun = time.process_time()
    assert len(source.digests) == 5000
    assert time.process_time() - begun < 0.5


def test_copies_of_forget_samples_in_the_retain_set_are_listed() -> None:
    train: Dataset[Any] = ConcatDataset([TRAIN, Subset(TRAIN, [7, 7, 9])])
    result = forget(train, [7, 8])
    (note,) = named(result.notes, "copies of forget samples")
    assert note.startswith("The retain set contains exact ")
    assert "copies of forget samples (2)" in note
    assert "'240', '241'" in note
    assert "'242'" not in note
    assert "with_copies=True" in note


def test_with_copies_adds_them_to_the_request() -> None:
    train: Dataset[Any] = ConcatDataset([TRAIN, Subset(TRAIN, [7, 7, 9])])
    result = forget(train, [7, 8], with_copies=True)
    assert result.scenario.forget.tolist() == [7, 8, 240, 241]
    assert named(result.notes, "copies of forget samples") == []
    (note,) = named(result.notes, "copies")
    assert note.endswith("added to the request: 2.")
    one = forget(ConcatDataset([TRAIN, Subset(TRAIN, [7])]), [7], with_copies=True)
    assert one.scenario.forget.tolist() == [7, 240]
    assert forget(TRAIN, [7, 8], with_copies=True).scenario.forget.tolist() == [7, 8]


def test_a_request_without_copies_stays_as_it_is() -> None:
    request = duck.ForgetClasses([1])
    assert add_copies(request, request(toy_data()))[0] is request


def test_copies_cannot_be_added_to_a_request_that_changes_the_data() -> None:
    with pytest.raises(BadInput, match="with_copies"):
        forget_on(toy_data(), duck.Debias("a", "b", count=5, patch=2), with_copies=True)


def forget_on(data: Data, request: Any, **options: Any) -> Result:
    return duck.forget(trained_net(), data, request, method="original", **options)


def test_a_few_test_samples_that_are_training_samples_are_noted() -> None:
    test: Dataset[Any] = ConcatDataset([TEST, Subset(TRAIN, [30, 31])])
    (note,) = named(forget(TRAIN, [7, 8], test).notes, "other training samples")
    assert note.startswith("2 of 202 test samples")
    assert "'200', '201'" in note


def test_forget_samples_in_the_test_set_are_named_as_such() -> None:
    test: Dataset[Any] = ConcatDataset([TEST, Subset(TRAIN, [7, 30])])
    notes = forget(TRAIN, [7, 8], test).notes
    (note,) = named(notes, "copies of forget samples:")
    assert note.startswith("1 of 202 test samples")
    assert "'200'" in note
    assert named(notes, "other training samples")[0].startswith("1 of 202")


@pytest.mark.parametrize(
    ("test", "problem"), [(TRAIN, "training samples"), (Subset(TRAIN, range(60)), "forget samples")]
)
def test_a_test_set_of_training_samples_is_refused(test: Dataset[Any], problem: str) -> None:
    ids = range(60) if problem == "forget samples" else [7, 8]
    with pytest.raises(BadInput, match=rf"{problem}.*never saw"):
        forget(TRAIN, ids, test)


def test_equal_feature_vectors_may_be_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = (
        torch.randint(0, 2, (count, 3), generator=generator).float() for count in (60, 30)
    )
    labels = torch.arange(60) % 2
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    result = duck.forget(
        net,
        TensorDataset(train, labels),
        [1],
        test=TensorDataset(test, labels[:30]),
        method="original",
    )
    assert named(result.notes, "other training samples")


class Augmented(Dataset[Any]):
    def __init__(self, source: TensorDataset) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, label = self.source[index]
        return image + 0.1 * torch.rand_like(image), label


def test_a_data_set_that_augments_at_random_is_named() -> None:
    notes = forget(Augmented(TRAIN), [7, 8], Augmented(TEST)).notes
    (note,) = named(notes, "change at random")
    assert note.startswith("The training and test samples ")
    (note,) = named(forget(TRAIN, [7, 8], Augmented(TEST)).notes, "change at random")
    assert note.startswith("The test samples ")
    assert named(forget(TRAIN, [7, 8]).notes, "change at random") == []


def test_float_images_of_0_to_255_are_named() -> None:
    scaled = TensorDataset(torch.randint(0, 256, (240, 1, 8, 8)).float(), TRAIN.tensors[1])
    (note,) = named(forget(scaled, [7, 8], None).notes, "in 0..255")
    assert "uint8" in note
    for images in (
        TRAIN.tensors[0],
        TRAIN.tensors[0].abs().clamp(0, 1),
        16 * torch.rand(240, 1, 8, 8),
    ):
        assert (
            named(forget(TensorDataset(images, TRAIN.tensors[1]), [7, 8], None).notes, "in 0..255")
            == []
        )


class Probabilities(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = trained_net()

    def forward(self, images: Tensor) -> Tensor:
        return torch.softmax(self.inner(images), 1)


@pytest.mark.parametrize("method", ["duck", "finetune"])
@pytest.mark.parametrize("data", [TRAIN, toy_data()])
def test_probabilities_are_not_taken_as_logits(method: str, data: Any) -> None:
    with pytest.raises(BadInput, match=r"probabilities.*logits"):
        duck.forget(Probabilities(), data, [7, 8], method=method)


def test_log_probabilities_are_logits() -> None:
    class Log(Probabilities):
        def forward(self, images: Tensor) -> Tensor:
            return torch.log(super().forward(images))

    retain = duck.forget(Log(), TRAIN, [7, 8], method="original").scores.retain
    assert retain is not None
    assert retain > 0.9


def test_all_copies_in_the_test_set_are_counted() -> None:
    """10 copies of forget samples and 8 of others among 200 test samples: neither group alone is
    above 5 %."""
    test: Dataset[Any] = ConcatDataset([Subset(TEST, range(182)), Subset(TRAIN, range(18))])
    with pytest.raises(BadInput, match=r"18 of 200 .*10 of .* 8 of"):
        forget(TRAIN, range(10), test)


# On the command line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model on an .npz in which training sample 100 is a copy of sample 3, and test sample
    0 of sample 5."""
    folder = tmp_path_factory.mktemp("copies")
    train, test = toy_examples(120, seed=0), toy_examples(60, seed=1)
    with_copies = train.images.clone()
    with_copies[100], test.images[0] = train.images[3], train.images[5]
    labels = train.labels.clone()
    labels[100] = labels[3]
    unseen = {"test_images": test.images.numpy(), "test_labels": test.labels.numpy()}
    np.savez(
        folder / "data.npz",
        allow_pickle=False,
        images=with_copies.numpy(),
        labels=labels.numpy(),
        **unseen,
    )
    words = [
        "train",
        "--data",
        str(folder / "data.npz"),
        "--model",
        "convnet",
        "--epochs",
        "2",
        "--out",
        str(folder / "run"),
        "--json",
    ]
    assert cli.main(words) == 0
    return folder / "run"


@pytest.mark.parametrize(("words", "count", "copies"), [([], 2, 1), (["--with-copies"], 3, 0)])
def test_copies_on_the_command_line(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    count: int,
    copies: int,
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("3\n8\n")
    capsys.readouterr()
    cli.main(
        [
            "forget",
            "--run",
            str(run),
            "--ids",
            str(ids),
            *words,
            "--out",
            str(tmp_path / "forgot"),
            "--json",
        ]
    )
    out, err = capsys.readouterr()
    line = json.loads(out)
    assert line["forget_samples"] == count
    assert len(named(line["notes"], "copies of forget samples")) == copies
    assert err.count("'100'") == copies
    assert len(named(line["notes"], "other training samples")) == 1
    assert len(named(line["notes"], "added to the request: 1.")) == (not copies)
    # Records hold no ids outside the request.
    assert named(line["notes"], "'100'") == []


def test_compare_takes_copies_too(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("3\n8\n")
    capsys.readouterr()
    cli.main(
        ["compare", "--run", str(run), "--ids", str(ids), "--methods", "original", "--with-copies"]
    )
    assert "forget 3, retain 117" in capsys.readouterr().out
    cli.main(["compare", "--run", str(run), "--ids", str(ids), "--methods", "finetune"])
    out, err = capsys.readouterr()
    assert err.count("exact copies of forget samples") == 1
    assert "exact copies" not in out
    # Without Retrained there are no gaps.
    assert "gap" not in out.lower()


def test_a_finding_is_printed_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("3\n8\n")
    words = [
        "forget",
        "--run",
        str(run),
        "--ids",
        str(ids),
        "--method",
        "original",
        "--out",
        str(tmp_path / "forgot"),
    ]
    capsys.readouterr()
    for places in ((0, 1), (1, 0)):  # a stored run is not checked again: its notes are printed
        cli.main(words)
        printed = capsys.readouterr()
        assert tuple(text.count("exact copies of forget samples (1)") for text in printed) == places
        assert tuple(text.count("other training samples") for text in printed) == places


@pytest.mark.parametrize(
    "words",
    [
        ["tune", "finetune", "--budget", "1", "--objective", "aus"],
        ["pool", "--models", "2", "--epochs", "1", "--workers", "1"],
    ],
)
def test_tune_and_pool_name_copies(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("3\n8\n")
    capsys.readouterr()
    assert (
        cli.main([*words, "--run", str(run), "--ids", str(ids), "--out", str(tmp_path / "out")])
        == 0
    )
    assert "exact copies of forget samples (1)" in capsys.readouterr().err


def second_with_copies(images: Tensor, first: list[int], request: Any) -> list[int]:
    """Forget some, then a request with its copies; return what the second one forgot."""
    train = TensorDataset(images, torch.arange(len(images)) % 4)
    earlier = duck.forget(trained_net(), train, forget=first, method="original")
    scenario = duck.forget(earlier, forget=request, method="original", with_copies=True).scenario
    return sorted(int(name) for name in scenario.data.train.ids[scenario.forget.numpy()])


def noise(count: int) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_copies_are_looked_for_in_what_earlier_requests_left() -> None:
    images = noise(240)
    images[10], images[12] = images[11].clone(), images[11].clone()
    assert second_with_copies(images, [10], [11]) == [11, 12]
    with pytest.raises(BadInput, match="forgot '10' already"):
        second_with_copies(images, [10], [10, 11])
    images[13] = images[11].clone()  # of class 1
    assert second_with_copies(images, [10], duck.ForgetClasses([1])) == sorted(
        [*range(1, 240, 4), 11, 12]
    )


def test_a_random_share_with_copies_is_drawn_from_what_earlier_requests_left() -> None:
    earlier = list(range(20))
    forgotten = set(
        second_with_copies(torch.cat([noise(120), noise(120)]), earlier, duck.ForgetFraction(0.5))
    )
    assert not forgotten & set(earlier)
    assert len(forgotten) > 110
    # Whole pairs, but for those whose other half is gone.
    assert {(name + 120) % 240 for name in forgotten} - set(earlier) == forgotten - set(
        range(120, 140)
    )
