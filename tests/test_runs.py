"""Runs are written whole or not at all, and say what made them."""

import copy
import hashlib
import json
import math
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from duck import cli, runs
from duck.errors import BadInput
from duck.experiment import Experiment, Training, from_dict, from_toml, to_dict, to_toml
from duck.methods import Duck, Original
from duck.models.weights import load_weights
from duck.runtime import device_name
from duck.sample_ids import NO_SALT, hide_ids, ids_digest
from duck.scenarios import ForgetClasses, ForgetSamples
from duck.types import Recipe
from duck.unlearning import unlearn
from tests.toys import RECIPE, class_scenario, toy_net, trained_net

EXPERIMENT = Experiment(
    Training("toy", "toynet", RECIPE), ForgetClasses([2]), Duck(batch_size=64), seed=1
)


def run() -> runs.Run:
    outcome = unlearn(
        Duck(batch_size=64, max_epochs=1, low_epochs=1),
        trained_net(),
        class_scenario(),
        recipe=RECIPE,
        watch=lambda _: None,
    )
    return runs.record(EXPERIMENT, class_scenario(), outcome, original_run="runs/original")


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    model, made = trained_net(), run()
    folder = runs.save(made, model, tmp_path / "runs" / "one")
    again = runs.load(folder)
    assert again == replace(
        made, environment=again.environment, created=again.created, id=EXPERIMENT.id
    )
    assert again.environment is not None
    assert again.environment.packages["torch"] == torch.__version__
    assert again.samples == {
        "forget": 60,
        "retain": 180,
        "holdout": 40,
        "test": 160,
        "forget_test": 40,
        "retain_test": 120,
        "processed": 60,
    }
    assert [epoch.phase for epoch in again.history] == ["high-forget", "low-forget"]
    fresh = toy_net(seed=5)
    load_weights(fresh, folder / runs.WEIGHTS)
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True)
    )
    assert sorted(path.name for path in folder.parent.iterdir()) == ["one"]


def test_an_experiment_knows_the_requests_before_it_and_the_model_it_starts_from() -> None:
    second = Experiment(
        EXPERIMENT.training, ForgetClasses([1]), Duck(), seed=4, earlier=EXPERIMENT.all_requests
    )
    third = Experiment(
        EXPERIMENT.training, ForgetClasses([0]), Original(), earlier=second.all_requests
    )
    assert second.previous == EXPERIMENT
    assert third.previous == second
    assert EXPERIMENT.previous == Experiment(EXPERIMENT.training, seed=EXPERIMENT.training.seed)
    assert from_dict(json.loads(json.dumps(to_dict(third)))) == third
    assert "earlier" not in to_dict(EXPERIMENT)
    assert len({EXPERIMENT.id, second.id, replace(second, earlier=()).id}) == 3
    # The method `original` forgets nothing.
    assert (
        third.request_digest(NO_SALT)
        == second.request_digest(NO_SALT)
        != EXPERIMENT.request_digest(NO_SALT)
    )
    assert EXPERIMENT.previous.request_digest(NO_SALT) == ""
    # The digest is about who was forgotten, not how.
    assert replace(EXPERIMENT, method=Duck(lr=0.5)).request_digest(
        NO_SALT
    ) == EXPERIMENT.request_digest(NO_SALT)


def test_a_loss_that_is_no_number_is_null_in_the_record(tmp_path: Path) -> None:
    made = run()
    diverged = replace(
        made,
        scores={**made.scores, "forget_loss": float("nan")},
        history=(replace(made.history[0], loss=float("inf")),),
    )
    folder = runs.save(diverged, trained_net(), tmp_path / "one")
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", (folder / runs.RECORD).read_text()))
    assert runs.load(folder).scores["forget_loss"] is None
    assert math.isnan(runs.load(folder).history[0].loss)


