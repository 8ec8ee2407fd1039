"""A pool: rows that stay with their ids, models that are made once, and pools that do not mix."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch._dynamo.utils import counters

from duck.audits.scores import margins
from duck.display import JobProgress
from duck.engines import ProcessEngine
from duck.errors import BadInput, DuckError
from duck.models import build as build_model
from duck.pools import build as build_module
from duck.pools import plan as planning
from duck.pools.build import Trainer
from duck.pools.files import ModelInfo, find, merge
from duck.pools.plan import Job, Part, Plan, Samples, make_layout
from duck.pools.reader import Pool, State, mismatch
from duck.runtime import seeded
from duck.sample_ids import NO_SALT, ids_digest
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetSamples
from duck.training import loop
from tests.audits.pools import METHOD, RECIPE, all_logits, build, experiment, plan, pool
from tests.toys import toy_data

STATES: tuple[State, ...] = ("before", "after", "oracle")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return pool(tmp_path_factory.mktemp("pool") / "whole", plan(), 4)


def same(one: Pool, other: Pool) -> bool:
    stacks = [(one.stack(state), other.stack(state)) for state in STATES]
    logits = all(
        np.array_equal(a, b)
        for mine, theirs in stacks
        for a, b in zip(all_logits(mine), all_logits(theirs), strict=True)
    )
    return (
        logits
        and np.array_equal(one.members, other.members)
        and all(np.array_equal(a.margins, b.margins) for a, b in stacks)
    )


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_a_pool_holds_the_predictions_of_each_model_for_each_id(whole: Pool) -> None:
    """Each model is made again by hand and asked about each sample alone, found by its id."""
    data, what = toy_data(), plan()
    assert data.test is not None
    assert [len(whole.stack(state)) for state in STATES] == [4, 4, 2]
    for job in (Job("model", 0), Job("model", 3), Job("oracle", 1)):
        seed, who = what.seed(job), make_layout(what, data)
        model = build_model("convnet", 4, data.train.shape, seed)
        loop.train(model, data.train.take(who.training_rows(job)), RECIPE, seeded(seed, "train"))
        models = {"oracle" if job.part == "oracle" else "before": model.eval()}
        if job.part == "model":
            rows = who.training_rows(job)
            asked = ForgetSamples(data.train.ids[who.candidates[who.members(job)].numpy()])
            scenario = asked(replace(data, train=data.train.take(rows)), seed)
            models["after"] = METHOD(model, scenario.task(recipe=RECIPE))
        for state, one in models.items():
            stack = whole.stack(state)  # type: ignore[arg-type]
            for place in range(0, len(whole.ids), 37):
                name, source = (
                    whole.ids[place],
                    data.test if whole.ids[place].startswith("t") else data.train,
                )
                row = torch.from_numpy(np.flatnonzero(source.ids == name))
                with torch.no_grad():
                    logits = one(next(source.take(row).batches(1)).images).numpy()
                margin = margins(logits, source.labels[row].numpy())
                np.testing.assert_allclose(
                    stack.margins[job.number, place], margin[0], rtol=1e-4, atol=1e-4
                )
                np.testing.assert_allclose(
                    stack.logits(job.number)[place], logits[0], rtol=2e-3, atol=2e-3
                )
                assert whole.labels[place] == source.labels[row]


@pytest.mark.parametrize("role", [None, "candidate", "retain", "test"])
@pytest.mark.parametrize("state", STATES)
def test_what_attacks_take_is_what_each_file_says_of_each_id(
    whole: Pool, state: State, role: str | None
) -> None:
    """Open the file of each model by its name and look up its logits by id, without the reader."""
    data, what = toy_data(), plan()
    assert data.test is not None
    labels = {
        name: int(label)
        for part in (data.train, data.test)
        for name, label in zip(part.ids, part.labels, strict=True)
    }
    with np.load(whole.files.folder / "samples.npz") as held:
        ids, roles = (
            held["ids"].tolist(),
            dict(zip(held["ids"].tolist(), held["roles"].tolist(), strict=True)),
        )
    found, who = whole.margins(state, role), make_layout(what, data)
    assert found.ids.tolist() == [name for name in ids if role in (None, roles[name])]
    part: Part = "oracle" if state == "oracle" else "model"
    assert len(found) == (2 if state == "oracle" else 4)
    for number in range(len(found)):
        logits = dict(
            zip(
                ids,
                load_file(whole.files.folder / f"{part}-{number:04d}.safetensors")[
                    f"{state}.logits"
                ],
                strict=True,
            )
        )
        known = set(data.train.ids[who.training_rows(Job(part, number)).numpy()].tolist())
        for place, name in enumerate(found.ids.tolist()):
            margin = margins(logits[name][None].astype(np.float64), np.array([labels[name]]))
            np.testing.assert_allclose(found.values[number, place], margin[0], rtol=2e-3, atol=2e-2)
            assert found.members[number, place] == (name in known)


def test_what_a_pool_says_of_membership(whole: Pool) -> None:
    candidate = whole.roles == "candidate"
    assert np.array_equal(whole.members[:, candidate].sum(0), np.full(60, 2))
    assert whole.members[:, whole.roles == "retain"].all()
    assert not whole.members[:, np.isin(whole.roles, ["holdout", "test"])].any()
    assert np.array_equal(whole.requested, whole.members & candidate)
    assert whole.before.margins.dtype == np.float32
    assert whole.before.logits(0).dtype == np.float16
    assert all_logits(whole.before)[:, candidate].shape == (4, 60, 4)
    held = whole.margins("after", "candidate")
    assert np.array_equal(held.ids, whole.ids[candidate])
    assert np.array_equal(held.members, whole.members[:, candidate])
    assert not whole.margins("oracle", "candidate").members.any()
    assert whole.margins("oracle", "retain").members.all()
    assert whole.margins("before").values.shape == (4, 440)


def test_accuracies_are_those_of_the_stored_logits(whole: Pool) -> None:
    """All training samples are watched here: the accuracy of a model is that of its own ones."""
    known = {"before": whole.members, "after": whole.members & (whole.roles == "retain")[None]}
    test = (whole.roles == "test") & (whole.labels != 2)
    for state, mask in known.items():
        stack = whole.stack(state)  # type: ignore[arg-type]
        right = np.stack([logits.argmax(1) == whole.labels for logits in all_logits(stack)])
        train = [row[chosen].mean() for row, chosen in zip(right, mask, strict=True)]
        np.testing.assert_allclose(stack.accuracies["train"], train)
        np.testing.assert_allclose(stack.accuracies["test"], right[:, test].mean(1))


def test_few_retained_samples_stand_for_all_in_the_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MAX_RETAIN_SAMPLES", 20)
    some = pool(tmp_path / "p", plan(), 2)
    right = some.before.logits(0).argmax(1) == some.labels
    own, others = right[some.requested[0]].mean(), right[some.roles == "retain"].mean()
    assert own != others
    np.testing.assert_allclose(some.before.accuracies["train"][0], (30 * own + 180 * others) / 210)


def test_a_shadow_pool_has_models_and_nothing_else(tmp_path: Path) -> None:
    shadow = pool(tmp_path / "shadow", plan("shadow"), 2)
    assert shadow.members[:, :240].sum() == 240
    assert not shadow.requested.any()
    assert shadow.after is None
    assert shadow.oracle is None
    with pytest.raises(BadInput, match=r"design 'shadow'.*no models 'oracle'"):
        shadow.stack("oracle")
    assert mismatch(shadow, experiment()) == []
    assert mismatch(shadow, experiment(ForgetFraction(0.2), seed=8)) == []


def test_more_models_train_only_the_rest(tmp_path: Path, whole: Pool) -> None:
    news: list[JobProgress[ModelInfo]] = []
    assert build(tmp_path / "p", plan(), 2, news.append) == (3, 0, 0)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "p").iterdir()}
    assert build(tmp_path / "p", plan(), 4, news.append) == (3, 3, 0)
    assert [str(one.job) for one in news if one.job] == [
        "model 0",
        "model 1",
        "oracle 0",
        "model 2",
        "model 3",
        "oracle 1",
    ]
    assert {name: (tmp_path / "p" / name).stat().st_mtime_ns for name in written} == written
    assert [(one.done, one.left) for one in news[4:]] == [(3, 3), (4, 2), (5, 1), (6, 0)]
    assert news[5].seconds_left is not None
    assert same(Pool(tmp_path / "p"), whole)
    assert build(tmp_path / "p", plan(), 4) == (0, 6, 0)


def test_a_model_is_trained_with_one_thread(tmp_path: Path) -> None:
    threads: set[int] = set()

    def record(*_: object) -> None:
        threads.add(torch.get_num_threads())

    torch.set_num_threads(2)
    hook = torch.nn.modules.module.register_module_forward_hook(record)
    try:
        build(tmp_path / "p", plan(), 2)
        assert torch.get_num_threads() == 2
    finally:
        hook.remove()
        torch.set_num_threads(1)
    assert threads == {1}


def test_a_model_that_another_process_made_meanwhile_is_reused(tmp_path: Path) -> None:
    news: list[JobProgress[ModelInfo]] = []

    def hear(one: JobProgress[ModelInfo]) -> None:
        news.append(one)
        if len(news) == 1:
            build(tmp_path / "p", plan(), 2)

    assert build(tmp_path / "p", plan(), 2, hear) == (3, 0, 0)
    assert len(news) == 4


def test_parts_of_two_machines_merge_to_the_whole(tmp_path: Path, whole: Pool) -> None:
    for number in (1, 2):
        build(tmp_path / str(number), plan(), 4, share=(number, 2))
    assert len(Pool(tmp_path / "2")) + len(Pool(tmp_path / "1")) == 4
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "both")
    assert same(Pool(tmp_path / "both"), whole)
    merge([tmp_path / "2"], tmp_path / "both")
    assert same(Pool(tmp_path / "both"), whole)
    assert build(tmp_path / "both", plan(), 4) == (0, 6, 0)


def test_a_pool_for_chosen_samples_is_private(tmp_path: Path) -> None:
    """Its digests tell few ids by trying all."""
    names = toy_data().train.ids[:6].tolist()
    assert build(tmp_path / "p", plan(request=ForgetSamples(names)), 2) == (3, 0, 0)
    fingerprint = json.loads((tmp_path / "p" / "pool.json").read_text())["fingerprint"]
    assert fingerprint["request"] == {
        "name": "samples",
        "ids": {"digest": ids_digest(names, NO_SALT), "count": 6},
    }
    merge([tmp_path / "p"], tmp_path / "merged")
    for folder in ("p", "merged"):
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / folder).iterdir()}
        assert len(modes) == 5
        assert set(modes.values()) == {0o600}


def test_only_the_samples_are_private_in_other_pools(whole: Pool) -> None:
    private = {
        path.name for path in whole.files.folder.iterdir() if not path.stat().st_mode & 0o044
    }
    assert private == {"samples.npz"}


def test_a_file_that_is_named_as_ours_is_not_replaced(tmp_path: Path, whole: Pool) -> None:
    mine = tmp_path / "mine" / "samples.npz"
    mine.parent.mkdir()
    np.savez(mine, ids=np.zeros(3), labels=np.zeros(3), roles=np.zeros(3))
    before = mine.read_bytes()
    with pytest.raises(BadInput, match="not a pool"):
        build(mine.parent, plan(), 2, limit=0)
    with pytest.raises(BadInput, match="not a pool"):
        merge([whole.files.folder], mine.parent)
    assert mine.read_bytes() == before
    assert [path.name for path in mine.parent.iterdir()] == ["samples.npz"]


@pytest.mark.slow
def test_workers_make_the_same_models(tmp_path: Path, whole: Pool) -> None:
    assert build(tmp_path / "workers", plan(), 4, engine=ProcessEngine(2)) == (6, 0, 0)
    assert same(Pool(tmp_path / "workers"), whole)


def test_an_error_in_a_worker_is_raised_here(tmp_path: Path) -> None:
    what = plan(training=replace(experiment().training, model="math:sqrt"))
    assert build(tmp_path / "p", what, 2, limit=0) == (0, 0, 3)
    cpu = torch.device("cpu")
    trainer = Trainer(what, toy_data(), find(tmp_path / "p"), cpu, compiled=False)
    with pytest.raises(DuckError, match="math:sqrt"):
        list(ProcessEngine(1)(trainer, [Job("model", 0)], lambda _: True))
    with pytest.raises(BadInput, match="no finished model yet"):
        Pool(tmp_path / "p")


def test_a_pool_for_something_else_is_refused_by_name(tmp_path: Path, whole: Pool) -> None:
    folder = whole.files.folder
    longer = replace(experiment().training, recipe=replace(RECIPE, epochs=3))
    with pytest.raises(BadInput, match=r"recipe\.epochs is 2 .* 3"):
        build(folder, plan(training=longer), 4)
    with pytest.raises(BadInput, match=r"request\.classes is \[2\]"):
        build(folder, plan(request=ForgetClasses([1])), 4)
    with pytest.raises(BadInput, match="data are not those"):
        build_module.build_pool(tmp_path, plan(), toy_data(200), 2)
    build(tmp_path / "other", plan(seed=5), 2)
    with pytest.raises(BadInput, match=r"seed is 0 .*whole and 5 .*other"):
        merge([folder, tmp_path / "other"], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(BadInput, match="not a pool"):
        build(tmp_path, plan(), 2)
    (tmp_path / "begun").mkdir()
    with pytest.raises(BadInput, match=r"begun is not a pool"):
        Pool(tmp_path / "begun")
    # Killed between its two files, and begun for something else: neither has a model to lose.
    build(tmp_path / "begun", plan(seed=5), 2, limit=0)
    (tmp_path / "begun" / "samples.npz").unlink()
    assert build(tmp_path / "begun", plan(), 2, limit=0) == (0, 0, 3)


def test_a_file_of_another_pool_or_half_a_file_is_not_read(tmp_path: Path, whole: Pool) -> None:
    build(tmp_path / "p", plan(), 2)
    other = pool(tmp_path / "other", plan(seed=5), 2)
    files = find(tmp_path / "p")
    content = files.path(Job("model", 0)).read_bytes()
    files.path(Job("model", 0)).write_bytes(other.files.path(Job("model", 0)).read_bytes())
    with pytest.raises(BadInput, match="is of another pool"):
        _ = Pool(tmp_path / "p").members
    files.path(Job("model", 0)).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match=r"cannot be read.*delete it"):
        _ = Pool(tmp_path / "p").before.margins


def test_a_truncated_model_is_trained_again(tmp_path: Path) -> None:
    build(tmp_path / "p", plan(), 2)
    file = find(tmp_path / "p").path(Job("model", 1))
    content, margins = file.read_bytes(), Pool(tmp_path / "p").before.margins
    for length in (0, 5, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        assert build(tmp_path / "p", plan(), 2) == (1, 2, 0)
        assert np.array_equal(Pool(tmp_path / "p").before.margins, margins)


def test_samples_that_were_changed_are_not_read(tmp_path: Path, whole: Pool) -> None:
    folder, held = tmp_path / "p", whole.files.samples()
    shutil.copytree(whole.files.folder, folder)
    place = folder / "samples.npz"
    content = place.read_bytes()

    def refused(message: str) -> None:
        for use in (
            lambda: Pool(folder),
            lambda: build(folder, plan(), 6),
            lambda: merge([folder], tmp_path / "out"),
        ):
            with pytest.raises(BadInput, match=message):
                use()

    turned = np.arange(len(held.ids))[::-1]
    for changed in (
        held._replace(ids=held.ids[turned]),
        held._replace(labels=held.labels[turned]),
        held._replace(roles=held.roles[turned]),
        Samples(held.ids[turned], held.labels[turned], held.roles[turned]),
        Samples(held.ids[1:], held.labels[1:], held.roles[1:]),
    ):
        np.savez(place, **changed._asdict())
        refused(r"samples\.npz was changed, .*delete it")
    np.savez(place, ids=held.ids)
    refused(r"samples\.npz cannot be read .*labels")
    for broken in (b"", b"half", content[: len(content) // 2], content[:-30]):
        place.write_bytes(broken)
        refused(r"samples\.npz cannot be read .*delete it")
    place.unlink()
    assert build(folder, plan(), 4) == (0, 6, 0)  # as the message says
    assert same(Pool(folder), whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("\udcff", "cannot be read"),
        ("[]", "does not say which pool .*: design, data"),
        ("{}", "does not say which pool .*: design, data"),
        ('{"fingerprint": []}', "does not say which pool .*: design, data"),
        ('{"fingerprint": {}}', "does not say which pool .*: design, data"),
    ],
)
def test_a_pool_that_does_not_say_what_it_is(
    tmp_path: Path, whole: Pool, content: str, message: str
) -> None:
    (tmp_path / "pool.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    for use in (
        lambda: Pool(tmp_path),
        lambda: build(tmp_path, plan(), 2),
        lambda: merge([whole.files.folder], tmp_path),
    ):
        with pytest.raises(BadInput, match=rf"pool\.json {message}"):
            use()


def test_every_field_of_a_fingerprint_is_asked_for(tmp_path: Path, whole: Pool) -> None:
    assert set(planning.FIELDS) == set(whole.fingerprint)
    for name in planning.FIELDS:
        less = {key: value for key, value in whole.fingerprint.items() if key != name}
        (tmp_path / "pool.json").write_text(json.dumps({"fingerprint": less}))
        with pytest.raises(BadInput, match=f"{name} missing"):
            find(tmp_path)


def test_a_model_that_is_given_twice_is_refused(tmp_path: Path, whole: Pool) -> None:
    for name, original in (
        ("model-0099", "model 0"),
        ("model-0002", "model 0"),
        ("oracle-0009", "oracle 0"),
    ):
        folder = tmp_path / name
        shutil.copytree(whole.files.folder, folder)
        shutil.copy(
            folder / f"{original.replace(' ', '-000')}.safetensors", folder / f"{name}.safetensors"
        )
        with pytest.raises(BadInput, match=rf"{name}\.safetensors .* copy of {original}"):
            Pool(folder)


def test_a_model_file_that_lacks_something_is_not_read(tmp_path: Path, whole: Pool) -> None:
    shutil.copytree(whole.files.folder, tmp_path / "p")
    files = find(tmp_path / "p")
    arrays = {"members": files.read(Job("model", 1), "members")}
    save_file(
        arrays,
        files.path(Job("model", 1)),
        {"pool": files.digest, "about": json.dumps(asdict(files.info(Job("model", 1))))},
    )
    with pytest.raises(BadInput, match=r"model-0001\.safetensors .*before\.margins.*delete"):
        Pool(tmp_path / "p")


def test_a_start_without_a_model_does_not_block_its_folder(tmp_path: Path, whole: Pool) -> None:
    training = experiment().training
    for wrong, message in (
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"warmup": 1.0}, "warmup"),
    ):
        with pytest.raises(BadInput, match=message):
            build(
                tmp_path / "never",
                plan(training=replace(training, recipe=replace(RECIPE, **wrong))),
                2,
            )
    with pytest.raises(BadInput, match="even number"):
        build(tmp_path / "never", plan(), 3)
    assert not (tmp_path / "never").exists()
    with pytest.raises(DuckError, match="Lower the learning rate"):
        build(
            tmp_path / "p",
            plan("shadow", training=replace(training, recipe=replace(RECIPE, lr=1e12))),
            2,
        )
    assert find(tmp_path / "p").fingerprint["design"] == "shadow"
    assert build(tmp_path / "p", plan(), 4) == (6, 0, 0)
    assert same(Pool(tmp_path / "p"), whole)
    assert build(tmp_path / "begun", plan(seed=5), 2, limit=0) == (0, 0, 3)
    merge([whole.files.folder], tmp_path / "begun")
    assert same(Pool(tmp_path / "begun"), whole)


def test_a_run_that_the_pool_is_not_about_is_described_field_by_field(whole: Pool) -> None:
    right = experiment()
    assert mismatch(whole, right) == []
    compiled = replace(right.training, recipe=replace(RECIPE, compile=True), seed=4)
    assert mismatch(whole, replace(right, training=compiled, seed=9)) == []
    other = replace(right.training, recipe=replace(RECIPE, epochs=9, lr=0.1), fingerprint="other")
    wrong = replace(right, training=other, method=type(METHOD)(epochs=7, batch_size=64))  # type: ignore[call-arg]
    found = mismatch(whole, wrong)
    assert [text.split(":")[0] for text in found] == [
        "data.fingerprint",
        "recipe.epochs",
        "recipe.lr",
        "method.epochs",
    ]
    assert found[1] == "recipe.epochs: 2 in the pool, 9 in the run."
    assert [text.split(":")[0] for text in mismatch(whole, wrong, ignore_recipe=True)] == [
        "data.fingerprint",
        "method.epochs",
    ]
    assert mismatch(whole, replace(right, request=ForgetFraction(0.1))) == [
        "request.name: 'classes' in the pool, 'fraction' in the run."
    ]
    assert mismatch(whole, replace(right, request=None, method=None))[0].startswith("request: ")
    assert mismatch(whole, replace(right, protocol="paper")) == [
        "protocol: 'holdout' in the pool, 'paper' in the run."
    ]
    foreign = replace(right, training=replace(right.training, weights="abc"))
    (text,) = mismatch(whole, foreign)
    assert text.startswith("recipe: ")
    assert "trained elsewhere" in text


def test_a_pool_of_older_model_code_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "pool_builder.py"
    code.write_text(
        "from tests.toys import ToyNet\ndef build(num_classes):\n    return ToyNet(num_classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    own = experiment()
    own = replace(own, training=replace(own.training, model="pool_builder:build"))
    made = pool(tmp_path / "pool", Plan(own), 2)
    assert mismatch(made, own) == []
    code.write_text(f"{code.read_text()}# changed\n")
    assert [text.split(":")[0] for text in mismatch(made, own)] == ["code"]
    with pytest.raises(BadInput, match="code is"):
        build(tmp_path / "pool", Plan(own), 2)


def test_the_seed_counts_where_it_determines_the_forget_set(tmp_path: Path) -> None:
    some = pool(tmp_path / "p", plan(request=ForgetFraction(0.1)), 2)
    assert mismatch(some, experiment(ForgetFraction(0.1))) == []
    assert mismatch(some, experiment(ForgetFraction(0.1), seed=1)) == [
        "seed: 0 in the pool, 1 in the run."
    ]


def test_the_time_limit_begins_nothing_that_would_not_fit(tmp_path: Path) -> None:
    assert build(tmp_path / "p", plan(), 2, limit=0) == (0, 0, 3)
    files = pool(tmp_path / "p", plan(), 2).files
    for job in plan().jobs(2):
        files.write(
            job, {"members": files.read(job, "members")}, replace(files.info(job), seconds=1000.0)
        )
    assert build(tmp_path / "p", plan(), 4, limit=900) == (0, 3, 3)
    news: list[JobProgress[ModelInfo]] = []
    assert build(tmp_path / "p", plan(), 4, news.append, limit=1100) == (3, 3, 0)
    assert news[0].seconds_left == 3000


def test_a_second_model_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo gives up after eight compilations of one function: a pool must need one."""
    real = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **options: real(model, **options, backend="aot_eager")
    )
    torch.compiler.reset()
    counters.clear()
    build(tmp_path / "p", plan("shadow"), 4, compiled=True)
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["frames"] == {"total": 1, "ok": 1}
    torch.compiler.reset()
