"""The attacks of the paper as grids: each model is trained once and attacked by its outputs."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from duck import cli
from duck.artifacts import ArtifactStore, Key
from duck.audits.scores import Outputs
from duck.bench import Attack, Results, attacker, find_grid
from duck.bench.attacks import Attacker, ShadowAttacker
from duck.bench.executor import execute, plan
from duck.bench.formats import render
from duck.bench.grids import Grid, experiment, facts_of, parse_only, result_id, training
from duck.bench.outputs import Target, predict_target, read_target
from duck.bench.runner import Job, Runner
from duck.bench.tables import make_table
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.files import CacheWarning
from duck.methods.base import METHODS
from duck.pools.build import build_pool
from duck.pools.plan import Plan as PoolPlan
from duck.pools.reader import Pool
from duck.runtime import device_name
from duck.scenarios import ForgetClasses
from tests.bench.stored import FACTS, FEW, append, cell_of, digits, expected, line_of, rows_of
from tests.toys import class_scenario, samples_scenario, trained_net

CPU = torch.device("cpu")
SVM = replace(FEW, attack=Attack("svm", splits=1), methods=("original", "duck"), name="toy/svm")
LIRA = replace(
    FEW,
    attack=Attack("lira", shadows=8),
    methods=("original", "retrained", "duck"),
    name="toy/lira",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("models")
    return folder


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("pool") / "shadows"
    made = training(FEW, FEW.blocks[0], facts_of(digits()["digits"])).training
    build_pool(folder, PoolPlan(Experiment(made)), digits()["digits"], 10, device=CPU)
    return folder


def run(
    grid: Grid, results: Path, models: Path, only: str = "", attack: Attacker | None = None
) -> dict[str, dict[str, Any]]:
    """The lines that this run wrote, by what the job is called."""
    grid = grid if attack is None else replace(grid, attack=attack.attack)
    held = Results(results)
    held.check_writable()
    before = set(held.results)
    jobs = plan(
        grid,
        {name: facts_of(data) for name, data in digits().items()},
        held,
        parse_only(only, grid),
    ).jobs
    execute(jobs, Runner(digits(), models, CPU, attack), held, grid.name, device=device_name(CPU))
    return {str(job): held.results[job.id].to_dict() for job in jobs if job.id not in before}


def test_an_attack_comes_after_its_model_and_has_a_line_of_its_own(
    tmp_path: Path, models: Path
) -> None:
    made = run(SVM, tmp_path, models, "scenario=class,case=3", Attacker(Attack("svm", splits=1)))
    assert list(made) == [
        "digits: train convnet",
        "digits, class 3: original (standard)",
        "digits, class 3: svm of original (standard)",
        "digits, class 3: duck (paper)",
        "digits, class 3: svm of duck (paper)",
    ]
    model, attack = (
        made["digits, class 3: duck (paper)"],
        made["digits, class 3: svm of duck (paper)"],
    )
    assert model["experiment"] == attack["experiment"]
    assert (model["id"] == attack["id"], "attack" in model) == (False, False)
    assert attack["attack"] == {"name": "svm", "splits": 1}
    assert attack["scores"]["f1"] == attack["svm"]["f1"][0]
    assert attack["scores"]["chance"] == 0.75
    assert attack["svm"]["forgotten"] == 3 * attack["svm"]["unseen"]
    assert 0 < attack["seconds"] < attack["wall_seconds"]
    # Read back, both are there, and the same grid has nothing left to do.
    assert set(Results(tmp_path).done) == {line["id"] for line in made.values()}
    assert (
        run(SVM, tmp_path, models, "scenario=class,case=3", Attacker(Attack("svm", splits=1))) == {}
    )


@pytest.mark.slow
def test_a_model_of_another_table_is_not_made_again(tmp_path: Path) -> None:
    scored = run(
        replace(FEW, methods=("duck",), name="toy/scores"),
        tmp_path / "results",
        tmp_path / "models",
        "scenario=samples",
    )
    assert [line["method"] for line in scored.values()] == [None, "duck"]
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere" / "predictions").rename(tmp_path / "models" / "predictions")
    attacked = run(
        SVM,
        tmp_path / "results",
        tmp_path / "models",
        "scenario=samples,method=duck",
        Attacker(Attack("svm", splits=1)),
    )
    assert list(attacked) == ["digits, seed 0: svm of duck (paper)"]
    assert "error" not in attacked["digits, seed 0: svm of duck (paper)"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [
        "predictions"
    ]  # no original was needed
    # Where only what the models said came along, nothing is trained for the lines' sake.
    runner = Runner(digits(), tmp_path / "models", CPU)
    facts = {name: facts_of(data) for name, data in digits().items()}
    left = plan(
        SVM,
        facts,
        Results(tmp_path / "none"),
        parse_only("scenario=samples", SVM),
        partial(runner.is_stored, SVM),
    ).jobs
    assert list(map(str, left)) == [
        "digits: train convnet",
        "digits, seed 0: original (standard)",
        "digits, seed 0: svm of original (standard)",
        "digits, seed 0: svm of duck (paper)",
    ]
    # Where only the results came along, the model is made once more.
    twice = replace(SVM, attack=Attack("svm", splits=2))
    elsewhere = run(
        twice,
        tmp_path / "results",
        tmp_path / "new",
        "scenario=samples,method=duck",
        Attacker(Attack("svm", splits=2)),
    )
    (line,) = elsewhere.values()
    assert len(line["svm"]["f1"]) == 2
    assert len(list((tmp_path / "new" / "predictions").iterdir())) == 1


BUILDER = """
from torch import nn


