"""Every engine keeps the contract of `Engine`; processes also survive what goes wrong in them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_args

import pytest

from duck.engines import ENGINES, Engine, EngineName, InlineEngine, ProcessEngine, create_engine
from duck.errors import BadInput, DuckError, UnknownName
from tests.engines.functions import (
    Locked,
    Unpicklable,
    WriteSlowly,
    die,
    fail,
    print_number,
    process_id,
    search_path,
    square,
    thread_settings,
)

ROOT = Path(__file__).resolve().parents[2]


def always(_: object) -> bool:
    return True


@pytest.fixture(params=["inline", "processes"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param](1)


def test_the_command_line_names_every_engine() -> None:
    assert set(get_args(EngineName)) == set(ENGINES)


def test_each_task_gives_one_result(engine: Engine) -> None:
    assert sorted(engine(square, range(5), always)) == [0, 1, 4, 9, 16]
    assert list(engine(square, [], always)) == []


def test_no_task_begins_after_start_refused_one(engine: Engine) -> None:
    asked: list[int] = []

    def start(task: int) -> bool:
        asked.append(task)
        assert threading.current_thread() is threading.main_thread()
        return task != 2

    assert sorted(engine(square, [0, 1, 2, 3], start)) == [0, 1]
    assert asked == [0, 1, 2]


def test_start_knows_every_result_that_was_yielded_before(engine: Engine) -> None:
    seen: list[int] = []
    asked: list[tuple[int, int]] = []

    def start(task: int) -> bool:
        asked.append((task, len(seen)))
        return True

    for result in engine(square, [0, 1, 2], start):
        seen.append(result)  # noqa: PERF402 - the generator must see each one
    assert asked == [(0, 0), (1, 1), (2, 2)]


def test_what_a_task_raises_is_raised_in_the_caller(engine: Engine) -> None:
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError, match="number 2"):
        seen.extend(engine(fail, [0, 2, 3], always))
    assert seen == [0]


def test_what_start_raises_is_raised_in_the_caller(engine: Engine) -> None:
    def start(task: int) -> bool:
        return bool(1 / (1 - task))

    with pytest.raises(ZeroDivisionError):
        list(engine(square, [0, 1], start))


def test_an_error_that_cannot_be_pickled_keeps_its_text() -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: two words"):
        list(ProcessEngine(1)(fail, [1], always))
    with pytest.raises(Unpicklable):
        list(InlineEngine()(fail, [1], always))


def test_workers_execute_at_the_same_time_with_one_thread_each() -> None:
    assert len(set(ProcessEngine(2)(process_id, range(4), always))) == 2
    assert os.getpid() not in ProcessEngine(2)(process_id, range(2), always)
    assert list(ProcessEngine(1)(thread_settings, [0], always)) == [("1", 1)]


def test_open_workers_serve_several_sequences_of_tasks() -> None:
    with ProcessEngine(2).open(process_id, 4) as execute:
        first = set(execute(range(4)))
        assert set(execute(range(4))) == first
    assert len(first) == 2


def test_a_sequence_whose_results_are_not_all_taken_does_not_disturb_the_next(
    engine: Engine,
) -> None:
    with engine.open(square, 3) as execute:
        assert next(execute([2, 3, 4])) == 4
        assert sorted(execute([5, 6])) == [25, 36]


def test_workers_that_are_still_busy_are_not_waited_for(tmp_path: Path) -> None:
    start = time.monotonic()
    with ProcessEngine(2).open(WriteSlowly(tmp_path), 2) as execute:
        assert next(execute([0, 2])) == 0  # the other task takes a minute
    assert time.monotonic() - start < 30
    assert [file.name for file in tmp_path.iterdir()] == ["0"]


def test_a_dead_worker_loses_no_finished_result() -> None:
    """The consumer is busy while other tasks end and a worker dies."""
    seen: list[int] = []

    def consume() -> None:
        for number in ProcessEngine(4)(die, [0, 5, 1, 2, 3, 4], always):
            seen.append(number)
            time.sleep(2.5 if len(seen) == 1 else 0.0)

    with pytest.raises(DuckError, match="SIGKILL"):
        consume()
    assert sorted(seen) == [0, 1, 2]


def test_what_a_task_prints_does_not_reach_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list(ProcessEngine(1)(print_number, [7], always)) == [7]
    out, err = capfd.readouterr()
    assert out == ""
    assert "printed by a task 7" in err


def test_what_cannot_be_pickled_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match="--engine inline"):
        list(ProcessEngine(2)(Locked(threading.Lock()), [1], always))


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    assert list(ProcessEngine(1)(square, [3], always)) == [9]
    assert os.environ["PYTHONSAFEPATH"] == ""
    monkeypatch.delenv("PYTHONSAFEPATH")
    assert list(ProcessEngine(1)(square, [3], always)) == [9]
    assert "PYTHONSAFEPATH" not in os.environ


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from duck.engines import ProcessEngine
from tests.engines.functions import {function}
{body}
"""


