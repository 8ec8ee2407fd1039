"""Update the generated parts of the documents from benchmarks/results.

python benchmarks/write_tables.py

A part is between two comments, below the command that prints it: `duck bench` or a script of this
folder:

    duck bench --table paper/svm --out benchmarks/results --format markdown

<!-- begin -->
...
<!-- end -->
"""

import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

from duck.cli import main as duck

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / name for name in ("results.md", "protocol.md", "assurance.md")]
COMMAND = r"^    (duck bench [^\n]*|python benchmarks/\w+\.py --table [^\n]*)"
PART = re.compile(COMMAND + r"\n\n<!-- begin -->\n(.*?)<!-- end -->$", re.MULTILINE | re.DOTALL)


def update_page(page: str) -> str:
    """Return the page with the output of its commands."""
    return PART.sub(
        lambda part: f"    {part[1]}\n\n<!-- begin -->\n{output_of(part[1])}\n<!-- end -->", page
    )


def output_of(command: str) -> str:
    """Run a command in this process and return its output."""
    program, *words = shlex.split(command)
    out = io.StringIO()
    arguments = sys.argv
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        if program == "python":
            try:
                sys.argv = words
                runpy.run_path(words[0], run_name="__main__")
            finally:
                sys.argv = arguments
        else:
            duck(words)
    return out.getvalue().strip()


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(update_page(page.read_text(encoding="utf-8")), encoding="utf-8")
