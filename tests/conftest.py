"""Settings of all tests, and the demo, which runs once for all of them."""

import io
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from duck import cli
from duck.artifacts import VARIABLE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need a GPU where there is none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="This test needs an NVIDIA GPU."))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other are slow where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def _default_artifacts() -> Iterator[None]:
    """Tests look for artifacts next to their runs, whatever the environment of the user says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _hear_ctrl_c() -> Iterator[None]:
    """Tests that a shell started in the background, and their children, would ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a demo whose rows are in demo.json. Processes of pytest-xdist share it."""
    root = tmp_path_factory.getbasetemp()
    shared = root if worker_id == "master" else root.parent
    rows = shared / "demo.json"
    with FileLock(shared / "demo.lock"):
        if not rows.exists():
            text = io.StringIO()
            with redirect_stdout(text):
                words = ["demo", "--out", str(shared / "demo"), "--device", "cpu", "--json"]
                assert cli.main(words) == 0
            rows.write_text(text.getvalue())
    return shared / "demo"