def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""


def test_outputs_of_a_model_whose_code_changed_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("builder_of_bench.py").write_text(BUILDER)
    block = replace(FEW.blocks[1], model="builder_of_bench:build")
    grid = replace(SVM, blocks=(block,), methods=("original",), settings={})
    attack = Attacker(Attack("svm", splits=1))
    run(grid, tmp_path / "first", tmp_path / "models", attack=attack)
    facts = facts_of(digits()["digits"])
    made = experiment(grid, cell_of(grid, "original", 0, "standard", facts), facts)
    runner = Runner(digits(), tmp_path / "models", CPU, attack)
    assert runner.is_stored(grid, made)
    Path("builder_of_bench.py").write_text(BUILDER + "# changed\n")
    assert not runner.is_stored(grid, made)
    run(grid, tmp_path / "second", tmp_path / "models", attack=attack)
    assert len(list((tmp_path / "models" / "predictions").iterdir())) == 2


def test_lira_compares_every_target_with_one_pool(tmp_path: Path, models: Path, pool: Path) -> None:
    attack = attacker(LIRA.attack or Attack("lira"), pool)
    made = run(LIRA, tmp_path, models, "scenario=samples", attack)
    lines = {line["method"]: line for name, line in made.items() if "lira of" in name}
    assert list(lines) == ["original", "duck", "retrained"]
    test = digits()["digits"].test
    assert test is not None
    for line in lines.values():
        assert (
            line["attack"]
            == {"name": "lira", "shadows": 8, "pool": line["shadows"]["pool"]}
            == attack.attack.settings
        )
        assert 0.3 < line["scores"]["auc"] < 0.7
        assert line["scores"]["tpr_1"] == line["roc"]["tpr_at"]["0.01"]["value"]
        assert line["scores"]["tpr_0.1"] is None  # a few hundred test digits cannot show 0.1 %
        assert line["roc"]["others"] == len(test)
        assert line["shadows"]["models"] == 8
        assert 0 < line["shadows"]["test"] < 1
    text = render(make_table(LIRA, Results(tmp_path), {}), "text")
    assert "with 8 shadow models" in text
    assert "for 1 epochs: accuracy" in text


