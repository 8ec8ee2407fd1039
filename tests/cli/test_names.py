"""What is printed about a run: the request, the verdict, no control characters."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import duck
from duck import cli
from duck.errors import BadInput
from duck.methods import Original
from duck.scenarios import ForgetClasses, ForgetSamples, describe
from tests.cli.commands import Runner
from tests.toys import toy_data, toy_examples, trained_net

ESCAPE = "\x1b[31mred\x1b[0m"


def test_a_result_names_the_request_and_the_verdict() -> None:
    by_class = str(duck.forget(trained_net(), toy_data(), ForgetClasses(["b"])))
    assert "Request: class b, 60 samples." in by_class
    assert "Verdict: none without an audit" in by_class
    assert "duck.audit(result)" in by_class
    nothing = str(duck.forget(trained_net(), toy_data(), [1, 2], method=Original()))
    assert "2 samples: '1', '2'" in nothing
    assert "Verdict: not forgotten." in nothing


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of classes of which one has a name with terminal escapes."""
    folder = tmp_path_factory.mktemp("names") / "images"
    toys = toy_examples(120, seed=0)
    for row, (image, label) in enumerate(zip(toys.images, toys.labels.tolist(), strict=True)):
        place = folder / ("a", "b", "c", ESCAPE)[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{row}.png")
    return folder


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    folder = images.parent / "original"
    words = ["train", "--data", images, "--model", "convnet", "--epochs", "12", "--out", folder]
    assert cli.main([str(word) for word in words]) == 0
    return folder


def test_show_names_the_request_and_the_verdict(run: Path, tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "forgot"
    duck.run("forget --run", run, "--classes b --out", out)
    shown = duck.run("show", out).out
    count = json.loads((out / "run.json").read_text())["samples"]["forget"]
    assert f"{count} samples ('b' {count})" in shown
    assert f"`duck audit {out}`" in shown
    for tier, verdict in (("quick", "not forgotten"), ("oracle", "forgotten")):
        audit = {"verdict": verdict, "tier": tier, "models": 5}
        (out / f"audit-{tier}.json").write_text(json.dumps(audit))
        assert f"Verdict ({tier} audit): {verdict}." in duck.run("show", out).out
    undecided = {"verdict": "no verdict", "tier": "full"}
    (out / "audit-full.json").write_text(json.dumps(undecided))
    shown = duck.run("show", out).out
    assert "Verdict (oracle audit): forgotten." in shown
    assert "audit-full.json" in shown
    (out / "audit-oracle.json").write_text("{")
    assert "audit-oracle.json cannot be read" in duck.run("show", out).out
    assert "Verdict" not in duck.run("show", run).out


def test_show_counts_ids_once(run: Path, tmp_path: Path, duck: Runner) -> None:
    out, ids = tmp_path / "retrained", tmp_path / "ids.txt"
    ids.write_text("\n".join(listed_ids(run)))
    words = "--method retrained --max-accuracy-loss 1 --out"
    duck.run("forget --run", run, "--ids", ids, words, out)
    lines = duck.run("show", out).out.splitlines()
    (request,) = [line for line in lines if line.startswith("Request:")]
    assert request.count("3 samples") == 1
    assert "Method retrained" in lines


def listed_ids(run: Path) -> list[str]:
    """Return the ids of three training samples of a run of images."""
    folder = run.parent / "images"
    return [str(file.relative_to(folder)) for file in sorted(folder.glob("b/*.png"))[:12:4]]


def test_show_of_a_run_that_forgot_nothing(run: Path, tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "same"
    duck.run("forget --run", run, "--fraction 0.2 --method original --out", out, code=1)
    assert "Verdict: not forgotten." in duck.run("show", out).out


def test_names_are_printed_without_terminal_escapes(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"forgot {ESCAPE}"
    words = ["--run", str(run), "--classes", ESCAPE]
    for command in (
        ["forget", *words, "--out", str(out)],
        ["show", str(out)],
        ["audit", str(out)],
        ["compare", *words, "--methods", "original"],
        ["forget", "--run", str(run), "--classes", f"{ESCAPE}x"],
        ["show", str(tmp_path / ESCAPE)],
        ["forget", "--run", str(run), "--ids", str(tmp_path / ESCAPE)],
        [ESCAPE],
    ):
        capsys.readouterr()
        cli.main(command)
        message = "".join(capsys.readouterr())
        assert "\x1b" not in message, command
        assert "\\x1b[31mred" in message, command


def test_names_in_errors_and_requests_are_escaped() -> None:
    assert str(BadInput(f"No class {ESCAPE}.")) == "No class \\x1b[31mred\\x1b[0m."
    assert str(BadInput("two\nlines, ünïcode 猫")) == "two\nlines, ünïcode 猫"
    assert describe(ForgetClasses([ESCAPE])) == "class \\x1b[31mred\\x1b[0m"
    assert describe(ForgetSamples(np.array(["1"]))) == "1 sample"
