"""Damaged runs, audits, analyses and bias removals: the page names them and shows the rest."""

import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duck import cli
from duck.report import Contents, read, read_runs, render
from tests.report.folders import shap_image, write_removal, write_run
from tests.report.test_page import Page, visible_text


def report(capsys: pytest.CaptureFixture[str], out: Path, *paths: Path) -> tuple[int, str, str]:
    """Exit code, what stderr said, and the page's text."""
    capsys.readouterr()
    code = cli.main(["report", *map(str, paths), "-o", str(out)])
    printed = " ".join(capsys.readouterr().err.split())
    return code, printed, visible_text(Page(out.read_text())) if out.exists() else ""


def changed(file: Path, change: Callable[[Any], Any]) -> None:
    plain = json.loads(file.read_text())
    change(plain)
    file.write_text(json.dumps(plain))


def half(file: Path) -> None:
    file.write_text(file.read_text()[:300])


BREAK: dict[str, tuple[Callable[[Path], Any], str]] = {
    "half-written": (half, "broken/run.json cannot be read: "),
    "missing": (Path.unlink, "broken holds no unlearning"),
    "a list": (
        lambda file: file.write_text("[1]"),
        "(it is a list",
    ),
    "no text": (lambda file: file.write_bytes(b"\xff\xfe{}"), "broken/run.json cannot be read: "),
    "nested": (lambda file: file.write_text("[" * 100_000), "broken/run.json cannot be read: "),
    "another experiment": (
        lambda file: file.write_text('{"experiment": {}}'),
        "(experiment: ",
    ),
    "a count too few": (
        lambda file: changed(file, lambda run: run["samples"].pop("processed")),
        "(samples.processed is missing)",
    ),
    "an accuracy of 3": (
        lambda file: changed(file, lambda run: run["scores"].update(test=3)),
        "(scores.test is a number, not a",
    ),
    "NaN": (
        lambda file: changed(file, lambda run: run["scores"].update(aus=math.nan)),
        "(scores.aus is NaN, not a number)",
    ),
    "no class": (
        lambda file: changed(file, lambda run: run["experiment"]["request"].update(classes=[None])),
        "(experiment: ",
    ),
    "no date": (
        lambda file: changed(file, lambda run: run.update(created="soon")),
        "(created is text, not",
    ),
    "other samples": (
        lambda file: changed(
            file, lambda run: run["by_class"]["unlearned"]["3"].update({"9": 400})
        ),
        "(by_class counts other samples",
    ),
}


@pytest.mark.parametrize("how", BREAK)
def test_the_page_is_made_of_the_runs_that_can_be_read(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken = (
        write_run(tmp_path / "runs" / "good"),
        write_run(tmp_path / "runs" / "broken", seed=1),
    )
    spoil, reason = BREAK[how]
    spoil(broken / "run.json")
    out = tmp_path / "report.html"
    code, printed, page = report(capsys, out, broken, good)
    assert code == 0
    assert (
        f"{tmp_path}/runs/{reason}" in printed
        if reason.startswith("broken")
        else f"{broken}/run.json is not a valid run" in printed and reason in printed
    )
    assert "Could not be read: " in page
    assert reason in page
    assert page.index(reason) < page.index("What was asked")
    assert "Run good, made" in page
    assert str(tmp_path) not in page
    if how != "missing":
        assert report(capsys, out, tmp_path / "runs")[0::2] == (0, page)
    out.unlink()
    code, printed, page = report(capsys, out, broken)
    assert (code, page) == (2, "")
    assert reason in printed


def test_a_run_that_lost_all_accuracy_does_not_stop_the_page_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, ruined = write_run(tmp_path / "good"), write_run(tmp_path / "ruined", method="ssd")
    changed(
        ruined / "run.json",
        lambda run: run["scores"].update(test=0.0, retain_test=0.0, retain=0.0, aus=0.05),
    )
    changed(ruined / "run.json", lambda run: run["original"].update(test=1.0, retain_test=1.0))
    code, _, page = report(capsys, tmp_path / "report.html", good, ruined)
    assert code == 0
    assert "AUS: what is still remembered" in page


def test_where_no_run_can_be_read_each_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        half(write_run(tmp_path / name) / "run.json")
    (tmp_path / "empty").mkdir()
    code, printed, page = report(
        capsys, tmp_path / "report.html", tmp_path / "a", tmp_path / "b", tmp_path / "empty"
    )
    assert (code, page) == (2, "")
    assert [
        printed.count(f"{tmp_path / name}")
        for name in ("a/run.json", "b/run.json", "empty holds no unlearning")
    ] == [1, 1, 1]


def test_unread_runs_are_part_of_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "good")
    half(write_run(tmp_path / "[bold]bad") / "run.json")
    assert cli.main(["report", str(tmp_path), "-o", str(tmp_path / "report.html"), "--json"]) == 0
    out, err = capsys.readouterr()
    (message,) = json.loads(out)["unread"]
    assert message in err.replace("\n", "")
    assert "[bold]bad/run.json" in message


