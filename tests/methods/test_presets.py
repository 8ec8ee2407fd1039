"""Presets by the size of the data, and what a file of `duck tune` may say."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest

import duck
from duck.commands.tune import Search, TuneOptions
from duck.data import load
from duck.errors import BadInput
from duck.methods import METHODS
from duck.methods.presets import (
    Origin,
    Preset,
    default_recipe,
    has_settings,
    preset,
    presets,
    sources,
)
from duck.search_spaces import settings_in, spaces
from duck.tuning import Trial, at_edge, best

ROOT = Path(__file__).parents[2]


def test_of_data_by_name_the_size_is_known() -> None:
    for name in ("duck", "salun", "scrub"):
        assert duck.preset(name, "digits", "class") == preset(
            name, "digits", "class", len(load("digits").train)
        )
        assert duck.preset(name, "cifar100", "class") == preset(name, "cifar100", "class", 50_000)
        assert (
            duck.preset(name, "mine", "class")
            == preset(name, "mine", "class", 20_000)
            != preset(name, "mine", "class", 19_999)
        )


def test_a_file_of_presets_takes_precedence_for_its_method_data_and_kind(tmp_path: Path) -> None:
    file = tmp_path / "found.toml"
    file.write_text(
        "[duck.'my.images'.tuned.class]\nlr = 0.5\n"
        "[scrub.digits.tuned.class]\nmilestones = [1, 2]\n"
    )
    assert preset("duck", "my.images", "class", 10, more=file).lr == 0.5  # type: ignore[attr-defined]
    assert preset("scrub", "digits", "class", more=file).milestones == (1, 2)  # type: ignore[attr-defined]
    assert has_settings(file, "scrub", "digits", "class")
    for about in (
        ("scrub", "digits", "samples"),
        ("duck", "digits", "class"),
        ("ssd", "my.images", "class"),
    ):
        assert not has_settings(file, *about)
        with pytest.raises(
            BadInput, match=r"\[duck.my.images.tuned.class\], \[scrub.digits.tuned.class\]\."
        ):
            preset(*about, more=file)


@pytest.mark.parametrize("method", ["duck-soft", "neg-grad"])
@pytest.mark.parametrize("start", ["paper", "tuned"])
def test_a_file_of_tune_gives_exactly_the_settings_of_its_trial(
    method: str, start: Preset, tmp_path: Path
) -> None:
    """Also those that are None, such as duck-soft's target_temperature in its preset `paper`."""
    first = preset(method, "digits", "class", name=start)
    trial = Trial(0, settings_in(spaces()[method], first), 0.5, None, None, 0.0)
    file = tmp_path / "found.toml"
    search = Search(method, first, TuneOptions(start=start), file, [trial])
    search.write("class 3", duck.ForgetClasses([3])(load("digits")))
    for name in get_args(Preset):
        assert preset(method, "digits", "class", name=name, more=file) == first


@pytest.mark.parametrize(
    "table",
    ["dukc.digits.tuned.class", "duck.digits.tuend.class", "duck.digits.tuned.clas"],
)
def test_a_table_that_no_run_can_use_is_refused_beside_a_valid_one(
    table: str, tmp_path: Path
) -> None:
    file = tmp_path / "found.toml"
    file.write_text(f"[duck.digits.tuned.class]\nlr = 0.1\n[{table}]\nlr = 0.2\n")
    with pytest.raises(BadInput, match=rf"found\.toml.*\[{re.escape(table)}\]"):
        preset("duck", "digits", "class", more=file)


def test_a_value_out_of_range_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "found.toml"
    file.write_text("[duck.digits.tuned.class]\nlr = -0.1\n")
    with pytest.raises(BadInput, match=r"found\.toml.* lr "):
        preset("duck", "digits", "class", more=file)


def every_preset() -> Iterator[tuple[str, str, Preset, str, dict[str, Any]]]:
    for method in METHODS:
        for data, names in presets().get(method, {}).items():
            for name, kinds in names.items():
                for kind, settings in kinds.items():
                    yield method, data, name, kind, settings


def test_every_preset_says_where_its_values_come_from() -> None:
    used = set()
    for method, data, name, kind, settings in every_preset():
        assert settings["source"], (method, data, name, kind)
        samples = {"small": 1_000, "any": 60_000}.get(data)
        found = sources(method, "mine" if samples else data, kind, samples, name)
        used |= set(settings["source"])
        for source in found:
            assert source.origin in get_args(Origin)
            assert source.where
            if source.origin == "search":
                assert source.objective
                assert source.trials > 0
                assert date.fromisoformat(source.date)
        origins = {source.origin for source in found[-len(settings["source"]) :]}
        assert origins & ({"paper", "code"} if name == "paper" else {"search", "hand"}), (
            method,
            data,
            name,
            kind,
        )
    assert used == set(presets()["sources"])


