"""An experiment from a file: values are taken as they stand or refused by their field."""

from pathlib import Path
from typing import Any

import pytest

from duck.errors import BadInput
from duck.experiment import Experiment, Training, from_dict, from_toml, to_dict
from duck.methods import Duck
from duck.scenarios import Debias, ForgetClasses, ForgetSamples
from duck.types import Recipe

EXPERIMENT = Experiment(Training("digits", "convnet", Recipe()), ForgetClasses([3]), Duck())
WRONG: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "text for a flag": (
        ("training", "recipe", "nesterov"),
        "false",
        "training.recipe.nesterov is text, .*true or false",
    ),
    "a number for a flag": (
        ("method", "joint_forward"),
        1,
        "method.joint_forward is a number, .*true or false",
    ),
    "a fraction for a count": (
        ("training", "recipe", "epochs"),
        1.9,
        "training.recipe.epochs is a number, .*whole number",
    ),
    "text for a count": (
        ("training", "recipe", "epochs"),
        "2",
        "training.recipe.epochs is text, .*whole number",
    ),
    "text for a rate": (
        ("training", "recipe", "lr"),
        "0.1",
        "training.recipe.lr is text, not a number",
    ),
    "a flag for a rate": (
        ("training", "recipe", "lr"),
        True,
        "training.recipe.lr is true or false, .*a number",
    ),
    "nan": (
        ("training", "recipe", "lr"),
        float("nan"),
        "training.recipe.lr is NaN, not a number",
    ),
    "infinity": (
        ("method", "temperature"),
        float("inf"),
        "method.temperature is infinite, not a number",
    ),
    "a negative rate": (("training", "recipe", "lr"), -0.1, "lr must be 0 or more, got -0.1"),
    "a negative decay": (
        ("training", "recipe", "weight_decay"),
        -1.0,
        "weight_decay must be 0 or more, got -1.0",
    ),
    "a negative milestone": (
        ("training", "recipe", "milestones"),
        [3, -2],
        "milestones must be 0 or more, got -2",
    ),
    "a negative weight of a loss": (
        ("method", "lambda_forget"),
        -1.5,
        "lambda_forget must be 0 or more, got -1.5",
    ),
    "a negative seed": (("seed",), -1, r"^seed must be .* 0 to 2\^63 - 1, got -1"),
    "a huge seed": (("training", "seed"), 2**63, r"seed must be .* 0 to 2\^63 - 1"),
    "a number for a name": (("training", "model"), 5, "training.model is a number, not text"),
    "a number for a fingerprint": (
        ("training", "fingerprint"),
        5,
        "training.fingerprint is a number, not text",
    ),
    "text for a list": (("training", "mean"), "0.5", "training.mean is text, not a list"),
    "a fraction for a class": (
        ("request",),
        {"name": "classes", "classes": [1.5]},
        r"request.classes\[0\] is a number, .*class",
    ),
    "text for classes": (
        ("request",),
        {"name": "classes", "classes": "cat"},
        "request.classes is text, not a list",
    ),
    "numbers for ids": (
        ("request",),
        {"name": "samples", "ids": [1]},
        r"request.ids\[0\] is a number, .*text",
    ),
    "text for a request": (("request",), "classes", "^request is text, .*object"),
    "a request without a name": (("request",), {"classes": [1]}, "No request ''"),
    "a list for a biased class": (
        ("request",),
        {"name": "debias", "true": [1], "wrong": 2},
        "request.true is a list, .*class",
    ),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_a_wrong_value_is_refused_by_its_field(case: str) -> None:
    place, value, message = WRONG[case]
    plain = to_dict(EXPERIMENT)
    inner = plain
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(BadInput, match=message):
        from_dict(plain)


@pytest.mark.parametrize(
    "request_", [ForgetClasses([3, "cat"]), ForgetSamples(["1", "a/b.png"]), Debias("cat", 2)]
)
def test_what_is_right_comes_back_as_it_was(request_: Any) -> None:
    experiment = Experiment(
        Training("digits", "convnet", Recipe(milestones=(1, 2)), mean=(0, 0.5)), request_, Duck()
    )
    assert from_dict(to_dict(experiment)) == experiment


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_bytes(b"\xff\xfe[training]\n")
    with pytest.raises(BadInput, match=r"experiment\.toml .* as TOML"):
        from_toml(file)


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(BadInput, match=r"experiment\.toml .* as TOML"):
        from_toml(file)