@pytest.mark.parametrize("before", ["", "test:"])
def test_lira_knows_samples_by_their_ids(pool: Path, before: str) -> None:
    lira, shadows = ShadowAttacker(Attack("lira", shadows=8), pool), Pool(pool)
    # Where test samples have the ids of training samples, a pool puts a word before theirs.
    lira.pool.ids = np.where(
        shadows.roles == "candidate", shadows.ids, np.char.add(before, shadows.ids)
    )
    chosen = np.concatenate(
        [np.flatnonzero(shadows.roles == role)[:100] for role in ("candidate", "test")]
    )
    held = shadows.margins("before").models(np.arange(8)).at(shadows.ids[chosen])
    out = np.ma.masked_array(held.values.astype(np.float64), held.members)
    # Each known sample is half a deviation above its own mean, each unseen one below it. At the
    # mean of another sample this says less.
    own = (out.mean(0) + np.repeat([0.5, -0.5], 100) * out.std(0, ddof=1)).data
    names, logits = held.ids, np.stack([own, np.zeros_like(own)], axis=1)

    def found(rows: np.ndarray, said_of: np.ndarray) -> float:
        sides = [
            Outputs(names[part], logits[values], np.zeros(100, int))
            for part, values in zip(*(np.split(both, 2) for both in (rows, said_of)), strict=True)
        ]
        return float(lira(Target(*sides), "samples", 0).scores["auc"] or 0.0)

    straight = np.arange(200)
    turned = np.concatenate(
        [np.random.default_rng(seed).permutation(100) + 100 * seed for seed in (0, 1)]
    )
    assert found(straight, straight) > 0.95
    assert found(turned, turned) > 0.95
    assert found(turned, straight) < 0.85
    with pytest.raises(BadInput, match="are not among the model's"):
        lira(
            Target(
                *(
                    Outputs(
                        np.array([f"nobody{row}" for row in range(9)]), logits[:9], np.zeros(9, int)
                    ),
                )
                * 2
            ),
            "samples",
            0,
        )


def test_a_pool_that_does_not_fit(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"128 shadow models, .* 10: .*--models 128"):
        attacker(Attack("lira"), pool)
    with pytest.raises(BadInput, match=r"4 shadow models .* 8 or more; got 7"):
        attacker(Attack("lira", shadows=7), pool)
    shutil.copytree(pool, tmp_path / "share")
    for number in (7, 9):  # no longer two and two that share the samples out
        (tmp_path / "share" / f"model-{number:04d}.safetensors").unlink()
    with pytest.raises(BadInput, match=r"first 8 in .*share only 3"):
        attacker(Attack("lira", shadows=8), tmp_path / "share")
    with pytest.raises(BadInput, match="give their folder with --pool"):
        attacker(Attack("lira"), None)
    assert (
        len(ShadowAttacker(Attack("lira", shadows=8), pool).shadows) == 8
    )  # further models of a pool do not change the table
    facts = facts_of(digits()["digits"])
    lira = attacker(Attack("lira", shadows=8), pool)
    fitting = experiment(LIRA, cell_of(LIRA, "duck", 3, facts=facts), facts)
    lira.check(
        [
            fitting,
            replace(
                fitting,
                training=replace(
                    fitting.training, recipe=replace(fitting.training.recipe, epochs=40)
                ),
            ),
        ]
    )
    with pytest.raises(BadInput, match=r"model: 'convnet' .* 'allcnn'"):
        lira.check([replace(fitting, training=replace(fitting.training, model="allcnn"))])
    request = Experiment(fitting.training, ForgetClasses([3]), METHODS["original"]())
    build_pool(tmp_path / "request", PoolPlan(request), digits()["digits"], 2, device=CPU)
    with pytest.raises(BadInput, match="design 'request'"):
        attacker(Attack("lira", shadows=8), tmp_path / "request")


