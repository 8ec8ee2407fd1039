"""Bring the generated parts of docs/results.md up to date with benchmarks/results.

python benchmarks/write_tables.py

A part stands between two comments below the command that prints it:

    duck bench --table paper/svm --out benchmarks/results --format markdown

<!-- begin -->
...
<!-- end -->
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from duck.cli import main as duck

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
PART = re.compile(r"^    duck (bench [^\n]*)\n\n<!-- begin -->\n(.*?)<!-- end -->$", re.MULTILINE | re.DOTALL)


def written(page: str) -> str:
    """Return the page with what its commands print."""
    return PART.sub(lambda part: _filled(part[1]), page)


def _filled(command: str) -> str:
    return f"    duck {command}\n\n<!-- begin -->\n{printed(command)}\n<!-- end -->"


def printed(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        duck(shlex.split(command))
    return out.getvalue().strip()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
