"""The files around the package: settings of tools, citation, continuous integration."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def package_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[><=]", requirement)[0]).lower()


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_continuous_integration_runs_the_commands_of_a_developer() -> None:
    workflow = read_yaml(".github/workflows/ci.yml")
    test, docs = workflow["jobs"]["test"], workflow["jobs"]["docs"]
    assert test["strategy"]["matrix"]["python"] == ["3.11", "3.12"]
    assert test["steps"][-1] == {"run": "make check test-all"}
    assert docs["steps"][-1] == {"run": "make docs"}
    assert workflow["jobs"]["wheel"]["steps"][-1] == {"run": "make wheel-check"}
    assert "make check test-all\n" in (ROOT / ".ci" / "run").read_text()
    assert workflow["permissions"] == {"contents": "read"}


def test_only_make_test_leaves_out_the_slow_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(test|test-all): .*\n\t(.+)$", makefile, re.MULTILINE))
    assert recipes == {"test": '$(PYTEST) -m "not slow and not gpu"', "test-all": "$(PYTEST)"}


def test_documented_make_targets_exist() -> None:
    # Only targets in code are meant: "make a model" is a sentence.
    lines = [
        *re.findall(r"`make ([a-z -]+)`", (ROOT / "CONTRIBUTING.md").read_text()),
        *re.findall(r"^    make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE),
        *re.findall(r"^    make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE),
    ]
    named = set(" ".join(lines).split())
    assert {"demo", "test", "docs", "wheel-check"} <= named
    assert named <= make_targets()


def test_the_demo_installs_no_development_tools() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: \$\(CORE\)", makefile, re.MULTILINE)
    core = makefile[makefile.index("$(CORE): pyproject.toml") :].split("\n\n")[0]
    assert "--editable ." in core
    assert "[" not in core


def test_the_citation_names_the_paper_and_the_version_of_the_package() -> None:
    citation = read_yaml("CITATION.cff")
    (paper,) = citation["references"]
    assert citation["version"] == read_project()["version"]
    assert citation["license"] == read_project()["license"]
    assert citation["authors"] == [{"name": "duck-unlearning contributors"}]
    families = [author["family-names"] for author in paper["authors"]]
    assert families == ["Cotogni", "Bonato", "Sabetta", "Pelosin", "Nicolosi"]
    assert paper["identifiers"] == [{"type": "other", "value": "arXiv:2312.02052"}]
    assert paper["year"] == 2023


@pytest.mark.parametrize("extra", ["dev", "docs", "tune", "figures", "explain", "ray"])
def test_every_package_of_an_extra_is_pinned(extra: str) -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {package_name(line) for line in text.splitlines() if "==" in line}
    packages = {package_name(line) for line in read_project()["optional-dependencies"][extra]}
    assert packages - {"duck-unlearning"} <= pinned


def test_every_direct_dependency_has_a_reason() -> None:
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    project = read_project()
    packages = {package_name(line) for line in project["dependencies"]}
    for extra in project["optional-dependencies"].values():
        packages |= {package_name(line) for line in extra}
    assert {name for name in packages if name not in reasons} == {"duck-unlearning"}


def test_the_documentation_checks_its_links_and_loads_no_fonts() -> None:
    settings = read_yaml("mkdocs.yml")
    assert settings["theme"]["font"] is False
    assert set(settings["validation"]["links"].values()) == {"warn"}
    assert set(settings["validation"]["nav"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()


def test_the_navigation_lists_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w-]+\.md)$", text, re.MULTILINE))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string or of an f-string; `{}` stands for a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    return None


def texts_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string below a node; of a table, only of its values."""
    text = text_of(node)
    if text is not None:
        yield node.lineno, text  # type: ignore[attr-defined]
        return
    inner = node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
    for child in inner:
        yield from texts_in(child)


def compared_with(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what a test compares with: asserts, `match=`, parameters, and tables of cases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize":
            yield from node.args
        elif isinstance(node, ast.For):
            yield node.iter
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield node.value


def words_in_a_row(text: str) -> int:
    """Count the words of the longest part of a text without numbers, names, quotes and symbols."""
    longest = count = 0
    for part in text.split():
        is_word = re.fullmatch(r"[A-Za-z]+(['’-][A-Za-z]+)*", part.strip(".,;:!?()^$\\"))
        count = count + 1 if is_word else 0
        longest = max(longest, count)
    return longest


def test_tests_compare_with_at_most_five_words_of_a_message() -> None:
    sentences = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (ROOT / "tests").rglob("*.py")
        for part in compared_with(ast.parse(path.read_text(encoding="utf-8")))
        for line, text in texts_in(part)
        # Texts of several lines are code or files.
        if "\n" not in text and words_in_a_row(text) > 5
    }
    assert sorted(sentences) == []
