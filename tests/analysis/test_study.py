"""What analysis.json holds."""

import json
from typing import Any

import pytest
import torch

from duck.analysis import study
from duck.analysis.study import analyse
from duck.runtime import seeded
from duck.types import Scenario
from tests.toys import class_scenario, samples_scenario, toy_data, toy_net, trained_net


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    data = toy_data()
    assert data.test is not None
    models = {"original": trained_net(), "unlearned": toy_net(3), "retrained": toy_net(4)}
    images = data.test.take(torch.tensor([2, 6]))
    return analyse(models, class_scenario(), points=120, explain=images).to_dict()


def test_it_is_plain_json(result: dict[str, Any]) -> None:
    assert json.loads(json.dumps(result)) == result
    assert set(result) >= {"tsne", "density", "shap", "date", "seconds"}
    assert result["classes"] == ["a", "b", "c", "d"]
    assert result["forgotten"] == [2]
    assert result["samples"] == {"train": 240, "test": 160}


def test_panels_show_the_same_samples_for_every_model_and_mark_the_forgotten(
    result: dict[str, Any],
) -> None:
    assert list(result["tsne"]) == ["original", "unlearned", "retrained"]
    for split in ("train", "test"):
        panels = [result["tsne"][name][split] for name in result["tsne"]]
        for panel in panels:
            assert (
                len(panel["x"])
                == len(panel["y"])
                == len(panel["label"])
                == len(panel["forget"])
                == 60
            )
            assert panel["forget"] == [label == 2 for label in panel["label"]]
            assert set(panel["label"]) == {0, 1, 2, 3}
        assert panels[0]["label"] == panels[1]["label"] == panels[2]["label"]
    assert result["tsne"]["original"]["train"]["x"] != result["tsne"]["unlearned"]["train"]["x"]


def test_labels_belong_to_their_points(result: dict[str, Any]) -> None:
    # The original keeps classes apart: points of a class lie nearer to each other than to the rest.
    panel = result["tsne"]["original"]["train"]
    points, labels = torch.tensor([panel["x"], panel["y"]]).T, torch.tensor(panel["label"])
    nearest = torch.cdist(points, points).fill_diagonal_(torch.inf).argmin(1)
    assert (labels[nearest] == labels).double().mean() > 0.9


def test_densities_of_all_classes_and_models(result: dict[str, Any]) -> None:
    for model in result["density"].values():
        assert {split: sorted(found) for split, found in model.items()} == {
            "train": list("0123"),
            "test": list("0123"),
        }
    assert result["spaces"]["original"]["dimensions"] == 9


def test_shap_maps_of_the_chosen_images(result: dict[str, Any]) -> None:
    shap = result["shap"]
    assert [(image["id"], image["forgotten"]) for image in shap["images"]] == [
        ("t2", False),
        ("t6", False),
    ]
    for image in shap["images"]:
        assert image["title"] == f"c ({image['id']})"
        for name, values in image["maps"].items():
            numbers = image["numbers"][name]
            assert torch.tensor(values).shape == (8, 8)
            assert float(torch.tensor(values).sum()) == pytest.approx(
                numbers["probability"] - numbers["background"], abs=0.012
            )
    assert shap["images"][0]["numbers"]["original"]["probability"] > 0.9


@pytest.mark.parametrize(
    "scenario", [class_scenario(), samples_scenario()], ids=["class", "samples"]
)
def test_a_forgotten_training_image_is_marked_and_not_named(scenario: Scenario) -> None:
    images = scenario.data.train.take(torch.stack([scenario.forget[1], scenario.retain[0]]))
    shap = analyse({"unlearned": trained_net()}, scenario, points=16, explain=images).shap
    assert shap is not None
    found = shap.images
    _, retained = images.ids.tolist()
    assert [image.id for image in found] == ["forgotten 1", retained]
    assert found[0].title.endswith("(forgotten 1)")
    assert [image.forgotten for image in found] == [True, False]


def test_panels_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "MAX_STORED_POINTS", 25)
    panels = analyse({"unlearned": trained_net()}, class_scenario(), points=120).tsne["unlearned"]
    assert [len(panels[split].x) for split in ("train", "test")] == [20, 20]
    assert [len(panels[split].forget) for split in ("train", "test")] == [20, 20]


def test_single_samples_are_marked_in_training_only() -> None:
    scenario = samples_scenario()
    found = analyse({"unlearned": trained_net()}, scenario, points=480)
    panel = found.tsne["unlearned"]
    assert sum(panel["train"].forget) == len(scenario.forget)
    assert not any(panel["test"].forget)
    assert found.forgotten == []
    assert "shap" not in found.to_dict()


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    analyse({"unlearned": trained_net()}, class_scenario(), points=16)
    assert torch.equal(torch.get_rng_state(), before)
    assert seeded(0).initial_seed() == 0
