"""Grids are data: those of the paper are complete, the order is balanced, mistakes are named."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from duck.bench import find_grid
from duck.bench.grids import (
    Block,
    Grid,
    built_in,
    cells,
    experiment,
    narrow,
    parse_only,
    training,
    unknown_facts,
)
from duck.errors import BadInput, UnknownName
from duck.methods import METHODS, Duck
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses
from tests.bench.stored import FEW


@pytest.mark.parametrize(("name", "table"), [("paper/table-cr", "cr"), ("paper/table-hr", "hr")])
def test_the_papers_grids_have_its_rows_in_its_order(name: str, table: str) -> None:
    paper = json.loads(files("duck.bench").joinpath("paper_numbers.json").read_text())[table]
    grid = find_grid(name)
    ours = ["neg-grad-plus", "salun", *(["boundary-shrink-retain"] if table == "cr" else [])]
    assert list(grid.methods) == [*dict.fromkeys(row["method"] for row in paper), *ours]
    assert [block.dataset for block in grid.blocks] == list(
        dict.fromkeys(row["dataset"] for row in paper)
    )
    assert {block.model for block in grid.blocks} == {"resnet18"}
    assert grid.presets == ("paper", "tuned")


def test_the_papers_grids_have_its_classes_and_seeds() -> None:
    steps = {block.dataset: block.classes for block in find_grid("paper/table-cr").blocks}
    assert steps == {
        "cifar10": tuple(range(10)),
        "cifar100": tuple(range(0, 100, 10)),
        "tiny-imagenet": tuple(range(0, 200, 20)),
    }
    assert {(block.seeds, block.fraction) for block in find_grid("paper/table-hr").blocks} == {
        ((*range(9), 42), 0.1)
    }
    assert {grid.seed for grid in built_in().values()} == {42}


def test_the_plain_attack_is_on_the_models_of_the_papers_svm() -> None:
    plain, svm = find_grid("beyond/confidence"), find_grid("paper/svm")
    assert (plain.blocks, plain.methods, plain.presets) == (svm.blocks, svm.methods, svm.presets)


def test_cells_go_case_by_case_with_the_important_methods_first() -> None:
    grid = replace(FEW, methods=("retrained", "ssd", "original", "duck"), settings={})
    order = [(cell.block.scenario, cell.case, cell.method) for cell in cells(grid, {})]
    first = ["original", "duck", "retrained", "ssd"]
    assert order == [
        (kind, case, m)
        for kind, case in (("class", 3), ("class", 8), ("samples", 0))
        for m in first
    ]


def test_presets_with_equal_settings_are_one_cell() -> None:
    grid = find_grid("paper/table-cr")
    some = [cell for cell in cells(grid, {}) if cell.block.dataset == "cifar10" and cell.case == 0]
    assert [cell.presets for cell in some if cell.method == "duck"] == [("paper",), ("tuned",)]
    assert [cell.presets for cell in some if cell.method == "retrained"] == [
        ("standard", "paper", "tuned")
    ]
    tuned = narrow(some, parse_only("preset=tuned", grid))
    assert [cell.preset for cell in tuned if cell.method == "duck"] == ["tuned"]
    assert "retrained" in [cell.method for cell in tuned]


def test_a_method_that_cannot_do_a_scenario_has_no_cells_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnlyClasses(Duck):
        scenarios = ("class",)

    monkeypatch.setitem(METHODS._entries, "only-classes", OnlyClasses)
    grid = replace(FEW, methods=("duck", "only-classes"))
    assert [cell.block.scenario for cell in cells(grid, {}) if cell.method == "only-classes"] == [
        "class",
        "class",
    ]


def test_experiments_have_their_request_and_seed() -> None:
    by_class, by_seed = (
        next(c for c in cells(FEW, {}) if c.method == "duck" and c.case == case) for case in (8, 0)
    )
    facts = unknown_facts("digits")
    removal, share = experiment(FEW, by_class, facts), experiment(FEW, by_seed, facts)
    assert (removal.request, removal.seed) == (ForgetClasses([8]), 42)
    assert (share.request, share.seed) == (ForgetFraction(0.1), 0)
    assert removal.training == share.training == training(FEW, FEW.blocks[0], facts).training
    assert (removal.training.recipe.epochs, removal.training.seed, removal.training.model) == (
        1,
        42,
        "convnet",
    )
    assert removal.method == Duck(max_epochs=1, low_epochs=0, batch_ratio=1)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'methods = ["duck"]\npresets = ["tuned"]\n'
        '[[blocks]]\ndataset = "digits"\nseeds = [1, 2]\nfraction = 0.2\n'
    )
    assert find_grid(str(path)) == Grid(
        (Block("digits", seeds=(1, 2), fraction=0.2),), ("duck",), ("tuned",), name="mine"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'methods = ["duck"]\nmethod = 1\n[[blocks]]\ndataset = "digits"\nseeds = [1]\n',
            "Grid has no setting 'method'. Did you mean",
        ),
        (
            'methods = ["duck"]\n[[blocks]]\ndataset = "digits"\nclases = [1]\n',
            "Block has no setting 'clases'. Did you mean 'classes'",
        ),
        ('methods = ["duck"]\n[[blocks]]\ndataset = "digits"\n', "either classes or seeds: look"),
        ('methods = []\n[[blocks]]\ndataset = "digits"\nseeds = [1]\n', "'mine' has no methods"),
        (
            'methods = ["duck"]\nsettings.ssd.alpha = 1\n'
            '[[blocks]]\ndataset = "digits"\nseeds = [1]\n',
            "settings for 'ssd', which is not",
        ),
        ("methods = [", "mine.toml cannot be read"),
        (
            'methods = ["duck"]\nattack.name = "svn"\n'
            '[[blocks]]\ndataset = "digits"\nseeds = [1]\n',
            "No attack 'svn'. Did you mean 'svm'",
        ),
        (
            'methods = ["duck"]\npresets = ["best"]\n[[blocks]]\ndataset = "digits"\nseeds = [1]\n',
            r"presets\[0\] is text, .* of paper, tuned",
        ),
        (
            'methods = ["duck"]\nprotocol = "papr"\n[[blocks]]\ndataset = "digits"\nseeds = [1]\n',
            "protocol is text, .* of holdout, paper",
        ),
        (
            'methods = ["duck"]\n[[blocks]]\ndataset = "digits"\nmodel = "covnet"\nseeds = [1]\n',
            "No model 'covnet'. Did you mean 'convnet'",
        ),
    ],
)
def test_mistakes_in_a_file_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        find_grid(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"settings": {"duck": {"max_epoch": 1}}},
            "duck has no setting 'max_epoch'. Did you mean 'max_epochs'",
        ),
        (
            {"blocks": (replace(FEW.blocks[0], recipe={"epohcs": 1}),)},
            "Recipe has no setting 'epohcs'. Did you mean 'epochs'",
        ),
    ],
)
def test_settings_and_recipes_are_checked(change: dict[str, Any], message: str) -> None:
    grid = replace(FEW, **change)
    with pytest.raises(BadInput, match=message):
        experiment(grid, cells(grid, {})[1], unknown_facts("digits"))


WHOLE = (
    'methods = ["duck"]\npresets = ["tuned"]\n[[blocks]]\ndataset = "digits"\nmodel = "convnet"\n'
)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_groups_of_classes_go_together(tmp_path: Path) -> None:
    grid = find_grid(written(tmp_path, WHOLE + "classes = [3, [1, 2], [4]]\n"))
    some = cells(grid, {})
    assert [cell.case for cell in some] == [3, "1+2", "4"]
    asked = [experiment(grid, cell, unknown_facts("digits")).request for cell in some]
    assert asked == [ForgetClasses([3]), ForgetClasses([1, 2]), ForgetClasses([4])]
    (pair,) = narrow(some, parse_only("case=1+2", grid))
    assert pair.block.scenario == "class"
    for wrong in ("[[]]", "[true]", "[1.5]", '["3"]'):
        with pytest.raises(BadInput, match="class is a whole number"):
            find_grid(written(tmp_path, WHOLE + f"classes = {wrong}\n"))


def test_random_classes_are_drawn_by_the_seed(tmp_path: Path) -> None:
    grid = find_grid(written(tmp_path, WHOLE + "random_classes = 4\nseeds = [5, 6]\n"))
    made = [experiment(grid, cell, unknown_facts("digits")) for cell in cells(grid, {})]
    assert [one.request for one in made] == [ForgetRandomClasses(4)] * 2
    assert [one.seed for one in made] == [5, 6]
    assert {cell.block.scenario for cell in cells(grid, {})} == {"class"}
    assert {cell.removed for cell in cells(grid, {})} == {4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WHOLE + "clases = [1]\n", "Block has no setting 'clases'. Did you mean 'classes'"),
        (
            WHOLE + "seeds = [1]\nrecipe = { epohcs = 3 }\n",
            "Recipe has no setting 'epohcs'. Did you mean 'epochs'",
        ),
        ("settings.duck.ratio = 2\n" + WHOLE + "seeds = [1]\n", "duck has no setting 'ratio'"),
        (
            WHOLE + 'seeds = [1]\nrecipe_preset = "papr"\n',
            "blocks[0].recipe_preset is text",
        ),
        (
            WHOLE
            + 'seeds = [1]\n[[variants]]\nmethod = "scrub"\nname = "x"\nsettings = { lr = 1.0 }\n',
            "'scrub', which is not among",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        find_grid(written(tmp_path, text))
    assert "mine.toml cannot be used: " in str(caught.value)
    assert message in str(caught.value)


VARIANT = '[[variants]]\nmethod = "duck"\nname = "{}"\nsettings = {{ {} }}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WHOLE + "seeds = [1]\n" + VARIANT.format("x", 'forget_loss = "no"'),
            "forget_loss is text, .*true",
        ),
        (
            WHOLE + "seeds = [1]\nrecipe = { epochs = 1.5 }\n",
            "epochs is a number, .*whole",
        ),
        (WHOLE + "seeds = [1]\nrecipe = { epochs = 0 }\n", "epochs must be at least 1, got 0"),
        (WHOLE + "seeds = [true]\n", "is true or false, .*whole"),
        (WHOLE + "seeds = [-1]\n", "seed must be .*from 0"),
        (WHOLE + "seeds = [1, 1]\n", "has a case twice"),
        (WHOLE + "classes = [[1, 1]]\n", "different ones for a group"),
        (WHOLE + "seeds = [1]\nfraction = 1.5\n", "fraction must be between 0 and 1"),
        (
            WHOLE + "seeds = [1]\nrandom_classes = 0\n",
            "random_classes is a number, .*at least 1",
        ),
        (WHOLE + "seeds = 1\n", "seeds is a number, .*list"),
        (
            WHOLE + "seeds = [1]\n" + 2 * VARIANT.format("x", "lr = 0.1"),
            "two variants .* same name",
        ),
        (WHOLE + "seeds = [1]\n" + VARIANT.format("none", "lr = 0.1"), "a name other than 'none'"),
        (WHOLE + "seeds = [1]\n" + VARIANT.format("a,b", "lr = 0.1"), "without ',' and '='"),
        (WHOLE + "seeds = [1]\n" + VARIANT.format("x", ""), "'x' has no settings"),
        ('study.name = "density"\n' + WHOLE + "seeds = [1]\n", "needs blocks that remove classes"),
        (
            'attack = { name = "svm", splits = 0 }\n' + WHOLE + "seeds = [1]\n",
            "splits is a number, .*at least 1",
        ),
        (
            'attack.name = "svm"\nstudy.name = "density"\n' + WHOLE + "classes = [1]\n",
            "an attack and a study",
        ),
        ('views = ["paper/tabel-cr"]\n', "no runs of 'paper/tabel-cr' that can be shown"),
        ('views = ["paper/svm"]\n', "no runs of 'paper/svm' that can be shown"),
        ('views = ["paper/table-cr"]\nmethods = ["duck"]\n', "leave 'blocks' and 'methods' out"),
        (WHOLE.replace('["duck"]', '"duck"') + "seeds = [1]\n", "methods is text, .*list"),
        (WHOLE + "seeds = [1]\ntrials = -1\n", "trials is a number, .*count"),
        (WHOLE + "seeds = [1]\ntrials = 6\n", "'trials' needs 'searched'"),
        ("seed = 1" + "0" * 5000, "cannot be read"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_anything_runs(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        find_grid(written(tmp_path, text))


def test_recipes_by_name_and_by_architecture() -> None:
    block = find_grid("paper/recipe").blocks[0]
    made = training(find_grid("paper/recipe"), block, unknown_facts("cifar100")).training
    assert (made.recipe.epochs, made.recipe.batch_size, made.recipe.schedule) == (
        200,
        256,
        "cosine",
    )
    grid = find_grid("paper/architectures")
    recipes = {
        one.model: training(grid, one, unknown_facts(one.dataset)).training.recipe
        for one in grid.blocks
    }
    assert recipes["vit-b16"].optimizer == "adamw"
    assert recipes["resnet50"].optimizer == "sgd"


def test_a_view_has_no_cells_and_a_study_of_bias_needs_a_bias(tmp_path: Path) -> None:
    assert cells(find_grid("paper/time"), {}) == []
    with pytest.raises(BadInput, match="the study 'bias'"):
        find_grid(written(tmp_path, 'study.name = "bias"\n' + WHOLE + "seeds = [1]\n"))
    with pytest.raises(BadInput, match="random_classes and bias"):
        find_grid(written(tmp_path, WHOLE + "classes = [1]\nrandom_classes = 2\n"))


def test_the_papers_studies_have_their_cells() -> None:
    counts = {block.random_classes for block in find_grid("paper/multi-class").blocks}
    assert counts == {1, 10, 30, 50, 70, 90, 98}
    models = {block.model for block in find_grid("paper/architectures").blocks}
    assert models == {"allcnn", "resnet18", "resnet34", "resnet50", "vit-b16"}
    ablated = {(block.dataset, block.scenario) for block in find_grid("paper/ablation").blocks}
    assert ablated == {
        (data, kind) for data in ("cifar100", "tiny-imagenet") for kind in ("class", "samples")
    }


def test_unknown_grids_and_keys() -> None:
    with pytest.raises(UnknownName, match=r"'paper/table-rc'. .*'paper/table-"):
        find_grid("paper/table-rc")
    with pytest.raises(BadInput, match="'methd=duck'"):
        parse_only("methd=duck", FEW)
    with pytest.raises(BadInput, match="got 'duck'"):
        parse_only("duck", FEW)
    with pytest.raises(BadInput, match=r"no case '4'. Known: 3, 8, 0"):
        parse_only("case=4", FEW)


def test_only_narrows_and_a_key_given_twice_allows_both() -> None:
    chosen = narrow(cells(FEW, {}), parse_only("scenario=class,method=duck, method=original", FEW))
    assert [(cell.case, cell.method) for cell in chosen] == [
        (3, "original"),
        (3, "duck"),
        (8, "original"),
        (8, "duck"),
    ]
    assert narrow(cells(FEW, {}), parse_only("", FEW)) == cells(FEW, {})
