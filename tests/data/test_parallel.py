import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from duck.data.parallel import (
    CHUNK_FILES,
    MIN_FILES_FOR_PROCESSES,
    decode_all,
    decode_in_threads,
    in_threads,
)
from duck.errors import BadInput
from tests.data.image_files import noise, write_image


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("many")
    return [
        write_image(folder / f"{number} ä.png", noise((4, 6, 3), number))
        for number in range(MIN_FILES_FOR_PROCESSES + 1)
    ]


def test_processes_and_threads_decode_alike(files: list[Path]) -> None:
    calls: list[tuple[int, int]] = []
    images = decode_all(files, (3, 4, 6), progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(images.numpy(), decode_in_threads(files, (3, 4, 6)).numpy())
    np.testing.assert_array_equal(
        images[MIN_FILES_FOR_PROCESSES].numpy(),
        noise((4, 6, 3), MIN_FILES_FOR_PROCESSES).transpose(2, 0, 1),
    )
    assert calls == sorted(set(calls))
    assert calls[-1] == (MIN_FILES_FOR_PROCESSES + 1, MIN_FILES_FOR_PROCESSES + 1)
    assert 1 < len(calls) <= 2 + MIN_FILES_FOR_PROCESSES // CHUNK_FILES


def test_processes_resize_and_grey(files: list[Path]) -> None:
    images = decode_all(files, (1, 2, 2), size=2)
    np.testing.assert_array_equal(
        images.numpy(), decode_in_threads(files, (1, 2, 2), size=2).numpy()
    )


def test_a_damaged_file_in_a_process_is_named(files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    with pytest.raises(BadInput, match=r"bad\.png: .* Remove"):
        decode_all([*files[:-1], bad], (3, 4, 6))


def test_an_interruption_ends_the_processes(files: list[Path], tmp_path: Path) -> None:
    # Opening a pipe that nobody writes to waits for ever: only a process that is ended lets go of
    # it.
    os.mkfifo(tmp_path / "pipe.png")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_all(
            [*files[:500], *[tmp_path / "pipe.png"] * MIN_FILES_FOR_PROCESSES],
            (3, 4, 6),
            progress=interrupt,
        )
    listing = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "popen_loky" not in listing


def test_the_worker_does_not_load_torch() -> None:
    code = "import sys, duck.data.decode, duck.engines; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_report_in_order_and_raise_the_first_error() -> None:
    seen: list[int] = []
    calls: list[int] = []
    lock = threading.Lock()

    def work(part: range) -> None:
        with lock:
            seen.extend(part)
        if part.start == 2 * CHUNK_FILES:
            raise BadInput("third part")

    with pytest.raises(BadInput, match="third part"):
        in_threads(work, 4 * CHUNK_FILES, lambda done, total: calls.append(done))
    assert calls == [CHUNK_FILES, 2 * CHUNK_FILES]
    assert set(range(3 * CHUNK_FILES)) <= set(seen)
