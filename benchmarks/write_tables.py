"""Bring the tables of docs/results.md up to date with benchmarks/results: each becomes what the command shown on that page prints.

python benchmarks/write_tables.py
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from duck.cli import main as duck

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
COMMAND = re.compile(r"^    duck (bench --table .*)$", re.MULTILINE)
PRINTED = re.compile(r"(?:\*\*.*\*\*\n|\|.*\n|Mean ±.*\n|- .*\n|\n)*")


def written(page: str) -> str:
    """The page with the tables of its commands, each looked for after its command by its first title."""
    for command in COMMAND.findall(page):
        table = printed(command)
        start = page.index(table.partition("\n")[0], page.index(command))
        found = PRINTED.match(page, start)
        assert found is not None
        page = page[:start] + table + "\n\n" + page[found.end() :]
    return page


def printed(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        duck(shlex.split(command))
    return out.getvalue().strip()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
