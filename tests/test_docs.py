"""The code of the documentation runs, its links lead somewhere, and its lists are complete."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import duck
from duck import cli
from duck.analysis.bias import measure_shares
from duck.audits.attacks import ATTACKS
from duck.audits.listing import list_attacks
from duck.audits.quick import quick
from duck.bench import Attack, attacker
from duck.bench.outputs import Target
from duck.cli import exit_codes
from duck.data import DATASETS
from duck.errors import BadInput
from duck.experiment import Experiment, Training, from_dict, to_dict
from duck.methods import METHODS, WarmRestart
from duck.registry import Registry
from duck.scenarios import REQUESTS
from duck.unlearning import unlearn
from tests.audits.witnesses import sample_model, samples_setting
from tests.toys import RECIPE, class_scenario, toy_data, toy_examples, toy_net, trained_net

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]


POOL_COMMANDS = (["pool", "merge"], ["pool", "show"])


def blocks(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run_blocks(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Run the Python blocks of a page one after another, with these names defined."""
    for code in blocks(page):
        exec(compile(code, str(page), "exec"), names)
    return names


def as_dataset(seed: int, count: int) -> TensorDataset:
    part = toy_examples(count, seed)
    images = torch.cat([batch.images for batch in part.batches(count)])
    return TensorDataset(images, part.labels)


@contextmanager
def extension(page: str, registry: Registry[Any], folder: Path) -> Iterator[ModuleType]:
    """Import the only code block of a page as a module; what it registers is removed afterwards."""
    (code,) = blocks(DOCS / "extend" / page)
    assert len([line for line in code.splitlines() if line.strip()]) < 50
    file = folder / "extension.py"
    file.write_text(code, encoding="utf-8")
    spec = spec_from_file_location("extension", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entries", dict(registry))
        spec.loader.exec_module(module)
        yield module


def user_names() -> dict[str, Any]:
    """Return what the first pages suppose that a user has."""
    return {
        "duck": duck,
        "model": trained_net(),
        "train_set": as_dataset(seed=0, count=240),
        "test_set": as_dataset(seed=1, count=200),
        "ids": list(range(0, 240, 8)),
        "new_model": toy_net,
    }


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=["readme", "index"])
def test_the_code_of_the_first_page_forgets_and_audits(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = user_names()
    exec(compile(blocks(page)[0], str(page), "exec"), names)
    result = names["result"]
    assert isinstance(result.method, WarmRestart)
    assert result.scenario.forget.tolist() == names["ids"]
    assert result.outcome.processed == len(names["ids"])
    assert "Verdict (quick tier)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "block"), [("README.md", 1), ("docs/assurance.md", 0)], ids=["readme", "assurance"]
)
def test_the_code_with_assurance_ends_with_a_model_that_passed(page: str, block: int) -> None:
    options = {"new_model": toy_net, "recipe": RECIPE}
    names = {**user_names(), **options, "options": options}
    exec(blocks(ROOT / page)[block], names)
    assured = names["result"].assured
    assert assured.assurance.tier == "oracle"
    assert assured.assurance.passed
    assert assured.audit.models == 6


@pytest.mark.slow
def test_the_code_of_the_data_page_forgets_a_class() -> None:
    names = run_blocks(DOCS / "data.md", {})
    scores = duck.evaluate(names["unlearned"], names["scenario"])
    assert scores.forget < 0.05
    assert scores.retain is not None
    assert scores.retain > 0.95


@pytest.mark.slow
def test_the_code_of_the_analysis_page_removes_a_bias() -> None:
    names = run_blocks(DOCS / "analysis.md", {})
    shares = measure_shares(names["debias"], names["scenario"], names["freed"].models)
    wrong = {name: share.wrong.share for name, share in shares.items()}
    assert wrong["biased"] > 0.5
    assert wrong["duck"] < 0.2


def test_every_page_with_python_code_is_run_by_a_test() -> None:
    pages = {str(page.relative_to(ROOT)): len(blocks(page)) for page in PAGES if blocks(page)}
    extensions = {f"docs/extend/{name}.md" for name in ("attack", "dataset", "method", "request")}
    assert pages == dict.fromkeys(extensions, 1) | {
        "README.md": 2,
        "docs/index.md": 1,
        "docs/data.md": 1,
        "docs/analysis.md": 1,
        "docs/assurance.md": 1,
        "docs/tutorial.md": 7,
    }


