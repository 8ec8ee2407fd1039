"""Give every command wrong input, and check its exit code and message.

    python benchmarks/misuse.py
    python benchmarks/misuse.py --table benchmarks/results/misuse.jsonl

Each misuse must end with exit code 2, a message and no traceback, and must leave no file behind.
One JSON line per misuse.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from result_files import ResultFile, Row, create_parser, run_or_print

from duck.cli import main as duck

RUN = ["--run", "original"]
NUMBERS = ("nan", "inf", "-1", "x", "1e999", "")
WHOLE = ("-1", "1.5", "x", "nan", "", "²", "0x10")
Damage = Callable[[Path], object]
RECORDS: dict[str, Damage] = {
    "empty": lambda file: file.write_text(""),
    "half": lambda file: file.write_text(file.read_text()[: len(file.read_text()) // 2]),
    "a list": lambda file: file.write_text("[]"),
    "no scores": lambda file: file.write_text(
        json.dumps(
            {key: value for key, value in json.loads(file.read_text()).items() if key != "scores"}
        )
    ),
    "a number for a name": lambda file: file.write_text(file.read_text().replace('"digits"', "7")),
    "not UTF-8": lambda file: file.write_bytes(b"\xff\xfe" + file.read_bytes()),
    "an unknown method": lambda file: file.write_text(file.read_text().replace('"duck"', '"dukc"')),
    "an unknown model": lambda file: file.write_text(
        file.read_text().replace('"convnet"', '"convent"')
    ),
    "code as a model": lambda file: file.write_text(
        file.read_text().replace('"convnet"', '"http.server:test"')
    ),
    "text for seconds": lambda file: file.write_text(
        file.read_text().replace('"seconds": ', '"seconds": "much", "was": ', 1)
    ),
    "deep": lambda file: file.write_text("[" * 100_000),
    "a folder": lambda file: replace_by_folder(file),
    "missing": lambda file: file.unlink(),
}


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def flags() -> Iterator[list[str]]:
    """Yield command lines that are wrong with any files."""
    for name in (
        "train",
        "forget",
        "compare",
        "tune",
        "audit",
        "show",
        "report",
        "analyse",
        "pool",
        "bench",
        "debias",
        "list",
    ):
        yield [name, "--no-such-flag"]
        yield [name, "--", "--json", "--json"]
    yield from ([word] for word in ("fogret", "", "--no-such", "train\x1b[31m"))
    train = ["train", "--data", "digits"]
    for flag in ("--lr", "--weight-decay", "--momentum", "--label-smoothing"):
        yield from ([*train, flag, value] for value in NUMBERS)
    for flag in ("--epochs", "--batch-size", "--seed"):
        yield from ([*train, flag, value] for value in WHOLE)
    yield from ([*train, *words] for words in (["--epochs", "0"], ["--seed", "9" * 30]))
    yield from (
        ["train", "--data", value]
        for value in ("digist", "nowhere/", "", "/dev/null", "original/run.json")
    )
    yield from (
        [*train, "--model", value]
        for value in ("resnet81", "no.such:builder", "os:", ":x", "json:loads")
    )
    yield from ([*train, "--device", value] for value in ("cuda:99", "tpu", ""))
    forget = ["forget", *RUN]
    yield from ([*forget, "--classes", value] for value in ("10", "-1", "²", "cat", "1.5", ""))
    yield from ([*forget, "--fraction", value] for value in ("0", "1", "-0.1", "2", *NUMBERS))
    yield from ([*forget, "--random-classes", value] for value in ("0", "10", "11", *WHOLE))
    yield from (
        [*forget, "--classes", "3", "--method", value] for value in ("dukc", "", "boundary_shrink")
    )
    yield [*forget, "--fraction", "0.1", "--method", "boundary-shrink"]
    yield [*forget, "--classes", "3", "--fraction", "0.1"]
    yield [*forget]
    yield from (
        [*forget, "--ids", value] for value in ("nowhere.txt", "original", "/dev/null", "ids.txt")
    )
    yield from (
        [*forget, "--classes", "3", "--presets", value]
        for value in ("nowhere.toml", "ids.txt", "original/run.json")
    )
    yield from (
        [*forget, "--classes", "3", "--config", value]
        for value in ("nowhere.toml", "ids.txt", "broken.toml")
    )
    yield from (
        [*forget, "--classes", "3", "--max-accuracy-loss", value] for value in ("5", "-1", "nan")
    )
    yield from (
        [*forget, "--classes", "3", "--out", value] for value in ("original", "ids.txt", "/proc/x")
    )
    yield [
        "forget",
        "--weights",
        "original/model.safetensors",
        "--data",
        "digits",
        "--classes",
        "3",
    ]
    yield [
        "forget",
        "--model",
        "convnet",
        "--weights",
        "ids.txt",
        "--data",
        "digits",
        "--classes",
        "3",
    ]
    yield from (["compare", *RUN, "--classes", "3", "--methods", value] for value in ("dukc", ""))
    yield from (["tune", value, *RUN, "--classes", "3"] for value in ("dukc", "retrained", ""))
    yield from (
        ["tune", "scrub", *RUN, "--classes", "3", "--budget", value] for value in ("0", *WHOLE)
    )
    yield from (
        ["tune", "scrub", *RUN, *request]
        for request in (["--classes", "3", "--objective", "gap"], ["--fraction", "0.1", "--each"])
    )
    yield from ([name, "nowhere"] for name in ("show", "audit", "analyse"))
    yield from ([name, "original"] for name in ("audit", "analyse"))
    yield from (
        ["bench", value] for value in ("paper/tabel-cr", "nowhere.toml", "broken.toml", "ids.txt")
    )
    yield from (
        ["bench", "digits/quick", "--only", value]
        for value in ("methd=duck", "method=dukc", "duck", "case=99")
    )
    yield from (
        ["pool", "--data", "digits", "--models", value, "--out", "pool"] for value in ("0", *WHOLE)
    )
    yield from (
        ["report", *words]
        for words in (
            ["nowhere"],
            ["original", "-o", "original/run.json"],
            ["original", "-o", "ids.txt"],
        )
    )


def run(args: argparse.Namespace) -> None:
    # The script changes the current folder.
    results = ResultFile(args.out.resolve(), 60, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        with quiet():
            assert duck(["train", "--data", "digits", "--epochs", "1", "--out", "original"]) == 0
            assert duck(
                ["forget", *RUN, "--classes", "3", "--out", "forgot", "--max-accuracy-loss", "1"]
            ) in (0, 1)
        Path("ids.txt").write_text("no-such-id\n")
        Path("broken.toml").write_text("[[blocks]\n")
        for words in flags():
            check(results, f"duck {' '.join(map(repr, words))}", words)
        for name, damage in RECORDS.items():
            for command in ("show", "audit", "forget"):
                shutil.copytree("forgot", "damaged")
                damage(Path("damaged/run.json"))
                words = (
                    ["forget", "--run", "damaged", "--classes", "5"]
                    if command == "forget"
                    else [command, "damaged"]
                )
                harmless = (name, command) in {
                    ("an unknown model", "show"),
                    ("code as a model", "show"),
                    ("an unknown method", "show"),
                }
                check(
                    results,
                    f"duck {' '.join(words)} of a record that is {name}",
                    words,
                    {0, 2} if harmless else {2},
                )
                shutil.rmtree("damaged")


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    text = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(text):
        yield text


def check(
    results: ResultFile,
    name: str,
    words: list[str],
    allowed: frozenset[int] | set[int] = frozenset({2}),
) -> None:
    before = all_paths()
    with quiet() as text:
        try:
            code: object = duck(list(words))
        except SystemExit as stop:
            code = stop.code
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"[:200]
    new_paths = all_paths() - before
    problems = [] if code in allowed else [f"exit {code}"]
    problems += ["a traceback"] if "Traceback" in text.getvalue() else []
    problems += ["no message"] if code == 2 and not text.getvalue().strip() else []
    problems += [f"left {', '.join(sorted(new_paths))[:200]}"] if new_paths else []
    results.append(
        {
            "name": name,
            "exit": code,
            "message": text.getvalue().strip().replace(os.getcwd(), "FOLDER")[-300:],
            "wrong": problems,
        },
        0.0,
    )
    for path in new_paths:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)


def all_paths() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def print_results(rows: list[Row]) -> None:
    """Print how many misuses had the right outcome, and list the others."""
    wrong = [row for row in rows if row["wrong"]]
    print(
        f"{len(rows)} misuses, {len(rows) - len(wrong)} of them answered with exit code 2, "
        "a message and nothing left behind."
    )
    for row in wrong:
        print(f"- `{row['name']}`: {', '.join(row['wrong'])}")


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/misuse.jsonl"))
    run_or_print(parser, run, print_results)


if __name__ == "__main__":
    main()
