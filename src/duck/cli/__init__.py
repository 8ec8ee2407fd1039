"""The command `duck`: the first word chooses a module of this package; nothing heavy loads before."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from duck.cli.exit_codes import CRASHED, DONE, INTERRUPTED, MISUSE, UNREAD, unread
from duck.errors import DuckError
from duck.files import CacheWarning
from duck.printable import printable
from duck.registry import suggest

COMMANDS = {
    "demo": "train, forget, retrain, compare and audit on embedded data; half a minute on a CPU",
    "train": "train an original model and store it as a run",
    "forget": "make a model forget classes, a share, or chosen samples",
    "compare": "one scenario through many methods, in one table",
    "tune": "search a method's settings on holdout data",
    "bench": "run a grid of experiments, or print its table beside the paper's",
    "audit": "attack an unlearned model and say whether it forgot, with controls",
    "pool": "train the models that attacks compare with; merge pools",
    "report": "one page about stored runs: verdict, evidence, figures",
    "analyse": "feature space and SHAP maps of stored runs",
    "debias": "plant a bias, unlearn it, and see whether it is gone",
    "show": "print what a stored run holds",
    "list": "methods, scenarios, datasets, models, attacks, grids",
}

STARTED_AGAIN = "No half-written run was left; the same command starts it again."
AFTER = {
    "train": "No half-written run was left; the same command goes on after the last epoch that was finished.",
    "audit": "Retrained models and models of a pool that were finished are kept; the same command goes on after them.",
    "report": "The page and the figures that were finished are there; the same command writes them anew.",
}
"""What an interrupted command leaves."""


def _help() -> str:
    rows = "\n".join(f"  duck {word:<8} {text}" for word, text in COMMANDS.items())
    return (
        "Make a trained image classifier forget, and say whether it worked.\n\n"
        f"{rows}\n\n"
        "duck COMMAND --help explains each. Try `duck demo` first.\n"
        "Exit codes: 0 done or forgotten; 1 not forgotten, an earlier request that is known, too much accuracy lost,\n"
        "or runs that failed; 2 wrong input; 3 no verdict; 4 the program failed; 130 interrupted (Ctrl-C)."
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return DONE
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"duck-unlearning {version('duck-unlearning')}")
        return DONE
    if words[0] not in COMMANDS:
        return _say(f"duck: no command {words[0]!r}. {suggest(words[0], COMMANDS)}", MISUSE)
    # Before torch loads. OpenMP's threads spin while they wait for each other; beside other work that takes many times as long as sleeping.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        with _warnings_in_one_line(words[0]):
            code = int(import_module(f"duck.cli.{words[0]}_command").main(words[1:]))
        sys.stdout.flush()
        return code
    except DuckError as error:
        return _say(f"duck {words[0]}: {error}", MISUSE)
    except BrokenPipeError:
        unread(sys.stdout)
        return UNREAD
    except OSError as error:
        return _say(f"duck {words[0]}: {error}", MISUSE)
    except KeyboardInterrupt:
        return _say(
            f"duck {words[0]}: interrupted. {AFTER.get(words[0], STARTED_AGAIN)}", INTERRUPTED
        )
    except Exception as error:
        if os.environ.get("DUCK_TRACEBACK"):
            raise
        if (
            type(error).__name__ == "OutOfMemoryError"
        ):  # torch's own; naming the class would load torch
            return _say(
                f"duck {words[0]}: the device ran out of memory. Lower --image-size, or use --device cpu.",
                MISUSE,
            )
        return _say(
            f"duck {words[0]} failed: {type(error).__name__}: {error} (DUCK_TRACEBACK=1 shows where)",
            CRASHED,
        )


@contextmanager
def _warnings_in_one_line(command: str) -> Iterator[None]:
    """Say what a cache that cannot be used costs as everything else is said, not as Python does."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plain(
            message: Warning | str, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            if issubclass(category, CacheWarning):
                _say(f"duck {command}: {message}", DONE)
            else:
                show(message, category, *place, **more)

        warnings.simplefilter("always", CacheWarning)
        warnings.showwarning = show_plain
        yield


def _say(message: str, code: int) -> int:
    try:
        print(printable(message), file=sys.stderr, flush=True)
    except BrokenPipeError:
        unread(sys.stderr)
    return code
