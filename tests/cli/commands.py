"""Run commands in this process, and make the runs and images that several tests start from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from duck import cli


class Printed(NamedTuple):
    """The exit code of a command and what it printed."""

    code: int
    out: str
    err: str


def split(text: str, *places: object) -> list[str]:
    """Return the words of a command line, with the given values in place of each `{}`."""
    values = iter(places)
    line = [str(next(values)) if word == "{}" else word for word in text.split()]
    assert not list(values)
    return line


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> Printed:
    """Run a command and return what it printed."""
    capsys.readouterr()
    code = cli.main([str(word) for word in argv])
    return Printed(code, *capsys.readouterr())


def words_of(*parts: object) -> list[str]:
    """Return the words of a command: a text is split at spaces, a path is not."""
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words += part.split()
        else:
            words += words_of(*part) if isinstance(part, list | tuple) else [str(part)]
    return words


@dataclass(frozen=True)
class Runner:
    """Runs commands in this process and checks their exit codes. None: all but those of errors."""

    capsys: pytest.CaptureFixture[str]

    def run(self, *parts: object, code: int | None = 0) -> Printed:
        """Run a command and return what it printed."""
        printed = run(self.capsys, *words_of(*parts))
        assert printed.code in ((0, 1, 3) if code is None else (code,)), printed.err
        return printed

    def __call__(self, *parts: object, code: int | None = 0) -> Any:
        """Run a command and return its JSON or, for wrong input, its message."""
        is_error = code not in (None, 0, 1)
        printed = self.run(*parts, *([] if is_error else ["--json"]), code=code)
        return " ".join(printed.err.split()) if is_error else json.loads(printed.out)


def duck(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> Any:
    """Run a command, check its exit code, and return its JSON or its error message."""
    printed = run(capsys, *argv)
    assert printed.code == code, printed.err
    return json.loads(printed.out) if code in (0, 1) else printed.err


def train_digits(folder: Path, epochs: int) -> None:
    """Train an original on the digits."""
    flags = ["--epochs", str(epochs), "--out", str(folder)]
    assert cli.main(["train", "--data", "digits", *flags, "--json"]) == 0


def write_images(folder: Path, names: Sequence[str], count: int = 40) -> None:
    """Write class folders of small images, each class brightest in a channel of its own."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 90, (8, 8, 3), dtype=np.uint8)
            pixels[..., label] += 120
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
