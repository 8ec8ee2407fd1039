"""List the modules whose functions run in seven typical commands, on digits.

    python benchmarks/walks.py

The commands run in a temporary folder, one after the other, each in its own process. A module
counts if one of its functions is called; what only an import executes does not.
"""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

from duck.cli.exit_codes import CRASHED, MISUSE

PREPARATION = (
    "train --data digits --epochs 3 --out original",
    "forget --run original --classes 3 --out forgot",
    "pool --data digits --models 8 --epochs 2 --out shadows",
)
WALKS = {
    "forget": "forget --run original --classes 3 --out walk",
    "audit --tier full": "audit forgot --tier full --models 5 --pool-models 20",
    "bench paper/lira": "bench paper/lira --rehearse --pool shadows",
    "report": "report . -o report.html",
    "pool": "pool --data digits --models 2 --epochs 2 --out pool",
    "compare": "compare --run original --classes 3 --methods duck finetune",
    "tune": "tune scrub --run original --classes 3 --budget 2",
}


def main() -> None:
    if sys.argv[1:2] == ["--trace"]:
        trace(sys.argv[2:])
        return
    if sys.argv[1:]:
        print(__doc__)
        return
    with tempfile.TemporaryDirectory() as folder:
        for command in PREPARATION:
            run(command, folder)
        for name, command in WALKS.items():
            modules = run(command, folder).splitlines()
            print(f"**{name}** ({len(modules)}): {', '.join(modules)}\n", flush=True)


def run(command: str, folder: str) -> str:
    """Run a command of duck and return the modules that it calls, one in a line."""
    words = [sys.executable, str(Path(__file__).resolve()), "--trace", *command.split()]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode in (MISUSE, CRASHED):
        raise SystemExit(f"duck {command} failed:\n{result.stderr}")
    return result.stdout


def trace(words: list[str]) -> None:
    """Run a command with its output on stderr, and print the modules that it calls."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        is_new = name.startswith("duck.") and name.removeprefix("duck.") not in modules
        if event == "call" and is_new and not is_import(frame):
            modules.add(name.removeprefix("duck."))

    output, sys.stdout = sys.stdout, sys.stderr
    from duck.cli import main as duck_main

    threading.setprofile(note)
    sys.setprofile(note)
    code = duck_main(words)
    sys.setprofile(None)
    print("\n".join(sorted(modules)), file=output)
    raise SystemExit(code)


def is_import(frame: FrameType | None) -> bool:
    """Return whether a frame runs because a module of duck is imported."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and name.startswith("duck."):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
