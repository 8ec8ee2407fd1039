"""The shape of the package: light to import, layered, and what it says of itself is true."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import duck

ROOT = Path(duck.__file__).parent
# What stands in a row may import from the rows above it and from its own.
LAYERS = [
    ["printable", "errors", "registry", "json_text", "checks"],
    ["files", "records"],
    ["sample_ids"],
    ["engines"],
    ["runtime"],
    ["types", "data"],
    ["scenarios"],
    ["models"],
    ["predict"],
    ["training"],
    ["methods"],
    ["experiment"],
    ["artifacts"],
    ["metrics", "earlier_requests", "preparation", "retraining"],
    ["unlearning"],
    ["comparison", "search_spaces", "display"],
    ["runs"],
    ["audits", "pools"],
    ["assurance", "tuning"],
    ["analysis"],
    ["api", "commands"],
    ["bench"],
    ["report"],
    ["demo"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in ROOT.rglob("*.py")}


def imports(file: Path) -> set[str]:
    """Return the modules of this package that a file imports, also by `import_module`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys()
            if names - MODULES.keys():
                found.add(node.module)
        elif (
            isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module"
        ):
            found |= {
                word.value
                for word in node.args
                if isinstance(word, ast.Constant) and isinstance(word.value, str)
            }
    return found & MODULES.keys() - {module_name(file)}


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"duck", "duck.__main__"}))
def test_a_layer_imports_only_from_the_layers_before_it(name: str) -> None:
    layer = name.split(".")[1]
    others = {other.split(".")[1] for other in imports(MODULES[name]) if other != "duck"}
    assert {other for other in others if LEVEL[other] > LEVEL[layer]} == set()


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    # A package that collects its modules (`METHODS`, `DATASETS`) imports them, not they it.
    order = TopologicalSorter({name: imports(file) for name, file in MODULES.items()})
    assert len(tuple(order.static_order())) == len(MODULES)


def fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_importing_duck_and_its_command_loads_no_torch() -> None:
    assert fresh(
        "import sys, duck, duck.cli; duck.cli.main(['--help']); "
        "print('torch' in sys.modules, 'tyro' in sys.modules)"
    ).endswith("False False")


def test_every_public_name_is_there_and_no_other() -> None:
    for name in duck.__all__:
        # Importing `duck.name` would replace a public name by the module.
        assert not isinstance(getattr(duck, name), ModuleType | None)
        assert f"duck.{name}" not in MODULES
    assert dir(duck) == sorted(duck.__all__)
    assert set(duck._MODULE_OF) == set(duck.__all__)
    with pytest.raises(AttributeError, match="no attribute 'froget'"):
        duck.froget  # noqa: B018


def test_core_needs_neither_torchvision_nor_timm() -> None:
    for file in ROOT.rglob("*.py"):
        assert not {"torchvision", "timm"} & {name.split(".")[0] for name in _all_imports(file)}, (
            file
        )


def _all_imports(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module
    }


REPOSITORY = Path(__file__).resolve().parents[1]


def pins(file: str) -> dict[str, str]:
    """The version of each package that a file pins."""
    found = re.findall(
        r"^([\w.-]+)==(\S+)", (REPOSITORY / file).read_text(encoding="utf-8"), re.MULTILINE
    )
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_release_install_has_hashes_of_every_dependency_but_torch() -> None:
    pinned, known = pins("requirements-release.txt"), pins("constraints.txt")
    needed = {
        re.split(r"[><=]", text)[0]
        for text in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
            "dependencies"
        ]
    }
    assert needed - {"torch"} <= set(pinned)
    assert "torch" not in pinned
    assert pinned == {name: known[name] for name in pinned}
    blocks = re.split(
        r"^(?=[\w.-]+==)",
        (REPOSITORY / "requirements-release.txt").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )[1:]
    assert len(blocks) == len(pinned)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
