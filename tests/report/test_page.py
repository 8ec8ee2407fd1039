"""The page: its texts and their order, and that nothing from data becomes markup."""

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from duck.report import MAX_PAGE_BYTES, Contents, read_runs, render, write_figures, write_report
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetSamples
from tests.report.folders import (
    attacked,
    bench,
    bench_line,
    shap_image,
    worst_fifty,
    write_assurance,
    write_run,
)

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "input", "br", "img", "path"}


class Page(HTMLParser):
    """What a parser sees: the text of elements, and which scripts it would run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.data: list[Any] = []
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.headings: list[str] = []
        self.kind: str | None = None
        self.ids: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.addresses += [
            value or "" for name, value in attributes if name in ("src", "href", "action")
        ]
        assert not [name for name in found if name.startswith("on")], found
        self.ids += [found["id"] or ""] if "id" in found else []
        if tag == "script":
            self.kind = found.get("type")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            if self.kind == "application/json":
                self.data.append(json.loads(data))
            else:
                self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text.append(data)
            if self.open[-1:] in (["h1"], ["h2"]):
                self.headings.append(data)


def page_of(*folders: Path, **rest: Any) -> Page:
    page = Page(render(Contents(read_runs(folders), **rest)))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    return page


def visible_text(page: Page) -> str:
    return " ".join(" ".join(page.text).split())


def test_one_run_reads_from_the_top(tmp_path: Path) -> None:
    page = page_of(
        write_run(tmp_path / "run", verdict="forgotten", analysis=True, notes=["n too small."])
    )
    assert page.headings == [
        "Unlearning report: class 3 of digits",
        *(
            "What was asked",
            "What was done",
            "Verdict",
            "Accuracies",
            "During unlearning",
            "Class by class",
            "Attacks",
            "Feature space",
        ),
        *("Method and settings", "How to reproduce", "Words on this page"),
    ]
    text = visible_text(page)
    assert "class “3”: 400 of 4,000 training samples." in text
    assert "It processed 400 of the 400 samples" in text
    assert "Forgotten. No attack" in text
    assert "those of 5 retrained models" in text
    assert "0.0 % [0.0, 8.8] after" in text
    assert "n too small." in text
    assert "duck train --config experiment.toml --out original" in text
    assert "torch 2.13.0" in text
    assert len(page.data) == 1 + 1 + 2 + 1 + 2 + 6 + 2


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (None, "Not audited. Accuracies alone"),
        (
            "not forgotten",
            "Not forgotten. The oracle audit",
        ),
        ("no verdict", "No verdict. The oracle audit"),
    ],
)
def test_the_verdict_in_words(tmp_path: Path, verdict: str | None, words: str) -> None:
    text = visible_text(page_of(write_run(tmp_path / "run", verdict=verdict)))
    assert words in text
    assert ("duck audit run --tier oracle" in text) == (verdict is None)
    assert str(tmp_path) not in text
    assert "Forgotten. No attack" not in text


def test_the_verdict_names_limits_above_the_default(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", verdict="forgotten")
    found = json.loads((folder / "audit-oracle.json").read_text())
    limits = {"margin": 0.5, "max_advantage": None, "max_epsilon": 1.0}
    (folder / "audit-oracle.json").write_text(json.dumps({**found, "limits": limits}))
    assert visible_text(page_of(folder)).count("Forgotten within the margin 0.5.") == 1


@pytest.mark.parametrize("powered", [True, None])
def test_an_audit_without_verdict_names_the_stronger_tier(
    tmp_path: Path, powered: bool | None
) -> None:
    folder = write_run(tmp_path / "run", verdict="no verdict")
    found = json.loads((folder / "audit-oracle.json").read_text())
    (folder / "audit-oracle.json").write_text(
        json.dumps({**found, "powered": powered, "tier": "quick"})
    )
    text = visible_text(page_of(folder))
    assert "No verdict. The quick audit" in text
    assert f"duck audit {folder.name} --tier oracle" in text


@pytest.mark.parametrize(
    ("answer", "words"), [("undecided", "could not decide"), ("no", "found no trace")]
)
def test_an_undecided_question_is_no_missing_trace(tmp_path: Path, answer: str, words: str) -> None:
    folder = write_run(tmp_path / "run", verdict="no verdict")
    found = json.loads((folder / "audit-oracle.json").read_text())
    nothing = dict.fromkeys(("value", "low", "high"))
    grade = {"answer": answer, "measure": "", "limit": 0.1, "sentence": "", **nothing}
    found |= {"powered": True, "grades": {"exposed": grade}}
    (folder / "audit-oracle.json").write_text(json.dumps(found))
    assert f"The oracle audit {words}" in visible_text(page_of(folder))


def test_the_suggested_audit_works_where_the_page_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "jane" / "runs" / "run")
    monkeypatch.chdir(tmp_path / "jane")
    for named in (folder, Path("runs/run")):
        assert "duck audit runs/run --tier oracle" in visible_text(page_of(named))
    (folder / "audit-full.json").write_text("{")
    assert "runs/run/audit-full.json cannot be used" in visible_text(page_of(folder))
    # From elsewhere a path as the user typed it, and of an absolute one the last part.
    monkeypatch.chdir(tmp_path / "jane" / "runs")
    assert "duck audit ../runs/run --tier oracle" in visible_text(page_of(Path("../runs/run")))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    page = visible_text(page_of(folder))
    assert "duck audit run --tier oracle" in page
    assert "jane" not in page


def test_a_run_with_assurance_shows_the_methods_that_were_tried_and_their_time(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run")
    assurance = write_assurance(folder, f"Residual memory {EVIL}.")
    record = json.loads((folder / "run.json").read_text())
    record["notes"] = ["n too small.", str(assurance)]
    (folder / "run.json").write_text(json.dumps(record))
    page = page_of(folder, write_run(tmp_path / "other"))
    text = visible_text(page)
    assert text.count(str(assurance)) == 1
    assert "one retraining takes 700 s" in text
    assert f"duck-soft ✗ no Residual memory {EVIL}. no verdict 0.38 2.50 s" in text
    assert "failed: out of memory. – – 0.00 s" in text
    assert "warm-restart ✓ yes Nothing was found. forgotten 0.01 2.2 min" in text
    assert text.count("Methods were tried in turn ") == 1
    # The verdict in a row is not that of the final audit, which the reason may be of.
    assert "the choice Residual memory" in " ".join(text.split())
    (folder / "assurance.json").write_text("{}")
    text = visible_text(page_of(folder))
    assert "run/assurance.json cannot be used: tier " in text
    assert "Methods were tried" not in text


def test_many_runs_have_a_table_and_a_section_each(tmp_path: Path) -> None:
    write_run(tmp_path / "duck", verdict="forgotten")
    write_run(tmp_path / "retrained", "retrained")
    write_run(tmp_path / "tenth", request=ForgetFraction(0.1), verdict="not forgotten")
    html = render(Contents(read_runs([tmp_path])))
    page = Page(html)
    assert html.count("<tr data-method=") == 3
    assert {
        f"#{name}" for name in page.ids if name.startswith("run-") and name.count("-") == 2
    } <= set(page.addresses)
    text = visible_text(page)
    assert "Of 2 runs: 1 not forgotten, 1 forgotten. For comparison: 1 retrained." in text
    assert "Forget class 3 of digits (2 runs)" in text
    # The retrained model stands beside those that answer the same request, and only there.
    assert html.count('<th scope="col" class="num">Retrained</th><th scope="col">Should be') == 1


def test_a_bench_of_attacks_and_studies_alone_has_its_figures() -> None:
    lines = [
        bench_line(
            request=ForgetClasses([case]), case=case, study={"name": "density"}, forgotten=[case],
            density={"train": {"0": 1.0, "1": 2.0, "2": 3.0}},
        )
        for case in (0, 1)
    ]  # fmt: skip
    page = Page(render(Contents(bench=bench(lines))))
    assert page.headings[0] == "Unlearning bench"
    assert "class-densities" in page.ids
    assert "runs-table" not in page.ids
    assert "Least p" in visible_text(page)
    curve = attacked("duck", "paper", [0.0, 1.0], [0.0, 1.0])
    assert "bench-attacks" in Page(render(Contents(bench=[curve]))).ids


def test_variants_stand_in_the_table_under_their_own_name() -> None:
    lines = [bench_line(), bench_line(case=4, variant="no forget loss")]
    html = render(Contents(bench=bench(lines)))
    assert html.count('<tr data-method="duck, no forget loss"') == 1
    assert "<option>duck, no forget loss</option>" in html


def test_what_comes_from_data_is_text(tmp_path: Path) -> None:
    names = [
        EVIL,
        "</script><script>alert(2)</script>",
        "<b>bold</b>",
        "%{x}",
        "a & b",
        'quo"te',
        "<!-- c",
        "x\u2028y",
        "{{ 7*7 }}",
        "ok",
    ]
    folder = write_run(
        tmp_path / "<img src=x onerror=alert(3)>",
        request=ForgetClasses([0]),
        names=names,
        notes=[EVIL],
        verdict="forgotten",
        analysis=True,
    )
    found = json.loads((folder / "audit-oracle.json").read_text())
    found["reasons"] = [EVIL]
    found["attacks"][EVIL] = found["attacks"].pop("svm")
    found["roc"] = {EVIL: found["roc"]["svm"]}
    found["controls"] = {EVIL: {"expected": EVIL, "got": EVIL, "passed": False}}
    (folder / "audit-oracle.json").write_text(json.dumps(found))
    other = write_run(tmp_path / "other", seed=1, verdict="forgotten")
    for page in (page_of(folder), page_of(folder, other)):
        assert len(page.scripts) == 2
        text = visible_text(page)
        assert f"of the class “{EVIL}”" in text
        assert "{{ 7*7 }}" in text
        axes = [panel["layout"][name] for panel in page.data for name in ("xaxis", "yaxis")]
        ticks = [axis["ticktext"] for axis in axes if "ticktext" in axis]
        # Plotly reads some HTML: there the text is escaped once more.
        assert any("&lt;script&gt;alert(1)&lt;/script&gt;" in names for names in ticks)
        assert not [name for names in ticks for name in names if "<" in name]
        assert "<" not in "".join(
            str(trace.get("hovertext", "")) for panel in page.data for trace in panel["data"]
        )


def test_only_its_own_scripts_may_run_and_nothing_is_fetched(tmp_path: Path) -> None:
    html = render(
        Contents(read_runs([write_run(tmp_path / "run", verdict="forgotten", analysis=True)]))
    )
    page = Page(html)
    allowed = re.findall(r"'(sha256-[^']+)'", re.findall(r"script-src ([^\"]+)\"", html)[0])
    assert {
        "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in page.scripts
    } == set(allowed)
    assert "default-src 'none'" in html
    assert [
        address
        for address in page.addresses
        if not address.startswith(("#", "data:image/png;base64,"))
    ] == []
    assert "url(" not in html.split("<style>")[1].split("</style>")[0]


def test_no_id_of_a_forgotten_sample_is_on_the_page(tmp_path: Path) -> None:
    ids = ("jane-doe-1.png", "jane-doe-2.png")
    folder = write_run(tmp_path / "run", request=ForgetSamples(ids), analysis=True)
    maps = {"original": [[0.1, -0.2], [0.0, 0.3]]}
    found = json.loads((folder / "analysis.json").read_text())
    found["shap"] = {
        "images": [
            shap_image(id=name, title=name, forgotten=name in ids, maps=maps)
            for name in (*ids, "unseen.png")
        ]
    }
    (folder / "analysis.json").write_text(json.dumps(found))
    html = render(Contents(read_runs([folder])))
    assert "jane-doe" not in html
    assert "unseen.png" in html
    assert "SHAP maps of 2 images" in html
    assert "sample_ids.json" in html
    assert "--ids ids.txt" in html


def test_no_map_of_a_forgotten_class_is_on_the_page_nor_in_print(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", analysis=True)
    found = json.loads((folder / "analysis.json").read_text())
    found["shap"] = {
        "images": [
            shap_image(
                id="jane-doe",
                title="3 (jane-doe)",
                forgotten=True,
                maps={"original": [[0.1234, -0.2]]},
            )
        ]
    }
    (folder / "analysis.json").write_text(json.dumps(found))
    html = render(Contents(read_runs([folder])))
    assert "jane-doe" not in html
    assert "0.1234" not in html
    assert "SHAP maps of 1 image" in html
    assert "but are not shown" not in html
    assert not [
        file
        for file in write_figures(tmp_path / "figures", Contents(read_runs([folder])))
        if "shap" in file.name
    ]


def test_accuracies_of_single_classes_are_no_rows_of_the_attacks(tmp_path: Path) -> None:
    text = visible_text(page_of(write_run(tmp_path / "run", verdict="forgotten")))
    assert "a threshold on the loss" in text
    assert "accuracy class" not in text


@pytest.mark.slow
def test_fifty_runs_are_quick_and_small(tmp_path: Path) -> None:
    worst_fifty(tmp_path)
    begun = time.process_time()
    page = write_report(tmp_path / "report.html", Contents(read_runs([tmp_path])))
    assert time.process_time() - begun < 20
    assert page.stat().st_size < MAX_PAGE_BYTES == 8_000_000
    assert page.read_text().count('<details class="run"') == 50
    assert page.read_text().count("stored but are not shown.") == 50
    assert page.read_text().count("<summary>8 of 200 classes in a table</summary>") == 50


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", verdict="forgotten", analysis=True)
    assert render(Contents(read_runs([folder]))) == render(Contents(read_runs([folder])))


def test_a_run_without_confusion_and_curves_still_has_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    record["by_class"] |= {"original": None, "unlearned": None}
    record["history"] = []
    (folder / "run.json").write_text(json.dumps(record))
    text = visible_text(page_of(folder))
    assert "No confusion matrix was stored" in text
    assert "No curve was stored" in text
    assert "of the class “3”" in text


def test_a_loss_that_was_no_number_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    record["scores"]["forget_loss"] = None
    (folder / "run.json").write_text(json.dumps(record))
    assert "0.010 before, – after" in visible_text(page_of(folder))


def test_a_page_of_many_runs_names_methods_and_unprocessed_samples(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"duck-{seed}", seed=seed)
    assert "2 runs of 1 method: duck." in render(Contents(read_runs([tmp_path])))
    record = write_run(tmp_path / "ssd", "ssd") / "run.json"
    plain = json.loads(record.read_text())
    plain["samples"]["processed"] = 399
    record.write_text(json.dumps(plain))
    assert "3 runs of 2 methods: duck, ssd. 1 of them left samples out." in render(
        Contents(read_runs([tmp_path]))
    )


def test_many_classes_and_long_names_are_shortened_and_stand_whole_once(tmp_path: Path) -> None:
    names = [f"class {index} {'x' * 52}" for index in range(200)]
    forgotten_classes = list(range(3, 153))
    many = write_run(tmp_path / "many", request=ForgetClasses(forgotten_classes), names=names)
    write_run(tmp_path / "more", request=ForgetClasses([*forgotten_classes[:-1], 199]), names=names)
    write_run(
        tmp_path / "few", request=ForgetClasses([3, 8]), names=[str(index) for index in range(200)]
    )
    page = page_of(many)
    assert page.headings[0] == "Unlearning report: classes 3, 4, 5 and 147 others of digits"
    short = [f"“{name}"[:24] + "…" for name in names[3:6]]
    assert f"of the classes {', '.join(short)} and 147 others: 400 of 4,000" in visible_text(page)
    assert (
        f"All 150 classes {', '.join(f'“{names[index]}”' for index in forgotten_classes)} "
        in visible_text(page)
    )
    html = render(Contents(read_runs([tmp_path])))
    text = visible_text(Page(html))
    # Two requests that begin alike are two, in words and in the filter.
    assert text.count("Forget classes 3, 4, 5 and 147 others of digits (1 run)") == 2
    choices = re.findall(
        r"<option value=\"(classes [^\"]+)\">classes 3, 4, 5 and 147 others</option>", html
    )
    assert sorted(choices) == sorted(
        f"classes {', '.join(map(str, ids))}"
        for ids in (forgotten_classes, [*forgotten_classes[:-1], 199])
    )
    assert all(f'data-request="{choice}"' in html for choice in choices)
    assert "classes 3, 8" in text
    assert text.count("All 150 classes") == 2
    assert "Full name" in visible_text(
        page_of(write_run(tmp_path / "long", request=ForgetClasses([3]), names=names))
    )


def test_a_line_of_a_bench_keeps_its_whole_list(tmp_path: Path) -> None:
    runs = read_runs(
        [
            write_run(
                tmp_path / "run",
                request=ForgetClasses(range(100)),
                names=[str(index) for index in range(200)],
            )
        ]
    )
    text = visible_text(Page(render(Contents(bench=[runs[0].result]))))
    assert (
        f"classes 0, 1, 2 and 97 others all 100 classes {', '.join(map(str, range(100)))} " in text
    )
    assert "all 100 classes" not in visible_text(page_of(tmp_path / "run"))


def test_density_tests_stand_below_their_figure_with_n_and_least_p(tmp_path: Path) -> None:
    for index in range(6):
        folder = write_run(
            tmp_path / str(index), request=ForgetClasses([index]), seed=index, analysis=True
        )
        found = json.loads((folder / "analysis.json").read_text())
        dense = {str(label): -9.0 - index / 10 if label == index else -5.0 for label in range(10)}
        (folder / "analysis.json").write_text(
            json.dumps({**found, "density": {"unlearned": {"train": dense}}})
        )
    text = visible_text(page_of(tmp_path))
    assert "Wilcoxon signed-rank tests, paired" in text
    assert "digits, convnet, train duck −4.25 0.031 6 0.031" in text
    assert (
        text.index("Density of forgotten against retained")
        < text.index("−4.25 0.031")
        < text.index("Each run")
    )
    assert "p, least p" in text
    assert "Wilcoxon" not in visible_text(page_of(tmp_path / "0"))


def test_a_further_request_says_what_was_forgotten_before(tmp_path: Path) -> None:
    folder, other = write_run(tmp_path / "second"), write_run(tmp_path / "alone")
    record = json.loads((folder / "run.json").read_text())
    first = {
        "request": {"name": "samples", "ids": ["secret.png"]},
        "method": {"name": "retrained"},
        "seed": 0,
        "protocol": "holdout",
    }
    record["experiment"]["earlier"] = [first]
    scores = {
        "request": "1 sample",
        "kind": "samples",
        "samples": 1,
        "before": 0.0,
        "after": 1.0,
        "rank_before": 0.5,
        "rank_after": 0.4,
    }
    record["earlier"] = [{**scores, "state": "undecided", "best": 0.0, "best_rank": 0.5}]
    (folder / "run.json").write_text(json.dumps(record))
    html = render(Contents(read_runs([folder])))
    assert "secret.png" not in html
    assert "1 sample (accuracy 0.0 % before this request, 100.0 % after it)." in visible_text(
        Page(html)
    )
    both = visible_text(page_of(folder, other))
    assert "Forget class 3 (after 1 earlier request) of digits (1 run)" in both
    assert "Forget class 3 of digits (1 run)" in both