def run_script(folder: Path, function: str, body: str) -> "subprocess.Popen[str]":
    """Start a script that lies in `folder / "script"`, with `folder / "here"` as current folder."""
    for name in ("script", "here"):
        (folder / name).mkdir()
    script = folder / "script" / "main.py"
    script.write_text(SCRIPT.format(root=str(ROOT), function=function, body=body))
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder / "here",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_no_process_imports_from_the_current_folder(tmp_path: Path) -> None:
    body = "import time; time.sleep(1)\nprint(list(ProcessEngine(2)(square, [1, 2], bool)))"
    process = run_script(tmp_path, "square", body)
    for name in ("joblib", "pickle", "queue", "signal", "torch", "multiprocessing", "tests"):
        (tmp_path / "here" / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(3)")
    out, _ = process.communicate(timeout=120)
    assert out.splitlines()[-1] in ("[1, 4]", "[4, 1]")
    assert not (tmp_path / "here" / "imported").exists()


def test_workers_find_modules_where_their_parent_does() -> None:
    (path,) = ProcessEngine(1)(search_path, [0], always)
    assert [place for place in sys.path if place] == [place for place in path if place]


def wait_for(files: list[Path]) -> None:
    deadline = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_end_of(session: int) -> None:
    """Wait until no process of a session is left."""
    deadline = time.monotonic() + 20
    while subprocess.run(["pgrep", "-s", str(session)], stdout=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "parent alone"])
def test_ctrl_c_ends_the_workers_and_keeps_finished_tasks(
    tmp_path: Path, whole_group: bool
) -> None:
    body = """
from pathlib import Path
try:
    for number in ProcessEngine(2)(WriteSlowly(Path()), range(4), lambda _: True):
        print("ended", number, flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = run_script(tmp_path, "WriteSlowly", body)
    wait_for([tmp_path / "here" / "0", tmp_path / "here" / "1"])
    time.sleep(0.5)
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert sorted(out.splitlines()) == ["ended 0", "ended 1", "interrupted"]
    wait_for_end_of(process.pid)


def test_a_killed_parent_leaves_no_worker_behind(tmp_path: Path) -> None:
    body = "from pathlib import Path\nlist(ProcessEngine(2)(WriteSlowly(Path()), [1, 2, 3], bool))"
    process = run_script(tmp_path, "WriteSlowly", body)
    wait_for([tmp_path / "here" / "1"])
    process.kill()
    process.communicate(timeout=30)
    wait_for_end_of(process.pid)


def test_an_engine_is_chosen_by_name_or_by_its_workers() -> None:
    assert create_engine(None, 1) == InlineEngine()
    assert create_engine(None, 3) == ProcessEngine(3)
    assert create_engine("processes", 1) == ProcessEngine(1)
    with pytest.raises(BadInput, match="--engine processes"):
        create_engine("inline", 2)
    with pytest.raises(BadInput, match="at least 1"):
        create_engine("processes", 0)
    with pytest.raises(UnknownName, match="processes"):
        create_engine("proceses", 1)
