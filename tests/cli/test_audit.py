"""duck audit: exit codes, JSON, stored audits and models, and what is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import duck as duck_library
from duck import cli
from duck.audits.auditing import run_audit
from duck.audits.verdict import Audit
from duck.errors import BadInput
from duck.json_text import to_json
from duck.report import read_runs
from tests.audits import pools
from tests.audits.witnesses import CONTROLS
from tests.cli.commands import run as duck
from tests.cli.commands import split, train_digits

EXIT_CODES = {"forgotten": 0, "not forgotten": 1, "no verdict": 3}
KEYS = {"verdict", "powered", "tier", "reasons", "attacks", "controls", "roc", "seconds", "date"}


def audit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code, out, err = duck(capsys, "audit", *words, "--json")
    reply = json.loads(out)
    assert code == EXIT_CODES[reply["verdict"]], err
    return code, reply


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train_digits(folder / "original", 6)
    for method in ("original", "duck", "retrained"):
        words = split(
            "--run {} --classes 3 --method {} --out {} --json",
            folder / "original",
            method,
            folder / method / "run",
        )
        assert cli.main(["forget", *words]) == (1 if method == "original" else 0)
    return folder


@pytest.fixture(scope="module")
def audited(runs: Path) -> dict[str, Path]:
    """The three runs side by side, so that retrained models are shared."""
    places = {}
    for method in ("original", "duck", "retrained"):
        places[method] = runs / f"class-{method}"
        shutil.copytree(runs / method / "run", places[method])
    return places


@pytest.mark.slow
def test_an_audit_is_stored_even_if_its_reader_stops(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "original" / "run", tmp_path / "run")
    words = [
        sys.executable,
        *split("-m duck audit {} --original {} --json", folder, runs / "original"),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 141
    assert json.loads((folder / "audit-quick.json").read_text())["verdict"] == "not forgotten"


def test_a_verdict_stands_where_it_cannot_be_stored(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(runs / "original" / "run", tmp_path / "run")
    (folder / "audit-quick.json").mkdir()
    code, out, err = duck(capsys, "audit", str(folder))
    assert code == 1
    assert "Verdict (quick tier): not forgotten." in out
    assert "done but not stored" in err


def test_an_audit_is_not_stored_with_a_run_that_replaced_the_audited_one(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shutil.copytree(runs / "original" / "run", tmp_path / "run")
    forget = split("forget --run {} --classes 3 --method original", runs / "original")

    def replace_run_during_audit(*arguments: Any) -> Audit:
        found = run_audit(*arguments)
        assert cli.main([*forget, "--out", str(folder), "--overwrite"]) == 1
        return found

    monkeypatch.setattr("duck.commands.audit.run_audit", replace_run_during_audit)
    original = str(runs / "original")
    code, out, err = duck(capsys, "audit", str(folder), "--original", original)
    assert code == 2
    assert "Verdict (quick tier): not forgotten." in out
    assert "replaced" in err
    assert not (folder / "audit-quick.json").exists()
    with pytest.raises(BadInput, match="replaced"):
        duck_library.audit(folder, original=original)
    assert not (folder / "audit-quick.json").exists()


def test_quick_convicts_the_original_and_is_silent_about_a_retrained_model(
    audited: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, reply = audit(capsys, str(audited["original"]))
    assert (code, reply["verdict"], reply["tier"]) == (1, "not forgotten", "quick")
    assert any("still recognises" in reason for reason in reply["reasons"])
    code, reply = audit(capsys, str(audited["retrained"]))
    assert (code, reply["verdict"]) == (3, "no verdict")
    assert set(reply) >= KEYS
    assert json.loads((audited["retrained"] / "audit-quick.json").read_text()) == reply


def test_python_audits_a_folder_as_the_command_does(
    runs: Path, audited: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = audited["original"]
    _, printed = audit(capsys, str(folder))
    found = duck_library.audit(folder, device="cpu")
    assert found.verdict == printed["verdict"]
    stored = json.loads((folder / "audit-quick.json").read_text())
    assert stored["seconds"] == found.seconds
    others = dict.fromkeys(("seconds", "next_steps"))  # The suggestions keep the device.
    assert {**stored, **others} == {**printed, **others}
    opened = duck_library.open_run(folder)
    assert opened.find_original() == runs / "original"
    assert opened.find_by_method("retrained") == audited["retrained"]
    assert len(opened.scenario.forget) == opened.run.samples["forget"]


def test_python_refuses_arguments_that_a_folder_does_not_take(
    audited: dict[str, Path], tmp_path: Path
) -> None:
    folder = audited["original"]
    scenario = duck_library.open_run(folder).scenario
    for arguments in (
        {"scenario": scenario},
        {"recipe": duck_library.Recipe()},
        {"original": torch.nn.Linear(1, 1)},
        {"retrained": [torch.nn.Linear(1, 1)]},
        {"poool": tmp_path},
        {"pool": tmp_path},
    ):
        with pytest.raises(BadInput):
            duck_library.audit(folder, **arguments)
    # A model in memory has no folder to find a pool in.
    with pytest.raises(BadInput, match="folder of a run"):
        duck_library.audit(
            torch.nn.Linear(1, 1), scenario, original=torch.nn.Linear(1, 1), tier="full"
        )


@pytest.mark.slow
def test_oracle_trains_what_is_missing_once_and_judges(
    audited: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, reply = audit(capsys, str(audited["retrained"]), "--tier", "oracle", "--models", "6")
    assert (code, reply["verdict"], reply["powered"]) == (0, "forgotten", True)
    assert reply["models"] == 6
    assert {
        name: control["passed"] for name, control in reply["controls"].items()
    } == dict.fromkeys(CONTROLS, True)
    kept = {
        path: path.stat().st_mtime_ns
        for path in audited["original"].parent.glob(".artifacts/retrained/*.safetensors")
    }
    assert len(kept) == 6 + 3  # and three planted models
    code, reply = audit(capsys, str(audited["original"]), "--tier", "oracle", "--models", "6")
    assert (code, reply["verdict"]) == (1, "not forgotten")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    code, out, _ = duck(capsys, "audit", str(audited["duck"]), "--tier", "oracle", "--models", "6")
    assert out.startswith("Verdict (oracle tier): ")
    assert "140 training samples of digits (class 3). Method: duck." in out
    assert "Not tested:" in out
    kept_audit = (audited["duck"] / "audit-oracle.json").read_text()
    assert json.loads(kept_audit)["tier"] == "oracle"
    assert code == EXIT_CODES[json.loads(kept_audit)["verdict"]]
    audit(capsys, str(audited["duck"]))  # a weaker one afterwards
    assert (audited["duck"] / "audit-oracle.json").read_text() == kept_audit
    (stored,) = read_runs([audited["duck"]])
    assert stored.audit is not None
    assert json.loads(to_json(stored.audit.to_dict())) == json.loads(kept_audit)


def test_given_retrained_runs_are_checked(
    audited: dict[str, Path], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(audited["duck"])
    code, _, err = duck(
        capsys, "audit", run, *split("--tier oracle --models 1 --retrained {}", audited["original"])
    )
    assert code == 2
    assert "its method is not 'retrained'" in err
    code, reply = audit(
        capsys, run, *split("--tier oracle --models 1 --retrained {}", audited["retrained"])
    )
    assert (code, reply["models"], reply["verdict"]) == (3, 1, "no verdict")
    twice = [str(audited["retrained"]), str(runs / "retrained" / "run")]
    code, _, err = duck(
        capsys, "audit", run, *split("--tier oracle --models 2 --retrained"), *twice
    )
    assert code == 2
    assert "0 and 1 are the same" in err
    code, _, err = duck(
        capsys, "audit", twice[0], *split("--tier oracle --models 1 --retrained"), twice[1]
    )
    assert code == 2
    assert "is itself retrained model 0" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tier", "oracle", "--models", "0"], "at least 1, got 0"),
        (["--models", "-3"], "at least 1, got -3"),
        (["--margin", "1"], "between 0 and 1, got 1"),
        (["--max-advantage", "0"], "between 0 and 1, got 0"),
        (["--max-epsilon", "0"], "must be positive, got 0"),
        (["--retrained", "x"], "tier takes no retrained models"),
        (["--default-recipe"], "takes no default recipe"),
        (["--tier", "oracle", "--default-recipe"], "--default-recipe is for originals"),
        (["--tier", "oracle", "--pool", "x"], "oracle tier takes no pool"),
        (["--pool-models", "32"], "quick tier takes no pool"),
        (["--tier", "oracle", "--retrained", "nosuch.pt"], "nosuch.pt does not exist"),
        (["--tier", "full", "--pool", "x", "--pool-models", "32"], "give one of them"),
    ],
)
def test_what_a_tier_does_not_use_is_refused_and_nothing_is_kept(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = duck(capsys, "audit", str(runs / "duck" / "run"), *words)
    assert code == 2
    assert message in " ".join(err.split())
    assert not list((runs / "duck" / "run").glob("audit*"))


@pytest.mark.slow
def test_retrained_models_of_another_normalisation_are_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, pixels in (("own", []), ("dark", ["--mean", "0.9", "--std", "0.05"])):
        train = [
            *split("train --data digits --epochs 1"),
            *pixels,
            "--out",
            str(tmp_path / "originals" / name),
            "--json",
        ]
        assert cli.main(train) == 0
        run = [
            "--run",
            train[-2],
            *split("--classes 3 --method original --out {} --json", tmp_path / name),
        ]
        assert cli.main(["forget", *run]) == 1  # nothing is forgotten
        audit(capsys, str(tmp_path / name), "--tier", "oracle", "--models", "1")
    assert len(list(tmp_path.glob(".artifacts/retrained/*.safetensors"))) == 2


def test_original_must_name_the_original_of_the_run(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(split("train --data digits --epochs 1 --out {} --json", tmp_path / "other")) == 0
    )
    for folder, message in (
        (audited["duck"], "it was made by duck"),
        (tmp_path / "other", "is another original"),
    ):
        code, out, err = duck(capsys, "audit", str(audited["duck"]), "--original", str(folder))
        assert (code, out) == (2, "")
        assert message in " ".join(err.split())
    for folder in (
        audited["original"],
        audited["duck"].parent / "original",
        audited["original"] / "model.safetensors",
    ):
        assert (
            audit(capsys, str(audited["duck"]), "--original", str(folder))[1]["attacks"][
                "accuracy forget"
            ]["original"]["value"]
            > 0.9
        )


@pytest.mark.slow
def test_no_recipe_is_made_up_for_an_original_from_elsewhere(
    runs: Path, audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, run = runs / "original" / "model.safetensors", tmp_path / "run"
    words = split(
        "--data digits --model convnet --weights {} --classes 3 --out {} --json", weights, run
    )
    assert cli.main(["forget", *words]) == 0
    oracle = (str(run), "--tier", "oracle", "--models", "1", "--original", str(weights))
    given = ["--retrained", str(audited["retrained"])]
    for more, advice in (
        ([], "Give --retrained with 1"),
        (["--tier", "full", *given], "with --pool."),
        ([*given, "--models", "3"], "add --models 1."),
    ):
        code, _, err = duck(capsys, "audit", *oracle, *more)
        assert code == 2
        assert "its recipe is not known" in " ".join(err.split())
        assert advice in " ".join(err.split())
    assert [path.name for path in tmp_path.iterdir() if path.name != ".artifacts"] == ["run"]
    assert "elsewhere" not in str(
        audit(capsys, str(run), "--original", str(weights))[1]["reasons"]
    )  # quick: no other model
    # Somebody who knows the recipe can give models of it; whoever does not has to say so.
    _, reply = audit(capsys, *oracle, *given)
    assert reply["models"] == 1
    assert "original was trained elsewhere" in reply["reasons"][-1]
    _, reply = audit(capsys, *oracle, "--default-recipe")
    assert reply["models"] == len(list(tmp_path.glob(".artifacts/retrained/*"))) == 1


def test_a_run_that_is_made_again_has_no_audit(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "duck" / "run", run)
    for name in ("audit-quick.json", "audit-oracle.json", "audit-full.json"):
        (run / name).write_text("{}")
    words = split(
        "--run {} --classes 3 --method original --out {} --overwrite --json", runs / "original", run
    )
    assert duck(capsys, "forget", *words)[0] == 1  # nothing is forgotten
    assert not list(run.glob("audit*"))


def test_one_sample_gets_numbers_and_no_verdict_and_nothing_is_trained_for_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("5\n")
    words = split(
        "--run {} --ids {} --method original --out {} --json",
        runs / "original",
        ids,
        tmp_path / "one",
    )
    code, _, err = duck(capsys, "forget", *words)
    assert code == 1, err  # nothing is forgotten
    for tier in ("quick", "oracle"):
        code, reply = audit(capsys, str(tmp_path / "one"), "--tier", tier)
        assert (code, reply["verdict"], reply["tier"]) == (3, "no verdict", tier)
        row = reply["attacks"]["loss percentile"]
        assert 0 <= row["unlearned"]["value"] == row["original"]["value"] <= 1
        assert 10 < row["n"] < 60
    assert not (tmp_path / ".artifacts" / "retrained").exists()


@pytest.mark.slow
def test_retrained_models_may_be_files_of_weights(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.safetensors"
    state = tmp_path / "mine.pt"
    shutil.copy(audited["retrained"] / "model.safetensors", mine)
    changed = {name: 1.01 * value for name, value in load_file(mine).items()}
    torch.save(changed, state)
    words = [str(audited["duck"]), "--tier", "oracle", "--models", "2", "--no-planted"]
    _, reply = audit(capsys, *words, "--retrained", str(mine), str(state))
    assert reply["models"] == 2
    assert any("files of weights" in reason for reason in reply["reasons"])


def test_no_run_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = duck(capsys, "audit", str(tmp_path / "nowhere"))
    assert code == 2
    assert "`duck forget --out" in err
    assert "duck train" not in err


def test_a_pool_of_other_data_is_refused_with_what_differs(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools.build(tmp_path / "pool", pools.plan(), 2)
    code, _, err = duck(
        capsys, *split("audit {} --tier full --pool {}", audited["duck"], tmp_path / "pool")
    )
    assert code == 2
    assert "does not fit" in err
    assert "'toy' in the pool, 'digits'" in err


@pytest.mark.slow
def test_a_pool_too_small_is_refused_before_anything_is_trained(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"  # beside it no retrained model is kept
    shutil.copytree(audited["duck"], run)
    words = (
        "audit",
        str(run),
        "--tier",
        "full",
        "--original",
        str(audited["duck"].parent / "original"),
    )
    code, _, err = duck(capsys, *words, "--pool-models", "18")
    assert code == 2
    assert "20 models, got 18" in err
    assert (
        duck(
            capsys, *split("pool --run {} --models 2 --out {} --workers 1", run, tmp_path / "pool")
        )[0]
        == 0
    )
    code, _, err = duck(capsys, *words, "--pool", str(tmp_path / "pool"))
    assert code == 2
    assert "at least 20 and 10" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool", "run"]


def test_a_model_that_gives_no_numbers_is_refused(
    audited: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(audited["duck"], broken)
    weights = load_file(broken / "model.safetensors")
    name = next(name for name, value in weights.items() if value.dim() == 4)
    save_file(
        {**weights, name: torch.full_like(weights[name], torch.inf)}, broken / "model.safetensors"
    )
    code, _, err = duck(capsys, "audit", str(broken), "--original", str(audited["original"]))
    assert code == 2
    assert "outputs that are no numbers" in err


def test_data_without_unseen_samples_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.random.default_rng(0).integers(0, 255, (60, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images, labels=np.arange(60) % 3)
    words = split(
        "--data {} --model convnet --epochs 1 --out {} --json",
        tmp_path / "images.npz",
        tmp_path / "original",
    )
    assert cli.main(["train", *words]) == 0
    words = split(
        "--data {} --model convnet --weights {}",
        tmp_path / "images.npz",
        tmp_path / "original" / "model.safetensors",
    )
    # Images of noise may be forgotten or not.
    assert cli.main(
        ["forget", *words, "--classes", "1", "--out", str(tmp_path / "forgot"), "--json"]
    ) in (0, 1)
    code, _, err = duck(
        capsys,
        *split(
            "audit {} --original {}",
            tmp_path / "forgot",
            tmp_path / "original" / "model.safetensors",
        ),
    )
    assert code == 2
    assert "The holdout is empty" in err


def test_an_original_run_is_no_unlearning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = duck(capsys, "audit", str(runs / "original"))
    assert code == 2
    assert "is an original model" in err


def test_every_line_of_an_audit_is_in_the_list_of_attacks(
    audited: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = duck(capsys, "list", "attacks", "--json")
    assert code == 0
    listed = json.loads(out)
    assert set(listed[0]) == {"name", "tier", "judged", "about", "needs", "paper"}
    names = [entry["name"] for entry in listed]
    _, reply = audit(capsys, str(audited["duck"]))
    assert [row for row in reply["attacks"] if not any(name in row for name in names)] == []