def test_ids_of_forgotten_samples_are_in_one_private_file(tmp_path: Path) -> None:
    ids = ("jane-doe-2.png", "jane-doe-1.png")
    made = replace(run(), experiment=replace(EXPERIMENT, request=ForgetSamples(ids)))
    folder = runs.save(made, trained_net(), tmp_path / "one")
    holding = [path for path in folder.iterdir() if b"jane-doe" in path.read_bytes()]
    assert [path.name for path in holding] == ["sample_ids.json"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    again = runs.load(folder)
    assert again.experiment == made.experiment
    record = runs.read_record(folder)
    salt = json.loads(holding[0].read_text())["salt"]
    assert record["id"] == again.id == made.experiment.run_id(salt)
    assert record["experiment"]["request"]["ids"] == {"digest": ids_digest(ids, salt), "count": 2}
    holding[0].write_text(holding[0].read_text().replace("doe-2", "doe-3"))
    with pytest.raises(BadInput, match=r"sample_ids\.json was changed"):
        runs.load(folder)
    holding[0].unlink()
    with pytest.raises(BadInput, match=r"sample_ids\.json.* No such file"):
        runs.load(folder)


def strings(value: object) -> set[str]:
    """All texts in plain data."""
    if isinstance(value, dict):
        return {text for part in (*value, *value.values()) for text in strings(part)}
    if isinstance(value, list):
        return {text for part in value for text in strings(part)}
    return {value} if isinstance(value, str) else set()


def test_a_sample_id_cannot_be_found_by_trying_all(tmp_path: Path) -> None:
    """What others can read, with all digests that can be computed from it and a guess of the id."""
    made = replace(EXPERIMENT, request=ForgetSamples(["7"]))
    folder = runs.save(
        replace(run(), experiment=made), trained_net(), runs.default_folder(made, tmp_path)
    )
    with safe_open(folder / runs.WEIGHTS, "pt") as file:
        public = strings(runs.read_record(folder)) | {folder.name, *file.metadata().values()}
    hits = []
    for guess in map(str, range(10)):
        tried = replace(made, request=ForgetSamples([guess]))
        hidden, _ = hide_ids(to_dict(tried), NO_SALT)
        digests = {
            tried.id,
            tried.run_id(NO_SALT),
            tried.request_digest(NO_SALT),
            hidden["request"]["ids"]["digest"],
        }
        text = json.dumps(
            [tried.training.fingerprint, [(to_dict(tried.request), tried.seed)]], sort_keys=True
        )
        digests.add(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
        hits += [guess] * len(digests & public)
    assert hits == []
    # The folder's name is the same for every id.
    assert replace(made, request=ForgetSamples(["8"])).public_id == made.public_id == folder.name


def test_a_run_for_chosen_samples_is_found_again_and_others_have_their_own_folder(
    tmp_path: Path,
) -> None:
    one, other = (replace(EXPERIMENT, request=ForgetSamples([name])) for name in ("7", "8"))
    for experiment in (one, other):
        runs.save(
            replace(run(), experiment=experiment),
            trained_net(),
            runs.default_folder(experiment, tmp_path),
        )
    assert len(list(tmp_path.iterdir())) == 2
    for experiment, stranger in ((one, other), (other, one)):
        folder = runs.default_folder(experiment, tmp_path)
        assert runs.load(folder).experiment == experiment
        assert runs.check_free(folder, experiment, overwrite=False)
        with pytest.raises(BadInput, match="holds another run"):
            runs.check_free(folder, stranger, overwrite=False)
    # Each run has a salt of its own.
    again = runs.save(replace(run(), experiment=one), trained_net(), tmp_path / "again")
    first = runs.default_folder(one, tmp_path)
    assert (
        len(
            {
                json.loads((folder / "sample_ids.json").read_text())["salt"]
                for folder in (first, again)
            }
        )
        == 2
    )
    assert runs.load(first).id != runs.load(again).id


def test_a_request_for_classes_needs_no_file_of_ids(tmp_path: Path) -> None:
    folder = runs.save(run(), trained_net(), tmp_path / "one")
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "run.json"]


def test_another_run_is_not_overwritten_unasked(tmp_path: Path) -> None:
    made, folder = run(), tmp_path / "one"
    runs.save(made, trained_net(), folder)
    assert runs.check_free(folder, EXPERIMENT, overwrite=False)
    with pytest.raises(BadInput, match=r"another run: .*--out, .*--overwrite"):
        runs.check_free(folder, replace(EXPERIMENT, seed=99), overwrite=False)
    runs.save(replace(made, seconds=123.0), trained_net(), folder, overwrite=True)
    assert runs.load(folder).seconds == 123.0
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    (tmp_path / "thesis").mkdir()
    with pytest.raises(BadInput, match="not a run"):
        runs.check_free(tmp_path / "thesis", EXPERIMENT, overwrite=False)


def test_overwriting_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(BadInput, match="not a run"):
        runs.save(run(), trained_net(), tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").exists()


def test_a_failed_overwrite_leaves_the_old_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, folder = run(), tmp_path / "one"
    runs.save(made, trained_net(), folder)

    def fails(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(BadInput, match=r"No space left on device"):
        runs.save(replace(made, seconds=123.0), trained_net(), folder, overwrite=True)
    assert runs.load(folder).seconds == made.seconds
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert sorted(path.name for path in folder.iterdir()) == [runs.WEIGHTS, runs.RECORD]


def test_what_a_killed_process_of_the_same_number_left_does_not_lose_the_run(
    tmp_path: Path,
) -> None:
    """In a container every process has the number 1."""
    (tmp_path / f".one.{os.getpid()}.writing").mkdir()
    folder = runs.save(run(), trained_net(), tmp_path / "one")
    assert runs.load(folder).seconds > 0


def add_files(folder: Path) -> None:
    """Audits of ours, a file of the user's, and another run."""
    for name in ("audit-quick.json", "audit-oracle.json", "analysis.json", "notes.txt"):
        (folder / name).write_text("{}")
    runs.save(run(), trained_net(), folder / "nested")


def test_a_run_that_is_there_stays_unless_it_is_to_be_overwritten(tmp_path: Path) -> None:
    made, folder = run(), tmp_path / "one"
    runs.save(made, trained_net(), folder)
    add_files(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    runs.save(replace(made, seconds=123.0), trained_net(), folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_overwriting_removes_only_what_we_wrote_about_the_old_run(tmp_path: Path) -> None:
    made, folder = run(), tmp_path / "one"
    runs.save(made, trained_net(), folder)
    add_files(folder)
    nested = (folder / "nested" / runs.RECORD).read_text()
    runs.save(replace(made, seconds=123.0), trained_net(), folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == [
        runs.WEIGHTS,
        "nested",
        "notes.txt",
        runs.RECORD,
    ]
    assert runs.load(folder).seconds == 123.0
    assert (folder / "nested" / runs.RECORD).read_text() == nested


def test_an_overwrite_that_was_killed_is_finished_by_the_next_reader(tmp_path: Path) -> None:
    made, folder = run(), tmp_path / "one"
    runs.save(made, trained_net(), folder)
    runs.save(replace(made, seconds=123.0), trained_net(), tmp_path / "new")
    (folder / runs.RECORD).unlink()
    (tmp_path / "new" / ".contents.json").write_text(json.dumps([runs.WEIGHTS, runs.RECORD]))
    (tmp_path / "new").rename(folder / ".replacement")
    assert runs.is_run(folder)
    assert runs.load(folder).seconds == 123.0
    assert sorted(path.name for path in folder.iterdir()) == [runs.WEIGHTS, runs.RECORD]


def test_records_that_hold_sample_ids_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        made = run()
        runs.save(made, trained_net(), tmp_path / "classes")
        named = replace(made.experiment, request=ForgetSamples(["cat/1.png"]))
        runs.save(replace(made, experiment=named), trained_net(), tmp_path / "samples")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777
        for path in tmp_path.glob("*/*")
    }
    assert modes == {
        "classes/run.json": 0o644,
        "classes/model.safetensors": 0o644,
        "samples/run.json": 0o644,  # which holds a digest of the ids
        "samples/model.safetensors": 0o644,
        "samples/sample_ids.json": 0o600,
    }


def test_two_processes_cannot_make_one_run(tmp_path: Path) -> None:
    with runs.reserve(tmp_path / "one", EXPERIMENT, overwrite=False) as there:
        assert not there
        with (
            pytest.raises(BadInput, match="one is in use: process"),
            runs.reserve(tmp_path / "one", EXPERIMENT, overwrite=True),
        ):
            pass
        runs.save(run(), trained_net(), tmp_path / "one")
    with runs.reserve(tmp_path / "one", EXPERIMENT, overwrite=False) as there:
        assert there
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_record_names_the_device_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, model = run(), trained_net()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "some GPU")
    folder = runs.save(made, model, tmp_path / "one")
    environment = runs.load(folder).environment
    assert environment is not None
    assert environment.device == device_name(torch.device("cpu")) != "some GPU"
    assert runs.environment(torch.device("cuda")).device == "some GPU"


FULL = """
import resource, sys
from pathlib import Path
from duck import runs
from duck.errors import BadInput
from tests.test_runs import run
from tests.toys import trained_net
made, model = run(), trained_net()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    runs.save(made, model, Path(sys.argv[1]))
except BadInput as error:
    print(error)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the end of the disk: the write fails in the same
    place."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "runs" / "one")],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert "choose another --out" in done.stdout
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"is not a run: .*no run\.json"),
        ("{", "cannot be read"),
        ("[]", "not a valid run record"),
    ],
)
def test_what_is_not_a_run(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadInput, match=message):
        runs.load(tmp_path)


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record; of lists the first item alone."""
    if place:
        yield place
    inner = (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:1]
        if isinstance(value, list)
        else ()
    )
    for name, item in inner:
        yield from places_in(item, (*place, name))


def tampered(record: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The record with another value at a place, or without it where there is none."""
    changed = copy.deepcopy(record)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value[0]
    return changed


VALUES: list[list[Any] | None] = [None, [None], ["x"], [-1], [[]], [{"a": None}], [math.nan]]
"""One item each, or None for a field that is taken out."""


@pytest.mark.slow
def test_a_tampered_record_is_used_or_named_with_its_file_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that ends with 4 or without the name of the file leaves the user with nothing to
    do."""
    folder = runs.save(run(), trained_net(), tmp_path / "one")
    record, refused = json.loads((folder / runs.RECORD).read_text()), 0
    for place in list(places_in(record)):
        for value in VALUES:
            (folder / runs.RECORD).write_text(json.dumps(tampered(record, place, value)))
            code = cli.main(["show", str(folder)])
            codes = {code, cli.main(["show", str(folder), "--toml"])}
            printed = capsys.readouterr().err
            assert codes <= {0, 2}, (place, value, printed)
            if 2 in codes:
                assert f"{folder / runs.RECORD}" in printed, (place, value, printed)
            if code == 2:
                refused += 1
                assert str(place[0]) in printed, (place, value, printed)
    assert refused > 300


def test_the_id_is_of_everything_that_decides_the_result() -> None:
    others = [
        replace(EXPERIMENT, seed=2),
        replace(EXPERIMENT, protocol="paper"),
        replace(EXPERIMENT, request=ForgetClasses([1])),
        replace(EXPERIMENT, method=Duck(batch_size=65)),
        replace(
            EXPERIMENT, training=replace(EXPERIMENT.training, recipe=replace(RECIPE, lr=0.051))
        ),
        replace(EXPERIMENT, training=replace(EXPERIMENT.training, weights="abc")),
    ]
    assert len({experiment.id for experiment in [EXPERIMENT, *others]}) == 7
    assert from_dict(json.loads(json.dumps(to_dict(EXPERIMENT)))).id == EXPERIMENT.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"training": {"data": "digits", "model": "convnet", "recipe": {"learning_rate": 1}}},
            "Recipe has no setting 'learning_rate'",
        ),
        ({"training": {"data": "digits", "modle": "convnet"}}, "'modle'. Did you mean 'model'"),
        ({"method": {"name": "duckk"}}, "No method 'duckk'. Did you mean 'duck'"),
        (
            {"method": {"name": "duck", "lamda_forget": 1}},
            "duck has no setting 'lamda_forget'. Did you mean 'lambda_forget'",
        ),
        (
            {"request": {"name": "classes", "class": [1]}},
            "classes has no setting 'class'. Did you mean 'classes'",
        ),
        ({"sead": 1}, "Experiment has no setting 'sead'. Did you mean 'seed'"),
    ],
)
def test_a_misspelt_key_is_an_error_with_a_hint(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    plain = {"training": {"data": "digits", "model": "convnet"}, **change}
    with pytest.raises(BadInput, match=message):
        from_dict(plain)


def test_toml_round_trip_and_errors(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(to_toml(EXPERIMENT))
    assert from_toml(file) == EXPERIMENT
    file.write_text("[training\n")
    with pytest.raises(BadInput, match="cannot be read as TOML"):
        from_toml(file)
    assert Recipe() == Recipe()