def test_what_a_model_says_is_kept_by_id(tmp_path: Path) -> None:
    store, model = ArtifactStore(tmp_path), trained_net().train()
    assert read_target(store, Key("predictions", "x")) is None
    for scenario, unseen in ((class_scenario(), 50), (samples_scenario(), 200)):
        predictions = predict_target(model, scenario)
        assert predictions is not None
        store.write(Key("predictions", "x"), predictions)
        found = read_target(store, Key("predictions", "x"))
        assert found is not None
        assert found.forgotten.ids.tolist() == scenario.data.train.ids[scenario.forget].tolist()
        assert len(found.unseen) == unseen  # all test samples of what is forgotten, the holdout too
        image = next(scenario.data.train.take(scenario.forget[3:4]).batches(1)).images
        with torch.no_grad():
            assert found.forgotten.logits[3] == pytest.approx(
                trained_net().eval()(image)[0].numpy(), abs=1e-5
            )
        assert (
            found.forgotten.labels.tolist() == scenario.data.train.labels[scenario.forget].tolist()
        )
    (file,) = (tmp_path / "predictions").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600  # it contains ids of forgotten samples
    file.write_bytes(b"half")
    with pytest.warns(CacheWarning, match=f"{file.name} cannot be read"):
        assert read_target(store, Key("predictions", "x")) is None


def test_a_model_that_says_nan_is_scored_but_not_attacked(tmp_path: Path) -> None:
    store, model = ArtifactStore(tmp_path), trained_net()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    predictions = predict_target(model, class_scenario())
    assert predictions is not None
    store.write(Key("predictions", "x"), predictions)
    with pytest.raises(BadInput, match=r"60 of 60 outputs .*\(NaN\)"):
        read_target(store, Key("predictions", "x"))


def test_a_disk_that_is_full_does_not_cost_the_result(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "predictions").write_text("in the way")
    made = run(
        replace(FEW, methods=("original",), settings={}),
        tmp_path / "results",
        tmp_path / "models",
        "scenario=samples",
    )
    (line,) = (line for line in made.values() if line["method"] == "original")
    assert line["scores"]["test"] > 0
    assert line["notes"][-1].endswith(": File exists.")


def test_the_confidence_attack_scores_certainty_whatever_the_class(
    tmp_path: Path, models: Path
) -> None:
    """All samples get another class, the members with surer outputs.

    The probability of their own class says the opposite.
    """
    labels, ids = np.zeros(200, dtype=np.int64), np.arange(200).astype(np.str_)
    height = np.random.default_rng(0).normal(3, 0.5, (2, 200))
    sides = [
        Outputs(
            np.char.add(name, ids),
            np.stack([np.zeros(200), high + shift, np.zeros(200)], 1),
            labels,
        )
        for name, high, shift in zip("ab", height, (1.5, 0.0), strict=True)
    ]
    found = attacker(Attack("confidence"), None)(Target(*sides), "class", 0)
    auc = found.scores["auc"]
    assert auc is not None
    assert auc > 0.95
    assert found.roc is not None
    assert auc == found.roc.auc["value"]
    assert found.scores["tpr_0.1"] is None  # 200 unseen samples cannot show it
    swapped = attacker(Attack("confidence"), None)(Target(*reversed(sides)), "class", 0)
    assert swapped.scores["auc"] == pytest.approx(1 - auc)
    grid = replace(SVM, attack=Attack("confidence"), name="toy/confidence")
    made = run(
        grid,
        tmp_path,
        models,
        "scenario=samples,method=original",
        attacker(Attack("confidence"), None),
    )
    line = made["digits, seed 0: confidence of original (standard)"]
    assert line["attack"] == {"name": "confidence"}
    test = digits()["digits"].test
    assert test is not None
    assert line["roc"]["others"] == len(test)
    (row, *_) = rows_of(make_table(grid, Results(tmp_path), parse_only("scenario=samples", grid)))
    assert (row["auc"]["mean"], row["auc"]["paper"]) == (line["scores"]["auc"], None)


