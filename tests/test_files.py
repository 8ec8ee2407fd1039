"""The one writer: whole files or none, private where asked, nothing left by a killed process, one
writer per run folder."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from duck import files
from duck.errors import BadInput

ROOT = Path(__file__).parent.parent


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(code: str, *words: str) -> None:
    """Run code in another process until it prints a line, then kill it."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)


@pytest.fixture(autouse=True)
def umask() -> object:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    files.write_text(tmp_path / "new" / "a.txt", "one")
    files.write_text(tmp_path / "new" / "a.txt", "two")
    files.write_bytes(tmp_path / "new" / "b", b"\x00")
    files.write_json(tmp_path / "new" / "c.json", {"a": 1})
    assert (tmp_path / "new" / "a.txt").read_text() == "two"
    assert (tmp_path / "new" / "b").read_bytes() == b"\x00"
    assert json.loads((tmp_path / "new" / "c.json").read_text()) == {"a": 1}
    assert names(tmp_path / "new") == ["a.txt", "b", "c.json"]


def test_modes_follow_the_umask_or_are_private(tmp_path: Path) -> None:
    """safetensors makes its files readable by their owner alone, whatever the umask."""
    with files.writing(tmp_path / "w.safetensors") as file:
        save_file({"a": torch.zeros(3)}, file)
    with files.writing(tmp_path / "p.safetensors", private=True) as file:
        assert mode(file.parent) == 0o700
        save_file({"a": torch.zeros(3)}, file)
    files.write_text(tmp_path / "a", "x")
    files.write_json(tmp_path / "ids.json", ["cat/1.png"], private=True)
    assert {name: mode(tmp_path / name) for name in names(tmp_path)} == {
        "a": 0o640,
        "ids.json": 0o600,
        "p.safetensors": 0o600,
        "w.safetensors": 0o640,
    }
    with files.replacing(tmp_path / "run", ["run.json"]) as new:
        (new / "run.json").touch()
    assert mode(tmp_path / "run") == 0o750