def test_the_sources_of_tuned_are_those_of_paper_and_its_own() -> None:
    paper, tuned = (
        sources("bad-teacher", "cifar10", "class", name=name) for name in ("paper", "tuned")
    )
    assert tuned[: len(paper)] == paper
    assert (
        str(paper[0])
        == "paper: Cotogni 2023, arXiv:2312.02052, supplement, table 7 (baselines, class removal)"
    )
    assert tuned[-1].origin == "search"
    assert "best of" in str(tuned[-1])


def has_milestones(method: str) -> bool:
    return any(field.name == "milestones" for field in fields(METHODS[method]))  # type: ignore[arg-type]


def test_a_search_varies_no_schedule() -> None:
    scheduled = {method for method in spaces() if has_milestones(method)}
    assert scheduled >= {"finetune", "scrub", "erm-ktp"}
    for method in scheduled:
        assert spaces()[method]["milestones"].fixed == [], method


def test_a_schedule_of_the_paper_does_not_stay_in_a_searched_preset() -> None:
    """Milestones that belong to the paper's epochs would cut the rate of a searched one."""
    searched = 0
    for method, data, name, kind, settings in every_preset():
        origins = [presets()["sources"][source] for source in settings["source"]]
        if name == "tuned" and has_milestones(method):
            if not any(origin["from"] == "search" for origin in origins):
                continue
            searched += 1
            samples = {"small": 1_000, "any": 60_000}.get(data)
            found = preset(method, "mine" if samples else data, kind, samples)
            assert found.milestones == (), (method, data, kind)  # type: ignore[attr-defined]
    assert searched > 5


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
    with pytest.raises(
        BadInput,
        match=r"cifar10, cifar100, tiny-imagenet\.",
    ):
        default_recipe("digits", None, "none", name="paper")


def test_an_architecture_changes_the_standard_recipe_alone() -> None:
    usual, vit = (
        default_recipe("cifar100", None, "none", model) for model in ("resnet18", "vit-b16")
    )
    assert (usual.optimizer, vit.optimizer) == ("sgd", "adamw")
    assert vit.epochs == usual.epochs
    # What was chosen on a data set counts there alone.
    assert (vit.weight_decay, default_recipe("cifar10", None, "none", "vit-b16").weight_decay) == (
        0.1,
        0.05,
    )
    assert default_recipe("cifar100", None, "none", "resnet50").label_smoothing == 0.1
    assert default_recipe("cifar10", None, "none", "resnet50") == default_recipe(
        "cifar10", None, "none", "resnet18"
    )
    assert default_recipe("cifar100", None, "none", "vit-b16", "paper").optimizer == "sgd"


# Presets with a value at an edge of what was searched, and why it stays.
NEEDS_A_GPU = "a wider search needs a GPU"
KNOWN_EDGES = {
    ("salun", "cifar10", "samples", "epochs"): NEEDS_A_GPU,
    ("ssd", "cifar10", "samples", "dampening"): NEEDS_A_GPU,
    ("salun", "small", "class", "epochs"): "the last of the 12 trials was the best",
}


def edges_of_presets() -> set[tuple[str, str, str, str]]:
    """Return (method, data, kind, setting) for the values at an edge of their range."""
    found = set()
    for method, data, name, kind, settings in every_preset():
        if name == "tuned" and method in spaces():
            found |= {(method, data, kind, key) for key in edges_of(method, data, kind, settings)}
    return found


def edges_of(method: str, data: str, kind: str, settings: dict[str, Any]) -> list[str]:
    where = presets()["sources"][settings["source"][-1]]["where"]
    if not where.endswith("-search.jsonl") or "superseded" in where:
        return []
    lines = (Path(duck.__file__).parents[2] / where).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    trials = [
        Trial(**{field: row[field] for field in Trial.__dataclass_fields__ if field in row})
        for row in rows
        if (row["scenario"], row["method"]) == (kind, method)
    ]
    samples = {"small": 1_000, "any": 60_000}.get(data)
    values = settings_in(
        spaces()[method], preset(method, "mine" if samples else data, kind, samples)
    )
    assert best(trials).settings.items() <= values.items(), (method, data, kind)
    return at_edge(method, trials)


def test_the_presets_at_an_edge_of_their_search_are_known() -> None:
    assert edges_of_presets() == set(KNOWN_EDGES)