def test_the_papers_grids() -> None:
    svm, lira = find_grid("paper/svm"), find_grid("paper/lira")
    tables = {
        ("cifar10", "class"): "table-cr",
        ("cifar10", "samples"): "table-hr",
        ("cifar100", "class"): "table-cr",
    }
    for (dataset, scenario), name in tables.items():
        (ours,) = (
            block for block in svm.blocks if (block.dataset, block.scenario) == (dataset, scenario)
        )
        # So that a model of that table is a target of this one.
        assert ours in [
            replace(block, trials=0, searched=()) for block in find_grid(f"paper/{name}").blocks
        ]
    assert {(block.dataset, len(block.cases)) for block in svm.blocks} == {
        ("cifar10", 10),
        ("cifar100", 10),
    }
    assert [(block.dataset, block.classes, block.seeds) for block in lira.blocks] == [
        ("cifar10", (0, 1, 2, 3, 4), ()), ("cifar10", (), (0, 1, 2, 3, 4)),
    ]  # fmt: skip
    assert svm.methods == lira.methods == ("original", "retrained", "duck")
    assert (svm.attack, lira.attack) == (Attack("svm", splits=5), Attack("lira", shadows=128))
    plain = find_grid("beyond/confidence")
    assert (plain.attack, plain.methods) == (Attack("confidence"), svm.methods)
    assert all(block in svm.blocks for block in plain.blocks)


def attack_line(
    grid: Grid,
    method: str,
    case: int,
    scores: dict[str, float | None],
    preset: str = "paper",
    pool: str = "",
) -> dict[str, Any]:
    """`pool` of LiRA: a name with as many letters as its models were trained for epochs."""
    assert grid.attack is not None
    attack = replace(grid.attack, pool=pool)
    line = line_of(grid, cell_of(grid, method, case, preset), scores=scores)
    made = experiment(grid, cell_of(grid, method, case, preset), FACTS)
    shadows = {
        "models": grid.attack.shadows,
        "pool": pool,
        "epochs": len(pool),
        "train": 0.99,
        "test": 0.9,
        "recipe": {"epochs": len(pool)},
    }
    found = {"shadows": shadows} if attack.needs_pool else {}
    names = {"id": result_id(made, attack), "attack": attack.settings}
    return {**line, **names, "scores": scores, **found}


def test_a_table_of_f1_with_that_of_the_paper(tmp_path: Path) -> None:
    results, grid = Results(tmp_path), find_grid("paper/svm")
    for case, ours, oracle in ((0, 0.76, 0.75), (1, 0.78, 0.74)):
        append(
            results, "svm", attack_line(grid, "duck", case, {"f1": ours, "chance": 0.75}, "tuned")
        )
        append(results, "svm", attack_line(grid, "retrained", case, {"f1": oracle, "chance": 0.75}))
        append(
            results, "scores", line_of(grid, cell_of(grid, "duck", case, "tuned"))
        )  # of another table
    table = make_table(grid, results, parse_only("dataset=cifar10,scenario=class", grid))
    rows = {row["method"]: row for row in rows_of(table)}
    assert rows["duck"]["f1"] == pytest.approx(
        {"mean": 0.77, "std": 0.02 / 2**0.5, "paper": 0.7472}
    )
    assert rows["duck"]["gap_to_retrained"] == pytest.approx({"f1": 0.025, "n": 2})
    assert (rows["original"]["n"], rows["original"]["f1"]["paper"]) == (0, pytest.approx(0.7707))
    assert table.notes == ["Never run in cifar10, class: duck (paper)."]
    lines = render(table, "text").splitlines()
    assert lines[0].startswith("cifar10, class, resnet18 (forgotten against test ")
    assert lines[0].endswith(", 3:1, chance 75)")
    assert lines[1].split() == ["method", "preset", "n", "F1", "%", "paper", "gap", "F1", "seconds"]
    assert lines[4].split()[-6:] == ["77.00", "±", "1.41", "74.72", "+2.50", "1.00"]
    assert (
        render(table, "csv")
        .splitlines()[0]
        .startswith(
            "dataset,scenario,model,recipe,removed,fraction,method,variant,preset,n,of,"
            "f1_mean,f1_std,f1_paper,gap_f1"
        )
    )
    (printed,) = (
        row
        for row in json.loads(render(table, "json"))
        if (row["method"], row["preset"]) == ("duck", "tuned")
    )
    assert (printed["f1"]["mean"], printed["chance"]) == pytest.approx((0.77, 0.75))
    assert (rows["original"]["chance"], rows["retrained"]["chance"]) == (None, 0.75)
    other = replace(grid, attack=Attack("svm", splits=3))
    assert make_table(other, results, {}).notes[-1].startswith("Left out: 4 results ")


