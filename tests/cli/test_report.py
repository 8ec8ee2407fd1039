"""duck report as a user runs it: on real runs, with their data at hand and without."""

import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from duck import cli
from duck import runs as runs_module
from tests.bench.stored import FACTS, FEW, cell_of, line_of
from tests.cli.commands import duck, split, train_digits
from tests.report.folders import bench_curve, write_removal, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    train_digits(root / "original", 4)
    (root / "ids.txt").write_text("1\n2\n5\n")
    quick = ["--method", "duck", "--max-epochs", "1", "--low-epochs", "1"]
    for name, who in (("class", ["--classes", "3"]), ("ids", ["--ids", str(root / "ids.txt")])):
        assert (
            cli.main(
                ["forget", "--run", str(root / "original"), *who, *quick, "--out", str(root / name)]
            )
            == 0
        )
    return root


def test_a_folder_of_runs_becomes_a_page(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "report.html"
    printed = duck(capsys, "report", str(runs), "-o", str(out), "--json")
    assert printed == {"report": str(out), "runs": 2, "removals": 0, "unread": [], "figures": []}
    page = out.read_text()
    assert page.count('<details class="run"') == 2
    assert page.count('id="run-1-class-confusion"') == 1
    assert "<img" not in page.partition("<script>")[0]
    assert "3 of 1,472 training samples" in page


def test_a_page_that_is_too_large_to_send_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "small")
    write_run(tmp_path / "large", notes=["x" * 4_000_000])
    for name in ("small", "large"):
        assert cli.main(["report", str(tmp_path / name), "-o", str(tmp_path / "report.html")]) == 0
        printed = " ".join(capsys.readouterr().err.split())
        assert ("larger than 8 MB" in printed) == (name == "large")