@pytest.mark.slow
def test_the_commands_of_the_tutorial_end_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(blocks(DOCS / "tutorial.md", "bash")).splitlines()
    commands = [shlex.split(line)[1:] for line in lines]
    names = ["train", "forget", "audit", "forget", "audit", "audit", "report"]
    assert [words[0] for words in commands] == names
    codes = [cli.main(words) for words in commands]
    # The two audits of DUCK are near their limits, and depend on the number of threads.
    assert codes[:4] == [0, 0, 3, 0]
    assert set(codes[4:6]) <= {1, 3}
    assert codes[6] == 0
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_the_python_code_of_the_tutorial_forgets_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng([]):
        names = run_blocks(DOCS / "tutorial.md", {})
    result, second = names["result"], names["second"]
    assert isinstance(result.method, WarmRestart)
    assert result.outcome.original.forget > 0.9
    assert result.scores.forget_test < 0.05
    assert result.scores.retain_test > 0.75
    assert names["other"].scores.forget_test < 0.05
    assert names["audit"].tier == "quick"
    assert names["alone"].scores.forget_test < 0.05
    assert names["alone"].scores.retain is None
    assert second.scores.forget_test < 0.05
    assert [earlier.state for earlier in second.earlier] == ["still forgotten"]
    for name, weights in names["restored"].state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name])


def test_the_method_of_the_docs_is_short_and_forgets(tmp_path: Path) -> None:
    with extension("method.md", METHODS, tmp_path):
        method = METHODS["uniform"](lr=5e-3, epochs=8)  # type: ignore[call-arg]
        outcome = unlearn(method, trained_net(), class_scenario(), recipe=RECIPE)
    assert outcome.scores.forget < 0.5
    assert outcome.scores.forget_loss > 1
    assert outcome.scores.retain is not None
    assert outcome.scores.retain > 0.95
    assert outcome.processed == outcome.forget_samples


