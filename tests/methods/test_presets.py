"""Presets by the size of the data, and what a file of `duck tune` may say."""

import json
from pathlib import Path
from typing import Any

import pytest

import duck
from duck.data import load
from duck.errors import BadInput
from duck.methods.presets import default_recipe, preset, speaks_of


def test_of_data_by_name_the_size_is_known() -> None:
    for name in ("duck", "salun", "scrub"):
        assert duck.preset(name, "digits", "class") == preset(name, "digits", "class", len(load("digits").train))
        assert duck.preset(name, "cifar100", "class") == preset(name, "cifar100", "class", 50_000)
        assert duck.preset(name, "mine", "class") == preset(name, "mine", "class", 20_000) != preset(name, "mine", "class", 19_999)


def test_a_file_goes_on_top_where_it_speaks_of_this(tmp_path: Path) -> None:
    file = tmp_path / "found.toml"
    file.write_text("[duck.'my.images'.tuned.class]\nlr = 0.5\n[scrub.digits.tuned.class]\nmilestones = [1, 2]\n")
    assert preset("duck", "my.images", "class", 10, more=file).lr == 0.5  # type: ignore[attr-defined]
    assert preset("scrub", "digits", "class", more=file).milestones == (1, 2)  # type: ignore[attr-defined]
    assert speaks_of(file, "scrub", "digits", "class")
    for about in (("scrub", "digits", "samples"), ("duck", "digits", "class"), ("ssd", "my.images", "class")):
        assert not speaks_of(file, *about)
        with pytest.raises(BadInput, match=r"it has \[duck.my.images.tuned.class\], \[scrub.digits.tuned.class\]\."):
            preset(*about, more=file)


def test_tuned_settings_of_cifar100_are_the_best_trials_of_the_kept_search() -> None:
    lines = (Path(__file__).parents[2] / "benchmarks" / "results" / "cifar100-rivals-tuning.jsonl").read_text().splitlines()
    studies: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in map(json.loads, lines):
        studies.setdefault((line["method"], line["scenario"]), []).append(line)
    assert len(studies) == 9
    for (method, kind), trials in studies.items():
        found = preset(method, "cifar100", kind)
        best = max(trials, key=lambda trial: trial["score"])
        if (method, kind) == ("duck", "class"):  # docs/results.md says why
            assert found == preset(method, "cifar100", kind, name="paper")
        else:
            assert {name: getattr(found, name) for name in best["settings"]} == best["settings"], (method, kind)


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "tiny-imagenet"])
def test_the_papers_recipe_is_that_of_its_tables(data: str) -> None:
    recipe = default_recipe(data, None, "crop-flip", name="paper")
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.optimizer) == (200, 256, 0.1, "sgd")
    assert not recipe.compile
    if data == "tiny-imagenet":
        assert (recipe.schedule, recipe.gamma) == ("step", 0.1)
        assert recipe.milestones == tuple(range(25, 200, 25))
    else:
        assert recipe.schedule == "cosine"
    assert recipe != default_recipe(data, None, "crop-flip")


def test_data_without_a_recipe_of_the_paper_name_those_that_have_one() -> None:
    with pytest.raises(BadInput, match=r"digits has no recipe 'paper'\. Data sets that have one: cifar10, cifar100, tiny-imagenet\."):
        default_recipe("digits", None, "none", name="paper")


def test_an_architecture_changes_the_standard_recipe_alone() -> None:
    usual, vit = (default_recipe("cifar100", None, "none", model) for model in ("resnet18", "vit-b16"))
    assert (usual.optimizer, vit.optimizer) == ("sgd", "adamw")
    assert vit.epochs == usual.epochs
    assert default_recipe("cifar100", None, "none", "vit-b16", "paper").optimizer == "sgd"