def test_an_attack_is_expected_to_take_as_long_as_attacks_did(tmp_path: Path) -> None:
    results, grid = Results(tmp_path), find_grid("paper/svm")
    job = Job(
        "cifar10",
        experiment(grid, cell_of(grid, "duck", 1), FACTS),
        cell_of(grid, "duck", 1),
        grid.attack,
    )
    append(results, "scores", {**line_of(grid, cell_of(grid, "duck", 0)), "wall_seconds": 40.0})
    assert expected(job, results) is None
    append(results, "svm", {**attack_line(grid, "duck", 0, {"f1": 0.7}), "wall_seconds": 7.0})
    assert expected(job, results) == 7
    assert expected(replace(job, measurement=None), results) == 40


def rates(tpr_1: float | None, tpr_01: float | None, auc: float) -> dict[str, float | None]:
    return {"tpr_1": tpr_1, "tpr_0.1": tpr_01, "auc": auc, "f1": 0.9}


def test_a_table_of_true_positive_rates_with_those_of_the_paper(tmp_path: Path) -> None:
    results, grid = Results(tmp_path), find_grid("paper/lira")

    def put(method: str, case: int, scores: dict[str, float | None]) -> None:
        append(results, "lira", attack_line(grid, method, case, scores, pool="abc"))

    def rows(only: str) -> list[dict[str, Any]]:
        return rows_of(make_table(grid, results, parse_only(only, grid)))

    put("original", 0, rates(0.11, 0.05, 0.64))
    put("original", 1, rates(0.13, None, 0.66))
    (row,) = rows("scenario=class,method=original")
    assert row["tpr_1"] == pytest.approx({"mean": 0.12, "std": 0.02 / 2**0.5, "paper": 0.12})
    assert row["tpr_0.1"] == {"mean": 0.05, "std": None, "paper": pytest.approx(0.066)}
    assert row["auc"]["paper"] == 0.655
    assert row["f1"]["paper"] is None
    notes = make_table(grid, results, {}).notes
    assert ["pool abc" in note for note in notes] == [True] * 4 + [False]
    assert "128 shadow models" in notes[0]
    assert "epochs 3 instead of 60" in notes[1]
    assert notes[2:4] == [
        f"Never run in cifar10, {kind}, pool abc: duck (tuned)." for kind in ("class", "samples")
    ]
    assert "TPR@0.1%FPR" in notes[4]
    put("retrained", 1, rates(None, None, 0.5))
    assert ["TPR@1%FPR" in note for note in make_table(grid, results, {}).notes[4:]] == [
        True,
        False,
    ]
    assert len(make_table(grid, results, parse_only("scenario=samples", grid)).notes) == 3
    hr = rows("scenario=samples,method=duck")[0]
    assert (hr["tpr_1"]["paper"], hr["tpr_0.1"]["paper"], hr["auc"]["paper"]) == pytest.approx(
        (0.01, 0.001, 0.506)
    )
    assert render(make_table(grid, results, {}), "latex").count(r"TPR@0.1\%FPR \%") == 2
    # No columns for what the paper never measured.
    for one, has_paper in ((grid, True), (find_grid("beyond/confidence"), False)):
        head = render(make_table(one, results, {}), "text").splitlines()[1]
        assert ("paper" in head.split()) == has_paper


