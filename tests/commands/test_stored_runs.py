"""What a command does, one call does: train, forget, analyse and remove a bias from Python."""

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import duck
from duck import cli, runs
from duck.analysis.bias import RESULT as BIAS_RESULT
from duck.analysis.study import RESULT as ANALYSIS_RESULT
from duck.errors import BadInput
from duck.types import Progress, Recipe
from duck.unlearning import Epoch

SOURCE = duck.DataOptions("digits")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "original"
    options = duck.TrainOptions(
        SOURCE, "convnet", changes={"epochs": 3}, output=duck.RunOptions(out=folder)
    )
    return duck.train_run(options).folder


def forget_options(original: Path, out: Path, **rest: Any) -> duck.ForgetOptions:
    return duck.ForgetOptions(
        duck.ForgetClasses(["3"]),
        duck.OriginalOptions(run=original),
        output=duck.RunOptions(out=out),
        **rest,
    )


def test_a_call_stores_the_run_that_the_command_stores(original: Path, tmp_path: Path) -> None:
    called = duck.forget_run(
        forget_options(original, tmp_path / "called", method="duck", settings={"low_epochs": 1})
    )
    words = ["--run", str(original), "--classes", "3", "--method", "duck", "--low-epochs", "1"]
    assert cli.main(["forget", *words, "--out", str(tmp_path / "typed")]) == 0
    by_call, by_command = (runs.load(tmp_path / name) for name in ("called", "typed"))
    assert called.run.experiment == by_call.experiment == by_command.experiment
    assert by_call.scores == by_command.scores == called.run.scores
    weights = [tmp_path / name / runs.WEIGHTS for name in ("called", "typed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert runs.load(original).experiment.training.recipe.epochs == 3


def test_progress_and_messages_reach_the_display(original: Path, tmp_path: Path) -> None:
    titles: list[str] = []
    events: list[Any] = []

    @contextmanager
    def training(title: str) -> Any:
        titles.append(title)
        yield events.append

    messages: list[str] = []
    display = duck.Display(message=messages.append, training=training)
    options = forget_options(original, tmp_path / "forgot", method=duck.Duck(max_epochs=1))
    duck.forget_run(options, display)
    assert titles == ["duck on digits"]
    assert len(events) > 1
    assert not messages
    stored = duck.forget_run(options, display)
    assert len(messages) == 1  # the run is there already
    assert stored.run.scores == runs.load(tmp_path / "forgot").scores


def test_a_model_of_ones_own_needs_its_data(original: Path) -> None:
    own = duck.OriginalOptions(model="convnet", weights=original / runs.WEIGHTS)
    with pytest.raises(BadInput, match="data are missing"):
        duck.forget_run(duck.ForgetOptions(duck.ForgetFraction(0.1), own))


def test_the_data_of_a_training_can_be_fixed(tmp_path: Path) -> None:
    options = duck.TrainOptions(SOURCE, "convnet", Recipe(epochs=1), fingerprint="other")
    with pytest.raises(BadInput, match="fingerprints differ"):
        duck.train_run(replace(options, output=duck.RunOptions(out=tmp_path / "x")))


class Killed(Exception):
    """Stands for a process that is killed."""


def epochs_of_training(options: duck.TrainOptions, last: int) -> list[int]:
    """Train until the end of epoch `last`; return the epochs that ran."""
    epochs: list[int] = []

    def watch(news: Progress | Epoch) -> None:
        epochs.append(news.epoch)
        if isinstance(news, Progress) and news.is_epoch_end and news.epoch == last:
            raise Killed

    with suppress(Killed):
        duck.train_run(options, duck.Display(training=lambda _: nullcontext(watch)))
    return sorted(set(epochs))


def test_a_training_resumes_only_with_the_same_model_code_and_not_to_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = Path("resumed_builder.py")
    code.write_text(
        "from torch import nn\n"
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    output = duck.RunOptions(out=tmp_path / "run")
    recipe = Recipe(epochs=3)
    options = duck.TrainOptions(SOURCE, "resumed_builder:build", recipe, output=output)
    assert epochs_of_training(options, last=2) == [1, 2]
    assert epochs_of_training(options, last=2) == [2]
    again = replace(options, output=replace(output, overwrite=True))
    assert epochs_of_training(again, last=2) == [1, 2]
    code.write_text(f"{code.read_text()}# changed\n")
    assert epochs_of_training(options, last=3) == [1, 2, 3]


def test_analysis_and_bias_removal_are_calls(original: Path, tmp_path: Path) -> None:
    folder = duck.forget_run(forget_options(original, tmp_path / "forgot")).folder
    (analysis,) = duck.analyse_runs(
        [folder], duck.AnalyseOptions(original=original, points=40, dimensions=2)
    )
    assert (folder / ANALYSIS_RESULT).exists()
    assert list(analysis.density) == ["original", "unlearned"]
    assert analysis.forgotten == [3]
    options = duck.DebiasOptions(
        SOURCE,
        duck.BiasOptions(count=40, model="convnet", shap=0),
        duck.RunOptions(out=tmp_path / "bias"),
        {"epochs": 2},
    )
    record = duck.debias_run(options)
    assert (tmp_path / "bias" / BIAS_RESULT).exists()
    assert (record.count, record.recipe["epochs"]) == (40, 2)
    assert record.command is not None
    assert "--epochs 2" in record.command