AUDIT: dict[str, tuple[Any, str]] = {
    "a list": (lambda _: [1], "it is a list"),
    "no verdict": (lambda audit: audit.pop("verdict"), "verdict is missing"),
    "another verdict": (
        lambda audit: audit.update(verdict="perhaps"),
        "verdict is text, not one",
    ),
    "reasons": (lambda audit: audit.update(reasons=None), "reasons is null"),
    "attacks": (lambda audit: audit.update(attacks=[1]), "attacks is a list"),
    "an attack without unit": (
        lambda audit: audit["attacks"]["svm"].pop("unit"),
        "attacks.svm.unit is missing",
    ),
    "NaN": (
        lambda audit: audit["attacks"]["svm"]["unlearned"].update(value=math.nan),
        "attacks.svm.unlearned.value is NaN",
    ),
    "a text for a number": (
        lambda audit: audit["attacks"]["svm"].update(p="x"),
        "attacks.svm.p is text, not a number",
    ),
    "a control": (
        lambda audit: audit["controls"].update(other=3),
        "controls.other is a number, not",
    ),
    "a short curve": (
        lambda audit: audit["roc"]["svm"]["original"]["fpr"].pop(),
        "roc.svm.original has fpr, tpr of",
    ),
}
ANALYSIS: dict[str, tuple[Any, str]] = {
    "a list": (lambda _: [], "it is a list"),
    "tsne": (lambda found: found.update(tsne=3), "tsne is a number"),
    "a missing column": (
        lambda found: found["tsne"]["original"]["train"].pop("x"),
        "tsne.original.train.x is missing",
    ),
    "a short column": (
        lambda found: found["tsne"]["original"]["train"]["y"].pop(),
        "tsne.original.train has x, y, label, forget",
    ),
    "NaN": (
        lambda found: found["tsne"]["unlearned"]["test"]["x"].append(math.nan),
        "tsne.unlearned.test.x[200] is NaN",
    ),
    "a class": (
        lambda found: found["density"]["original"]["train"].update(three=1.0),
        "density.original.train.three is text, not the index",
    ),
    "no density": (
        lambda found: found["density"]["original"]["train"].update({"3": "x"}),
        "density.original.train.3 is text",
    ),
    "no map": (
        lambda found: found.update(shap={"images": [shap_image(id="1", title="1", maps={})]}),
        "shap.images[0] has no maps",
    ),
    "a ragged map": (
        lambda found: found.update(
            shap={"images": [shap_image(id="1", title="1", maps={"original": [[1], [1, 2]]})]}
        ),
        "shap.images[0] has a map without",
    ),
}