@pytest.mark.parametrize(
    ("recipe", "differs"),
    [
        ({"epochs": 60, "lr": 0.4}, {}),
        ({"epochs": 16, "lr": 0.2}, {"epochs": [16, 60], "lr": [0.2, 0.4]}),
        ({"epochs": 90}, {"epochs": [90, 60]}),
        # Compilation and precision change the speed, not what a model memorises.
        ({"epochs": 60, "compile": True}, {}),
    ],
)
def test_a_pool_with_another_recipe_than_its_targets_is_marked(
    recipe: dict[str, Any], differs: dict[str, Any], tmp_path: Path
) -> None:
    results, grid = Results(tmp_path), find_grid("paper/lira")
    scores: dict[str, float | None] = {"tpr_1": 0.1, "tpr_0.1": 0.05, "auc": 0.6, "f1": 0.9}
    line = attack_line(grid, "duck", 0, scores, pool="abc")
    line["shadows"] |= {"epochs": recipe["epochs"], "recipe": recipe}
    append(results, "lira", line)
    table = make_table(grid, results, parse_only("scenario=class,method=duck,preset=paper", grid))
    assert rows_of(table)[0]["shadows"]["differs"] == differs
    assert any(note.startswith("Mismatched pool abc") for note in table.notes) == bool(differs)
    # Only models that were trained for less show less.
    assert any("are lower bounds of" in note for note in table.notes) == (recipe["epochs"] < 60)


def test_results_of_two_pools_never_share_a_mean(tmp_path: Path) -> None:
    results, grid = Results(tmp_path), find_grid("paper/lira")
    only = parse_only("scenario=class,preset=paper", grid)

    def put(method: str, case: int, auc: float, pool: str, **rest: Any) -> None:
        line = attack_line(grid, method, case, rates(0.1, 0.1, auc), pool=pool)
        append(results, "lira", {**line, **rest})

    put("original", 0, 0.5, "ab")
    put("original", 1, 0.9, "abcdef")
    put("original", 2, 0.8, "abcdef")
    put("retrained", 2, 0.5, "ab")
    put("duck", 2, 0.7, "abcdef")
    table = make_table(grid, results, only)
    aucs = {
        (row["shadows"]["pool"], row["method"]): (row["n"], row["auc"]["mean"])
        for row in rows_of(table)
    }
    assert aucs == {
        ("ab", "original"): (1, 0.5), ("ab", "retrained"): (1, 0.5), ("ab", "duck"): (0, None),
        ("abcdef", "original"): (2, pytest.approx(0.85)),
        ("abcdef", "retrained"): (0, None), ("abcdef", "duck"): (1, 0.7),
    }  # fmt: skip
    # The gap is not to the retrained models of the other pool.
    gaps = [row["gap_to_retrained"] for row in rows_of(table) if row["method"] == "duck"]
    assert gaps == [None, None]
    text = render(table, "text")
    titles = [
        line.partition(" (")[0] for line in text.splitlines() if "cifar10, class, res" in line
    ]
    assert titles == [f"cifar10, class, resnet18, pool {pool}" for pool in ("ab", "abcdef")]
    assert "results of 2 pools" in text
    assert [line.split(",")[11:16] for line in render(table, "csv").splitlines()[1::3]] == [
        ["ab", "128", "2", "0.99", "0.9"], ["abcdef", "128", "6", "0.99", "0.9"],
    ]  # fmt: skip
    one = make_table(replace(grid, attack=Attack("lira", pool="ab")), results, only)
    assert [(row["method"], row["n"], row["shadows"]["pool"]) for row in rows_of(one)] == [
        ("original", 1, "ab"), ("retrained", 1, "ab"), ("duck", 0, "ab"),
    ]  # fmt: skip
    assert one.notes[-1].startswith("Left out: 3 results")
    put("duck", 0, 0.5, "ab", error="boom")
    failures = [note for note in make_table(grid, results, only).notes if "boom" in note]
    (failure,) = failures
    assert "pool ab, duck (paper) " in failure
    assert failure.endswith(" 1 of 5: boom")
    # A pool without results among what is asked for is no table of its own.
    asked = parse_only("scenario=class,case=1,method=original", grid)
    (row,) = rows_of(make_table(grid, results, asked))
    assert (row["n"], row["shadows"]["pool"]) == (1, "abcdef")