def test_the_commands_on_the_page_make_the_run_again(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    duck(capsys, "report", str(runs / "ids"), "-o", str(tmp_path / "report.html"), "--json")
    blocks = re.findall(
        r"<pre><code>(.*?)</code></pre>", (tmp_path / "report.html").read_text(), re.DOTALL
    )
    commands, toml = (block.replace("&#34;", '"').replace("&#39;", "'") for block in blocks)
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(toml)
    Path("ids.txt").write_text("1\n2\n5\n")
    for command in commands.strip().splitlines():
        assert cli.main(shlex.split(command)[1:]) == 0
    first, again = (
        json.loads((folder / "run.json").read_text())
        for folder in (runs / "ids", tmp_path / "again")
    )
    assert (
        runs_module.load(tmp_path / "again").experiment == runs_module.load(runs / "ids").experiment
    )
    assert again["scores"] == first["scores"]
    assert again["by_class"] == first["by_class"]


def test_a_place_that_cannot_be_written_is_named(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(workdir / "run")
    Path("file").touch()
    for words, expected in (
        (["-o", "run"], "run is a folder"),
        (["-o", "file/x.html"], "file is not a folder"),
        (["--figures", "file"], "file is not a folder"),
    ):
        message = duck(capsys, "report", "run", *words, code=2)
        assert expected in message
        assert "Errno" not in message
    assert not Path("report.html").exists()


def test_samples_are_shown_only_when_asked_for(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    duck(capsys, "report", str(runs / "ids"), "-o", str(out), "--show-samples", "--json")
    page = out.read_text()
    assert "were to be forgotten" in page
    shown = re.findall(
        r'<li><img src="data:image/png;base64,[^"]+" alt="Sample (\d+), a (\d)"><br>\1'
        r"<br>true class: \2<br>before: (\d)<br>after: (\d)",
        page,
    )
    assert [sample[0] for sample in shown] == ["1", "2", "5"]
    assert [sample[1] for sample in shown] == [sample[2] for sample in shown] == ["1", "2", "5"]
    # Few samples become as hard as unseen ones, which the model knows: none is misclassified.
    assert all(sample[3].isdigit() for sample in shown)


def test_results_of_a_bench_join_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "results").mkdir()
    rest = {
        "original": {"aus": 0.5, "forget": 1.0, "retain_test": 0.9, "forget_test": 0.9},
        "forget_samples": 140,
    }
    grid = replace(FEW, blocks=(replace(FEW.blocks[0], dataset="cifar10"),))
    lines = [
        line_of(grid, cell_of(grid, method, 3), FACTS, **rest) for method in ("duck", "retrained")
    ]
    scores = {"tpr_1": 0.01, "tpr_0.1": None, "auc": 0.5}
    curve = {
        "attack": {"name": "confidence"},
        "scores": scores,
        "roc": asdict(bench_curve([0, 1], [0, 1])),
        "id": "attacked",
    }
    lines.append({**lines[0], **curve})
    (tmp_path / "results" / "grid.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in lines)
    )
    words = split("report {} -o {} --json --results", tmp_path / "run", tmp_path / "report.html")
    duck(capsys, *words, str(tmp_path / "results"))
    assert (tmp_path / "report.html").read_text().count("<tr data-method=") == 3
    duck(
        capsys,
        *split("report --results {} -o {} --json", tmp_path / "results", tmp_path / "bench.html"),
    )
    alone = (tmp_path / "bench.html").read_text()
    assert "<h1>Unlearning bench: 2 runs</h1>" in alone
    assert alone.count("<tr data-method=") == 2
    assert "the models of a bench" in alone
    assert "<h2>What was asked</h2>" not in alone
    err = duck(capsys, *words, str(tmp_path), code=2)
    assert "`duck bench`: --results" in err


@pytest.mark.slow
def test_bias_removals_alone_and_with_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_removal(tmp_path / "bias")
    out = ["-o", str(tmp_path / "report.html"), "--figures", str(tmp_path / "figures"), "--json"]
    printed = duck(capsys, "report", str(tmp_path / "bias"), *out)
    assert (printed["runs"], printed["removals"], len(printed["figures"])) == (0, 1, 6)
    assert (
        "<h1>Bias removal report: “1” labelled “9” in digits</h1>"
        in (tmp_path / "report.html").read_text()
    )
    write_run(tmp_path / "run")
    printed = duck(capsys, "report", str(tmp_path), *out)
    assert (printed["runs"], printed["removals"]) == (1, 1)
    page = (tmp_path / "report.html").read_text()
    assert page.index("<h2>Accuracies</h2>") < page.index('<h2 id="bias-removal">Bias removal</h2>')


def test_figures_for_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a b", verdict="forgotten")
    words = split(
        "report {} -o {} --figures {} --json",
        tmp_path / "a b",
        tmp_path / "r.html",
        tmp_path / "figures",
    )
    files = [Path(file) for file in duck(capsys, *words)["figures"]]
    names = [
        "aus-contour",
        *(f"run-1-a-b-{name}" for name in ("curves", "confusion", "classes", "attacks")),
    ]
    assert [file.name for file in files] == [
        f"{name}.{kind}" for name in names for kind in ("png", "pdf")
    ]
    assert all(file.stat().st_size > 3000 for file in files)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report"], "Name the runs"),
        (["report", "nowhere"], "nowhere is not a run"),
        (["report", "ORIGINAL"], "is an original model"),
    ],
)
def test_wrong_input(
    words: list[str], message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("ORIGINAL", str(runs / "original")) for word in words]
    assert message in duck(capsys, *words, "-o", str(tmp_path / "report.html"), code=2)
    assert not (tmp_path / "report.html").exists()


def test_only_a_page_of_ours_is_replaced_and_in_one_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = write_run(tmp_path / "run"), tmp_path / "report.html"
    record = (run / "run.json").read_text()
    printed = duck(capsys, "report", str(run), "-o", str(run / "run.json"), code=2)
    assert "run.json exists" in printed
    assert (run / "run.json").read_text() == record
    out.write_text("<!doctype html><title>My thesis</title>")
    duck(capsys, "report", str(run), "-o", str(out), code=2)
    assert out.read_text() == "<!doctype html><title>My thesis</title>"
    out.unlink()
    duck(capsys, "report", str(run), "-o", str(out), "--json")
    (tmp_path / "sent.html").hardlink_to(out)
    page = out.read_text()
    write_run(tmp_path / "second", seed=1)
    duck(capsys, "report", str(run), str(tmp_path / "second"), "-o", str(out), "--json")
    assert (tmp_path / "sent.html").read_text() == page != out.read_text()


@pytest.mark.slow
def test_only_figures_of_ours_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, figures = write_run(tmp_path / "run"), tmp_path / "figures"
    words = split("report {} -o {} --figures {} --json", run, tmp_path / "report.html", figures)
    drawn = duck(capsys, *words)["figures"]
    assert duck(capsys, *words)["figures"] == drawn
    for file in map(Path, drawn[:2]):
        ours = file.read_bytes()
        file.write_bytes(b"a picture of mine")
        assert f"{file} exists" in duck(capsys, *words, code=2)
        assert file.read_bytes() == b"a picture of mine"
        file.write_bytes(ours)