def test_file_and_folder_are_on_the_disk_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, move = os.fsync, os.replace

    def fsync(handle: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def replace(source: Path, target: Path) -> None:
        events.append("rename")
        move(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    files.write_text(tmp_path / "a", "x")
    assert events == ["file", "rename", "folder"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a", "old")

    def fail() -> None:
        with files.writing(tmp_path / "a") as file:
            file.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_link_is_followed_and_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    files.write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files.write_text(tmp_path / "pipe", "x")
    assert names(tmp_path) == ["link", "pipe", "target"]


WRITES = """
import sys, time
from pathlib import Path
from duck import files
with files.writing(Path(sys.argv[1]) / "model") as file:
    file.write_text("knew the data")
    print("half", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_leaves_is_removed_at_the_next_write(tmp_path: Path) -> None:
    killed(WRITES, str(tmp_path))
    (left,) = names(tmp_path)
    assert files.is_temporary(tmp_path / left)
    (tmp_path / ".mine.writing").mkdir()
    files.write_text(tmp_path / "other", "x")
    assert names(tmp_path) == [".mine.writing", "other"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with files.writing(tmp_path / "one") as file:
        file.write_text("x")
        files.remove_stale(tmp_path)
        files.write_text(tmp_path / "one", "first")
    assert (tmp_path / "one").read_text() == "x"
    assert names(tmp_path) == ["one"]


LOCKS = """
import sys, time
from pathlib import Path
from duck import files
with files.lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", LOCKS, str(tmp_path / "runs" / "one")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with pytest.raises(
                BadInput,
                match=rf"in use: process {process.pid} .*--out",
            ):
                files.lock(tmp_path / "runs" / "x" / ".." / "one").__enter__()
        finally:
            process.kill()
    with files.lock(tmp_path / "runs" / "one"):
        assert names(tmp_path / "runs") == [".one.lock"]
    assert names(tmp_path / "runs") == []


def test_a_lock_leaves_no_empty_folders_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty/new/deep/run", "full/run"):
        with files.lock(tmp_path / place):
            (tmp_path / "full").mkdir(exist_ok=True)
            (tmp_path / "full" / "file").touch()
    assert names(tmp_path) == ["empty", "full"]
    assert names(tmp_path / "empty") == []


def test_a_lock_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with files.lock(tmp_path / "file" / "run"):
        assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").is_file()


def test_a_lock_neither_removes_nor_overwrites_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ".one.lock").write_text("precious")
    (tmp_path / "target").write_text("precious")
    (tmp_path / ".two.lock").symlink_to("target")
    (tmp_path / ".three.lock").symlink_to("missing")
    (tmp_path / ".four.lock").mkdir()
    os.mkfifo(tmp_path / ".five.lock")
    before = names(tmp_path)
    for name in ("one", "two", "three", "four", "five"):
        with (
            pytest.raises(BadInput, match=rf"\.{name}\.lock was not written"),
            files.lock(tmp_path / name),
        ):
            pass
    assert names(tmp_path) == before
    assert (tmp_path / ".one.lock").read_text() == (tmp_path / "target").read_text() == "precious"


def test_the_lock_file_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    for left in ("process 12 on host", ""):
        (tmp_path / ".one.lock").write_text(left)
        with files.lock(tmp_path / "one"):
            assert (tmp_path / ".one.lock").read_text().startswith(f"process {os.getpid()} on ")
        assert names(tmp_path) == []


OURS = ["run.json", "model", "audit.json"]


def test_a_replacement_touches_only_our_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with files.replacing(folder, OURS) as new:
        (new / "run.json").write_text("1")
        (new / "model").write_text("1")
    assert names(tmp_path) == ["run"]
    (folder / "audit.json").write_text("of 1")
    (folder / "notes.txt").write_text("mine")
    (folder / "nested").mkdir()
    (folder / "nested" / "run.json").write_text("another run")
    with files.replacing(folder, OURS) as new:
        (new / "run.json").write_text("2")
        (new / "model").write_text("2")
    assert names(folder) == ["model", "nested", "notes.txt", "run.json"]
    assert (folder / "run.json").read_text() == (folder / "model").read_text() == "2"
    assert (folder / "nested" / "run.json").read_text() == "another run"


REPLACES = """
import os, sys
from pathlib import Path
from duck import files
folder, last = Path(sys.argv[1]), int(sys.argv[2])
calls = iter(range(100))
def dying(real):
    def call(*words, **more):
        if next(calls) == last:
            os._exit(9)
        return real(*words, **more)
    return call
os.replace, os.unlink, os.rmdir, os.rename, Path.unlink = map(
    dying, (os.replace, os.unlink, os.rmdir, os.rename, Path.unlink)
)
with files.replacing(folder, ["run.json", "model", "audit.json"]) as new:
    for name in ("run.json", "model"):
        (new / name).write_text("2")
"""


def test_a_replacement_killed_at_any_step_is_the_old_or_the_new(tmp_path: Path) -> None:
    environment, seen = {**os.environ, "PYTHONPATH": str(ROOT / "src")}, []
    for last in range(20):
        folder = tmp_path / str(last)
        folder.mkdir()
        for name in (*OURS, "mine"):
            (folder / name).write_text("1")
        code = subprocess.run(
            [sys.executable, "-c", REPLACES, str(folder), str(last)], env=environment, check=False
        ).returncode
        files.finish_replacing(folder, OURS)
        files.remove_stale(folder)
        version = (folder / "run.json").read_text()
        seen.append(version)
        assert names(folder) == (
            ["audit.json", "mine", "model", "run.json"]
            if version == "1"
            else ["mine", "model", "run.json"]
        )
        assert (folder / "model").read_text() == version
        if code == 0:
            break
    assert code == 0
    assert seen[0] == "1"
    assert seen.count("2") > 4
    assert sorted(seen) == seen


@pytest.mark.parametrize(
    "contents",
    [
        ["../notes"],
        ["run.json", "../notes"],
        ["run.json", "notes"],
        ["model"],
        [],
        ["run.json", 1],
        {"run.json": 1},
        "run.json",
        None,
    ],
)
def test_a_replacement_that_we_did_not_write_changes_nothing(
    tmp_path: Path, contents: object
) -> None:
    """A folder from another person may hold one."""
    folder = tmp_path / "run"
    (folder / files.REPLACEMENT).mkdir(parents=True)
    for name in (*OURS, "notes"):
        (folder / name).write_text("theirs")
    (tmp_path / "notes").write_text("mine")
    (folder / files.REPLACEMENT / "run.json").write_text("forged")
    (folder / files.REPLACEMENT / files.CONTENTS).write_text(
        "[" if contents is None else json.dumps(contents)
    )
    files.finish_replacing(folder, OURS)
    with (
        pytest.raises(BadInput, match=r"\.replacement was not written"),
        files.replacing(folder, OURS),
    ):
        pass
    assert (tmp_path / "notes").read_text() == "mine"
    assert {name: (folder / name).read_text() for name in (*OURS, "notes")} == dict.fromkeys(
        (*OURS, "notes"), "theirs"
    )


def test_a_replacement_of_links_changes_nothing(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    for name in ("run.json", files.CONTENTS):
        (other / name).write_text('["run.json"]')
    (folder / files.REPLACEMENT).symlink_to(other)
    files.finish_replacing(folder, OURS)
    assert names(other) == [files.CONTENTS, "run.json"]
    (folder / files.REPLACEMENT).unlink()
    (folder / files.REPLACEMENT).mkdir()
    (folder / files.REPLACEMENT / files.CONTENTS).symlink_to(other / files.CONTENTS)
    (folder / files.REPLACEMENT / "run.json").symlink_to(other / "run.json")
    files.finish_replacing(folder, OURS)
    assert names(folder) == [files.REPLACEMENT]


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for place in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        for read in (files.read_bytes, files.read_text, files.check_regular):
            with pytest.raises(OSError, match=f"not a regular file: '{place}'"):
                read(place)
        with pytest.raises(OSError, match="not a regular file"):
            files.read_bytes(place, pipes=True)
    with pytest.raises(IsADirectoryError):
        files.read_bytes(tmp_path)
    (tmp_path / "text").write_bytes(b"\xc3\xa9")
    assert files.read_text(tmp_path / "text") == "é"


def test_a_pipe_of_the_shell_is_read_where_that_is_allowed() -> None:
    out, into = os.pipe()
    os.write(into, b"a\nb\n")
    os.close(into)
    with pytest.raises(OSError, match="not a regular file"):
        files.read_text(Path(f"/dev/fd/{out}"))
    assert files.read_text(Path(f"/dev/fd/{out}"), pipes=True) == "a\nb\n"
    os.close(out)


LIMITED = """
import resource, sys
from pathlib import Path
from duck import files
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
try:
    files.write_text(Path(sys.argv[1]), "x" * 5000)
except OSError as error:
    print(error.filename)
"""


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    environment, page = {**os.environ, "PYTHONPATH": str(ROOT / "src")}, str(tmp_path / "page.html")
    out = subprocess.run(
        [sys.executable, "-c", LIMITED, page],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert out.splitlines() == [page]
    assert names(tmp_path) == []


def test_only_a_file_with_our_mark_may_be_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page"
    files.check_replaceable(page, b"made by us")
    page.write_text("made by us, of course")
    files.check_replaceable(page, b"made by us")
    page.write_text('{"id": 1}')
    with pytest.raises(BadInput, match="page exists"):
        files.check_replaceable(page, b"made by us")


def test_a_line_is_appended_after_half_a_line_and_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "results.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(path.read_bytes()))
    files.append_line(path, "one")
    path.write_bytes(b"one\nhal")
    files.append_line(path, "two")
    files.append_line(path, "drei: ü")
    assert path.read_text(encoding="utf-8") == "one\nhal\ntwo\ndrei: ü\n"
    assert synced == [b"one\n", b"one\nhal\ntwo\n", "one\nhal\ntwo\ndrei: ü\n".encode()]
