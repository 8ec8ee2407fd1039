"""The Ray engine on a real Ray cluster of this machine; skipped where Ray is not installed."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duck import cli
from duck.display import JobProgress
from duck.engines import RayEngine, create_engine
from duck.engines.ray import RETRIES
from duck.errors import BadInput, DuckError
from duck.pools.files import ModelInfo
from duck.pools.reader import Pool
from tests.audits.pools import build, plan
from tests.engines.functions import (
    KillWorkers,
    describe_worker,
    fail,
    process_id,
    square,
)

ROOT = str(Path(__file__).resolve().parents[2])
# Ray warns of its own future changes and leaves sockets to be collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def always(_: object) -> bool:
    return True


def test_ray_options_need_the_ray_engine() -> None:
    assert create_engine("ray", 2, "auto", 0.5) == RayEngine(2, "auto", 0.5)
    with pytest.raises(BadInput, match="--engine ray"):
        create_engine("processes", 2, "auto")
    with pytest.raises(BadInput, match="--engine ray"):
        create_engine(None, 1, None, 0.5)
    with pytest.raises(BadInput, match="at least 1"):
        RayEngine(0)
    with pytest.raises(BadInput, match="0 or more"):
        RayEngine(1, None, -1.0)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"duck-unlearning\[ray\]"):
        list(RayEngine(1)(square, [1], always))


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster with two CPUs that listens on this machine alone and can import the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Makes Ray use 127.0.0.1, on Linux too; it reads this when it is imported.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # No workers that nobody uses, and none that wait behind other programs.
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.syspath_prepend(ROOT)
        ray = pytest.importorskip("ray")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80 * 2**20,
        )
        yield ray
        ray.shutdown()


def worker_processes() -> list[int]:
    """Return the Ray workers of this process that execute a task of the engine."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            raylet = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            parent = Path("/proc", raylet, "stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if words.startswith(b"ray::_Worker") and int(parent) == os.getpid():
            found.append(int(folder.name))
    return found


def test_each_task_gives_one_result_until_start_refuses_one(ray: Any) -> None:
    assert list(RayEngine(1)(square, [0, 3, 2, 1], lambda task: task != 2)) == [0, 9]
    assert list(RayEngine(2)(square, [], always)) == []


def test_what_a_task_raises_is_raised_after_the_finished_results(ray: Any) -> None:
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError, match="number 2"):
        seen.extend(RayEngine(1)(fail, [0, 2, 3], always))
    assert seen == [0]


def test_workers_have_one_thread_each_and_end_with_the_engine(ray: Any) -> None:
    workers = list(RayEngine(2)(describe_worker, range(4), always))
    assert len({worker.process for worker in workers}) == 2
    assert {worker.threads for worker in workers} == {("1", 1)}
    assert workers[0].path == [place for place in sys.path if place]
    assert {worker.folder for worker in workers} == {os.getcwd()}
    deadline = time.monotonic() + 60
    while worker_processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_actors_serve_several_sequences_of_tasks(ray: Any) -> None:
    with RayEngine(2).open(process_id, 4) as execute:
        first = set(execute(range(4)))
        next(execute(range(3)))  # the results of the others are not taken
        assert set(execute(range(4))) == first
    assert len(first) == 2


def test_a_task_whose_worker_was_killed_is_retried(ray: Any, tmp_path: Path) -> None:
    results = RayEngine(1)(KillWorkers(tmp_path, kills=1), range(4), always)
    assert list(results) == [0, 1, 4, 9]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_the_command(ray: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(DuckError, match="resume"):
        seen.extend(RayEngine(1)(KillWorkers(tmp_path, kills=9), [0, 1, 2], always))
    assert seen == [0]
    assert len(list(tmp_path.iterdir())) == RETRIES + 1


def test_a_pool_loses_nothing_when_a_worker_is_killed(ray: Any, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_a_worker(progress: JobProgress[ModelInfo]) -> None:
        if progress.job is not None and not killed:
            killed.extend(worker_processes()[:1])
            os.kill(killed[0], signal.SIGKILL)

    counts = build(tmp_path / "ray", plan(), 2, kill_a_worker, engine=RayEngine(2))
    assert len(killed) == 1
    assert counts == (3, 0, 0)
    assert build(tmp_path / "inline", plan(), 2) == (3, 0, 0)
    one = Pool(tmp_path / "ray").before.margins
    other = Pool(tmp_path / "inline").before.margins
    assert np.array_equal(one, other)


@pytest.mark.slow
def test_the_command_uses_a_running_cluster(ray: Any, tmp_path: Path) -> None:
    words = ["pool", "--data", "digits", "--epochs", "1", "--models", "2", "--out", "pool"]
    address = ray.get_runtime_context().gcs_address
    ends = ["--engine", "ray", "--address", address, "--device", "cpu", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "duck", *words, *ends],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert address.startswith("127.0.0.1:")
    assert len(list((tmp_path / "pool").glob("model-*.safetensors"))) == 2


TIMES = ("seconds", "prepare_seconds")


def run_command(ray: Any, folder: Path, *words: str, engine: str) -> Any:
    """Run a command with --json in this process, on the running cluster or inline."""
    flags = ["--engine", "inline"]
    if engine == "ray":
        flags = ["--engine", "ray", "--workers", "2", "--address"]
        flags.append(ray.get_runtime_context().gcs_address)
    text = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(text):
        assert cli.main([*words, *flags, "--device", "cpu", "--json"]) == 0
    return json.loads(text.getvalue())


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ray") / "original"
    words = ["train", "--data", "digits", "--epochs", "2", "--device", "cpu", "--json"]
    assert cli.main([*words, "--out", str(folder)]) == 0
    return str(folder)


@pytest.mark.slow
def test_compare_gives_the_same_rows_on_a_cluster(ray: Any, original: str, tmp_path: Path) -> None:
    words = ["compare", "--run", original, "--classes", "3", "--methods", "retrained", "duck"]
    rows = {}
    for engine in ("inline", "ray"):
        rows[engine] = run_command(ray, tmp_path, *words, "--out", engine, engine=engine)
        assert sorted(path.name for path in (tmp_path / engine).iterdir()) == ["duck", "retrained"]
        for row in rows[engine]:
            for name in TIMES:
                row.pop(name)
    assert rows["ray"] == rows["inline"]


@pytest.mark.slow
def test_tune_gives_the_same_trials_on_a_cluster(ray: Any, original: str, tmp_path: Path) -> None:
    words = ["tune", "neg-grad", "--run", original, "--classes", "3", "8", "--each"]
    trials = {}
    for engine in ("inline", "ray"):
        flags = ["--budget", "2", "--out", f"{engine}.toml"]
        found = run_command(ray, tmp_path, *words, *flags, engine=engine)
        trials[engine] = [{**trial, "seconds": 0.0} for trial in found["trials"]]
    assert len(trials["ray"]) == 2
    assert trials["ray"] == trials["inline"]