@pytest.mark.parametrize(
    ("file", "how", "again"),
    [("audit-oracle.json", how, "audit {} --tier oracle") for how in AUDIT]
    + [("audit-quick.json", "no verdict", "audit {}")]
    + [("analysis.json", how, "analyse {}") for how in ANALYSIS]
    + [
        (file, "half", f"{word} {{}}")
        for file, word in (("audit-quick.json", "audit"), ("analysis.json", "analyse"))
    ],
)
def test_a_broken_file_in_the_folder_of_a_run_is_named_and_the_run_shown(
    file: str, how: str, again: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    folder = write_run(runs / "one", verdict="forgotten", analysis=True)
    if "audit" in file:
        (folder / "audit-oracle.json").rename(folder / file)
    reason = "it is not complete JSON"
    if how == "half":
        half(folder / file)
    else:
        spoil, reason = (AUDIT if "audit" in file else ANALYSIS)[how]
        plain = json.loads((folder / file).read_text())
        (folder / file).write_text(
            json.dumps(spoil(plain) if how == "a list" else (spoil(plain), plain)[1])
        )
    out = tmp_path / "report.html"
    code, printed, page = report(capsys, out, folder)
    assert code == 0
    assert f"{folder / file} cannot be used: {reason}" in printed
    assert f"run `duck {again.format(folder)}`" in printed
    assert f"one/{file} cannot be used: {reason}" in page
    assert f"run `duck {again.format('one')}`" in page
    assert str(tmp_path) not in page
    assert page.count("cannot be used") == 1
    assert ("Feature space" in page) == ("audit" in file)
    # Its audit was made: the page must not say that there was none, nor repeat its verdict.
    assert (
        ("stored audit cannot be read" in page)
        == ("No audit can be read." in page)
        == ("audit" in file)
    )
    assert "Not audited." not in page
    assert ("Forgotten. No attack" in page) == ("audit" not in file)
    write_run(runs / "two", seed=1)
    code, _, page = report(capsys, out, runs)
    assert code == 0
    assert page.index("Shown without a file") < page.index(f": one/{file}")
    assert page.index(f": one/{file}") < page.index("What was asked")
    judged = "1 not audited, 1 with an unreadable audit" if "audit" in file else "1 forgotten"
    assert judged in page
    write_run(runs / "three", seed=2, verdict="forgotten")
    judged = (
        "Of 3 runs: 1 not audited, 1 with an unreadable audit, 1 forgotten."
        if "audit" in file
        else "Of 3 runs: 1 not audited, 2 forgotten."
    )
    assert judged in report(capsys, out, runs)[2]


def test_a_weaker_audit_stands_in_for_a_broken_one_and_the_page_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", verdict="forgotten")
    (folder / "audit-full.json").write_text("{")
    (stored,) = read_runs([folder])
    assert stored.verdict == "forgotten"
    page = visible_text(Page(render(Contents([stored]))))
    assert "Forgotten. No attack" in page
    assert "run `duck audit " in page
    assert page.index("run/audit-full.json cannot be used") < page.index("Accuracies ")


def spoilt(folder: Path) -> dict[str, bytes]:
    """Maps beside a bias removal, each broken in its own way."""
    whole = np.zeros((2, 8, 8), np.float32)
    three = dict.fromkeys(("biased", "duck", "corrected"), whole)
    kinds = {
        "one missing": {"biased": whole, "duck": whole},
        "shapes": {**three, "corrected": whole[:1]},
        "flat": dict.fromkeys(three, whole[0]),
        "none": dict.fromkeys(three, whole[:0]),
        "NaN": {**three, "duck": np.full_like(whole, np.nan)},
        "texts": {**three, "duck": np.full(whole.shape, "x")},
        "objects": {**three, "duck": np.full(whole.shape, None)},
    }
    made: dict[str, bytes] = {
        "no zip": b"no zip",
        "empty": b"",
        "cut": (folder / "shap.npz").read_bytes()[:-40],
    }
    for name, maps in kinds.items():
        file = io.BytesIO()
        np.savez(file, **maps)
        made[name] = file.getvalue()
    file = io.BytesIO()
    np.save(file, whole)
    made["npy"] = file.getvalue()
    zipped = (folder / "shap.npz").read_bytes()
    for name, at in (
        ("scrambled", zipped.index(b"biased.npy") + 28),
        ("of another version", zipped.index(b"PK\x01\x02") + 4),
    ):
        made[name] = zipped[:at] + b"\xff" * 6 + zipped[at + 6 :]
    return made


def test_maps_that_cannot_be_used_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_removal(tmp_path / "bias")
    for how, content in spoilt(folder).items():
        (folder / "shap.npz").write_bytes(content)
        contents = read([folder])
        ((removal,), unread) = contents.removals, contents.problems
        assert (dict(removal.maps), unread) == ({}, []), how
        page = visible_text(Page(render(contents)))
        assert "bias/shap.npz cannot be used: " in page, how
    code, printed, page = report(capsys, tmp_path / "report.html", folder)
    assert code == 0
    assert f"{folder}/shap.npz cannot be used" in printed
    assert "Influence of the square" in page


def test_a_broken_bias_removal_among_others_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_removal(tmp_path / "good")
    write_run(tmp_path / "run")
    changed(
        write_removal(tmp_path / "bad") / "bias.json",
        lambda found: found["predicted"]["duck"]["wrong"].update(interval=[1]),
    )
    code, printed, page = report(capsys, tmp_path / "report.html", tmp_path)
    assert code == 0
    assert f"{tmp_path}/bad/bias.json is no bias removal: predicted.duck.wrong has" in printed
    assert "Could not be read: bad/bias.json is no bias removal" in page
    assert "Bias removal" in page


@pytest.mark.slow
def test_runs_of_equal_names_are_distinguished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at, name in enumerate(("a/same", "b/same", "x/c/far", "y/c/far", "b/other")):
        write_run(tmp_path / name, seed=at)
    folders = [tmp_path / name for name in ("a/same", "b/same", "x/c/far", "y/c/far", "b/other")]
    runs = read(folders).runs
    assert [run.result.name for run in runs] == ["a/same", "b/same", "x/c/far", "y/c/far", "other"]
    assert [run.anchor for run in runs[:2]] == ["run-1-a-same", "run-2-b-same"]
    out = ["-o", str(tmp_path / "report.html"), "--figures", str(tmp_path / "figures"), "--json"]
    assert cli.main(["report", *map(str, folders[:2]), *out]) == 0
    printed = json.loads(capsys.readouterr().out)["figures"]
    assert len(set(printed)) == len(printed) == len(list((tmp_path / "figures").iterdir()))
    assert {Path(file).name for file in printed} >= {
        "run-1-a-same-curves.png",
        "run-2-b-same-curves.png",
    }


def test_a_folder_with_only_an_original_and_a_broken_run_names_the_broken_one(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "runs" / "original")
    changed(folder / "run.json", lambda run: run["experiment"].update(method=None, request=None))
    shutil.copytree(folder, tmp_path / "runs" / "broken")
    (tmp_path / "runs" / "broken" / "run.json").write_text('{"experiment": 3}')
    contents = read([tmp_path / "runs"])
    runs, unread = contents.runs, contents.problems
    assert runs == []
    assert [one.folder.name for one in unread] == ["broken"]