def write_optdigits(folder: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    table = np.column_stack([digits.data, digits.target]).astype(int)
    np.savetxt(folder / "optdigits.tra", table[:1400], fmt="%d", delimiter=",")
    np.savetxt(folder / "optdigits.tes", table[1400:], fmt="%d", delimiter=",")


def test_the_data_set_of_the_docs_loads_by_name_and_trains(tmp_path: Path) -> None:
    with extension("dataset.md", DATASETS, tmp_path):
        with pytest.raises(BadInput):
            duck.load("optdigits", root=tmp_path)
        write_optdigits(tmp_path)
        data = duck.load("optdigits", root=tmp_path)
        resized = duck.load("optdigits", root=tmp_path, image_size=16)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (1400, 397)
    assert data.train.ids[3] == "train/3"
    assert resized.train.shape == (1, 16, 16)
    digits = duck.load("digits")
    row = digits.train.ids.tolist().index("3")
    own = next(data.train.take(torch.tensor([3])).batches(1)).images
    known = next(digits.train.take(torch.tensor([row])).batches(1)).images
    # Both are the same pixels, normalised by statistics that hardly differ.
    assert torch.corrcoef(torch.stack([own.flatten(), known.flatten()]))[0, 1] > 0.9999


def test_the_request_of_the_docs_forgets_a_folder_and_is_stored(tmp_path: Path) -> None:
    train = toy_examples(240, seed=0)
    owners = np.where(np.arange(240) % 5 == 0, "anna", "others")
    ids = np.array([f"{owner}/{row}" for row, owner in enumerate(owners)])
    data = replace(toy_data(), train=replace(train, ids=ids))
    with extension("request.md", REQUESTS, tmp_path) as module:
        request = module.ForgetFolder("anna/")
        result = duck.forget(trained_net(), data, request)
        experiment = Experiment(Training("toy", "toy"), request)
        stored = from_dict(to_dict(experiment))
        with pytest.raises(BadInput):
            module.ForgetFolder("bert/")(data)
    assert result.scenario.forget.tolist() == list(range(0, 240, 5))
    assert result.scenario.kind == "samples"
    assert stored.request == request


def commands(page: Path) -> list[list[str]]:
    """Return the commands in the indented code of a page, each as words without `duck`."""
    lines = re.findall(r"^    duck (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in lines]
    # The summary of an audit, which the pages show, begins with the name of the method.
    return [words for words in found if words[0] != "ran"]


def options_of(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the options that the help of a command lists."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    return set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", capsys.readouterr().out))


def test_the_commands_of_the_pages_have_the_options_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options: dict[tuple[str, ...], set[str]] = {}
    unknown = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for words in commands(page):
            command = tuple(words[: 2 if words[:2] in POOL_COMMANDS else 1])
            if command not in options:
                options[command] = options_of(command, capsys)
            used = {word.strip("[]") for word in words if re.match(r"\[?--?[a-z]", word)}
            unknown += [(page.name, words[0], name) for name in used - options[command]]
    assert unknown == []
    assert {command[0] for command in options} >= {"train", "forget", "audit", "bench", "report"}


@pytest.mark.slow
def test_the_commands_of_the_readme_run_on_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, *others = commands(ROOT / "README.md")
    cifar10 = ["--data", "cifar10", "--download", "--model", "resnet18"]
    assert train[1:6] == cifar10
    digits = ["train", "--data", "digits", "--epochs", "6", *train[6:]]
    codes = [cli.main(words) for words in (digits, *others)]
    audit = codes.pop(2)
    assert codes == [0, 0, 0, 0]
    assert audit in (0, 1, 3)  # a verdict, or none
    assert Path("report.html").stat().st_size > 100_000


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and mkdocs write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\(([^)#:]*)(?:#([^):]+))?\)", page.read_text(encoding="utf-8")
    ):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_placeholder(page: Path) -> None:
    """A word in capitals that stands alone, or as the whole text of a point."""
    found = re.findall(r"^(?:- \*\*.*\*\* )?[A-Z]{4,}$", page.read_text(), re.MULTILINE)
    assert not found


def test_every_python_block_parses() -> None:
    for page in PAGES:
        for code in blocks(page):
            compile(code, str(page), "exec")


def test_the_data_page_names_the_arrays_of_an_npz() -> None:
    from duck.data.arrays import KEYS

    text = (DOCS / "data.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in text] == []


def test_the_data_page_names_every_data_set() -> None:
    text = (DOCS / "data.md").read_text(encoding="utf-8")
    assert [name for name in DATASETS if f"`{name}`" not in text] == []


def test_the_page_of_the_command_line_lists_every_command() -> None:
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `duck ([a-z]+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(cli.COMMANDS)


def test_the_page_of_the_command_line_lists_every_exit_code() -> None:
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    codes = {value for value in vars(exit_codes).values() if isinstance(value, int)}
    # A reader that stops reading, such as `head`, is not worth a row.
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == codes - {141}


def test_the_files_of_the_design_page_exist() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| `")]
    named = re.findall(r"`([a-z_/]+(?:\.py|\.toml|/))`", "\n".join(table))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / "src" / "duck" / name).exists()] == []


def test_the_api_page_documents_every_public_name() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = {name.rsplit(".", 1)[1] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert documented == set(duck.__all__) - {"METHODS"}
    assert "`METHODS`" in text


@pytest.mark.slow
def test_the_generated_parts_of_the_results_are_those_of_the_result_files() -> None:
    from write_tables import PAGES, PART, update_page

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
        assert update_page(page) == page, (
            f"{name}: python benchmarks/write_tables.py brings it up to date"
        )


def test_one_file_is_enough_for_the_attack_of_the_docs(tmp_path: Path) -> None:
    leaking = sample_model(0, 4.0)
    with extension("attack.md", ATTACKS, tmp_path):
        audit = quick(samples_setting(), leaking, leaking, "subject")
        (entry,) = (entry for entry in list_attacks() if entry.name == "logit attack")
        target = Target(leaking.forget, leaking.unseen)
        result = attacker(Attack("logit"), None)(target, "samples", 0)
    row = audit.attacks["logit attack"]
    assert row.unlearned is not None
    assert row.unlearned.value > 0.8
    assert (row.judged, row.p) == (False, None)
    assert set(audit.roc["logit attack"]) == {"original", "unlearned"}
    assert (entry.tier, entry.judged, entry.needs) == ("quick", False, "outputs")
    assert result.scores["auc"] == pytest.approx(row.unlearned.value)


def test_a_decisive_attack_of_the_docs_is_judged(tmp_path: Path) -> None:
    with extension("attack.md", ATTACKS, tmp_path) as module:
        module.LogitAttack.decisive = True
        audit = quick(samples_setting(), sample_model(1, 4.0), sample_model(0, 4.0), "subject")
    row = audit.attacks["logit attack"]
    assert row.judged
    assert row.p is not None
    assert row.p < 1e-3