def test_the_command(tmp_path: Path, pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = tmp_path / "lira.toml"
    grid.write_text(
        'methods = ["original"]\npresets = ["paper"]\nattack = { name = "lira", shadows = 8 }\n'
        '[[blocks]]\ndataset = "digits"\n'
        'model = "convnet"\nseeds = [0]\nrecipe = { epochs = 1, batch_size = 256 }\n'
    )

    def bench(*words: object, file: Path = grid, out: str = "results", code: int = 0) -> Any:
        """Run the command; return its JSON, or its message if the exit code is not 0."""
        folders = "--out", tmp_path / out, "--models", tmp_path / "models", "--device", "cpu"
        assert cli.main(["bench", str(file), *map(str, (*folders, *words)), "--json"]) == code
        printed = capsys.readouterr()
        return printed.err if code else json.loads(printed.out)

    def changed(name: str, old: str, new: str) -> Path:
        file = tmp_path / f"{name}.toml"
        file.write_text(grid.read_text().replace(old, new))
        return file

    command = "duck pool --data digits --model convnet --models 8 --epochs 1 --batch-size 256"
    assert command in bench(code=2)
    few = changed("few", "shadows = 8", "shadows = 2")
    assert "so shadows = 8 or more; got 2." in bench("--pool", pool, file=few, code=2)
    assert not (tmp_path / "results").exists()
    counts = {"grid": "lira", "skipped": 0, "ran": 3, "failed": 0, "left": 0}
    assert bench("--pool", pool) == counts
    assert bench("--pool", pool, out="elsewhere")["ran"] == 1  # the outputs of the model are stored
    (row,) = bench("--table")
    assert (row["method"], row["n"], row["auc"]["paper"]) == ("original", 1, None)
    assert 0.3 < row["auc"]["mean"] < 0.7
    # Other shadow models are another attack: it is made, and has rows of its own.
    share = shutil.copytree(pool, tmp_path / "share")
    for number in (0, 1):
        (share / f"model-{number:04d}.safetensors").unlink()
    assert bench("--pool", share) == {**counts, "ran": 1}
    assert bench("--pool", share)["skipped"] == 1
    both, (other,), (first,) = (
        bench("--table", *words) for words in ((), ("--pool", share), ("--pool", pool))
    )
    assert both == [row, other] == [first, other]
    assert (other["n"], row["n"]) == (1, 1)
    assert other["auc"]["mean"] != row["auc"]["mean"]
    digest = row["shadows"]["pool"]
    pinned = changed("pinned", "shadows = 8", f'shadows = 8, pool = "{digest}"')
    assert f"{digest}; those in {share}" in bench("--pool", share, file=pinned, code=2)
    allcnn = changed("allcnn", "convnet", "allcnn")
    assert "model: 'convnet' in the pool" in bench("--pool", pool, file=allcnn, code=2)


def test_the_stored_lines_keep_their_ids() -> None:
    stored = Results(Path(__file__).parent.parent.parent / "benchmarks" / "results")
    ours = {name: line for name, line in stored.results.items() if line.attack}
    assert {line.measurement_name for line in ours.values()} >= {"svm", "confidence"}
    assert len(ours) >= 120
    assert [name for name, line in ours.items() if name != line.id] == []
    assert stored.broken == {}


def test_a_job_of_other_shadow_models_than_the_attackers_fails(
    tmp_path: Path, models: Path, pool: Path
) -> None:
    lira = attacker(LIRA.attack or Attack("lira"), pool)
    jobs = plan(
        LIRA,
        {"digits": facts_of(digits()["digits"])},
        Results(tmp_path),
        parse_only("scenario=samples,method=original", LIRA),
    ).jobs
    assert "different settings" in str(Runner(digits(), models, CPU, lira)(jobs[-1]).error)


def test_an_attack_needs_unseen_samples(tmp_path: Path, models: Path) -> None:
    data = {
        "digits": replace(digits()["digits"], test=None, holdout=torch.empty(0, dtype=torch.int64))
    }
    jobs = plan(
        SVM,
        {"digits": facts_of(data["digits"])},
        Results(tmp_path),
        parse_only("scenario=samples,method=original", SVM),
    ).jobs
    lines = [
        Runner(data, tmp_path / "models", CPU, Attacker(Attack("svm", splits=1)))(job)
        for job in jobs[-1:]
    ]
    assert str(lines[0].error).startswith("BadInput: digits has no test")
