"""What the documents say runs, and what they show is there."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from duck.audits.attacks import ATTACKS
from duck.audits.listing import list_attacks
from duck.audits.quick import quick
from duck.bench import Attack, attacker
from duck.bench.outputs import Target
from duck.methods import METHODS
from duck.unlearning import unlearn
from tests.audits.witnesses import sample_model, samples_setting
from tests.toys import RECIPE, class_scenario, trained_net

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "results" / "README.md",
]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run_as_module(code: str, file: Path) -> None:
    """Write the code of a page to a file and import it."""
    file.write_text(code)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))


def test_the_method_of_the_docs_is_short_and_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = blocks(ROOT / "docs" / "add-a-method.md")
    assert len([line for line in code.splitlines() if line.strip()]) < 40
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS))
    run_as_module(code, tmp_path / "uniform.py")
    method = METHODS["uniform"](lr=5e-3, epochs=8)  # type: ignore[call-arg]
    outcome = unlearn(method, trained_net(), class_scenario(), recipe=RECIPE)
    assert outcome.scores.forget < 0.5
    assert outcome.scores.forget_loss > 1
    assert outcome.scores.retain > 0.95
    assert outcome.processed == outcome.forget_samples


def test_the_attack_of_the_docs_is_short_and_one_file_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = blocks(ROOT / "docs" / "extend" / "attack.md")
    assert len(code.splitlines()) < 50
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS))
    run_as_module(code, tmp_path / "logit.py")
    leaking = sample_model(0, 4.0)
    audit = quick(samples_setting(), leaking, leaking, "subject")
    row = audit.attacks["logit attack"]
    assert row.unlearned is not None
    assert row.unlearned.value > 0.8
    assert (row.judged, row.p) == (False, None)
    assert set(audit.roc["logit attack"]) == {"original", "unlearned"}
    (entry,) = (entry for entry in list_attacks() if entry["name"] == "logit attack")
    assert (entry["tier"], entry["judged"], entry["needs"]) == ("quick", False, "outputs")
    target = Target(leaking.forget.take(), leaking.unseen.take())
    result = attacker(Attack("logit"), None)(target, "samples", 0)
    assert result["scores"]["auc"] == pytest.approx(row.unlearned.value)


def test_a_decisive_attack_of_the_docs_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = blocks(ROOT / "docs" / "extend" / "attack.md")
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS))
    run_as_module(code.replace("decisive = False", "decisive = True"), tmp_path / "logit.py")
    audit = quick(samples_setting(), sample_model(1, 4.0), sample_model(0, 4.0), "subject")
    row = audit.attacks["logit attack"]
    assert row.judged
    assert row.p is not None
    assert row.p < 1e-3


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_python_block_parses() -> None:
    for page in PAGES:
        for code in blocks(page):
            compile(code, str(page), "exec")


def test_the_readme_names_the_arrays_of_an_npz() -> None:
    from duck.data.arrays import KEYS

    text = (ROOT / "README.md").read_text()
    assert [key for key in KEYS if f"`{key}`" not in text] == []


def test_the_readme_lists_every_command() -> None:
    from duck.cli import COMMANDS

    text = (ROOT / "README.md").read_text()
    assert [
        word for word in COMMANDS if f"duck {word}" not in text and f"make {word}" not in text
    ] == []


def test_the_generated_parts_of_the_results_are_those_of_the_result_files() -> None:
    from write_tables import PAGES, PART, written

    text = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    commands = [part[0] for page in text.values() for part in PART.findall(page)]
    assert sum(page.count("<!-- begin -->") for page in text.values()) == len(commands)
    needed = (
        "--status",
        "--claims",
        "paper/table-cr",
        "paper/ablation",
        "paper/multi-class",
        "paper/time",
        "recipes.jsonl",
        "-search.jsonl",
    )
    for part in needed:
        assert any(part in command for command in commands), part
    for name, page in text.items():
        assert written(page) == page, (
            f"{name}: python benchmarks/write_tables.py brings it up to date"
        )
