"""The command `duck`: the first word names a module of this package, which is imported then."""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from duck.cli.exit_codes import (
    CLOSED_OUTPUT,
    CRASHED,
    DONE,
    INTERRUPTED,
    MISUSE,
    discard_output,
)
from duck.cli.placeholders import can_use_placeholders, use_placeholders
from duck.errors import DuckError
from duck.files import CacheWarning
from duck.printable import printable
from duck.registry import suggest

COMMANDS = {
    "demo": "train, forget, retrain, compare and audit on embedded data; a minute on a CPU",
    "train": "train an original model and store it as a run",
    "forget": "make a model forget classes, a fraction, or chosen samples",
    "compare": "run many methods on one scenario and print one table",
    "tune": "search the hyperparameters of a method on holdout data",
    "bench": "run a grid of experiments, or print its table with the numbers of the paper",
    "audit": "attack an unlearned model and judge whether it forgot, with controls",
    "pool": "train the models that attacks compare with; merge pools",
    "report": "write one page about stored runs: verdict, evidence, figures",
    "analyse": "compute the feature space and SHAP maps of stored runs",
    "debias": "plant a bias, unlearn it, and measure how much of it is left",
    "show": "print the record of a stored run",
    "list": "methods, presets, scenarios, datasets, models, attacks, grids",
}

PRINTING_COMMANDS = ("list", "show")
"""Commands that compute nothing; `--help` of the others does not either."""

AFTER_INTERRUPT = {
    "train": "No incomplete run was stored. The same command resumes after the last finished "
    "epoch.",
    "audit": "Finished retrained models and models of a pool are stored. The same command reuses "
    "them.",
    "pool": "Finished models are stored. The same command resumes.",
    "report": "Finished files are there. The same command writes them again.",
}
RERUN_AFTER_INTERRUPT = "No incomplete run was stored. The same command starts it again."


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if argv is None:
        # The process ends anyway: its last garbage collection would only take time.
        atexit.register(gc.freeze)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        discard_output(sys.stdout)
        return CLOSED_OUTPUT


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return DONE
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"duck-unlearning {version('duck-unlearning')}")
        return DONE
    command = words[0]
    if command not in COMMANDS:
        return _fail(f"duck: no command {command!r}. {suggest(command, COMMANDS)}", MISUSE)
    # Before torch is imported. Threads of OpenMP spin while they wait for each other; with other
    # work on the machine that takes many times as long as sleeping.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        with _short_cache_warnings(command):
            return _run(command, words[1:])
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        state = AFTER_INTERRUPT.get(command, RERUN_AFTER_INTERRUPT)
        return _fail(f"duck {command}: interrupted. {state}", INTERRUPTED)
    except Exception as error:
        return _report_error(command, error)


def _help() -> str:
    rows = "\n".join(f"  duck {command:<8} {text}" for command, text in COMMANDS.items())
    return (
        "Make a trained image classifier forget, and measure whether it worked.\n\n"
        f"{rows}\n\n"
        "`duck COMMAND --help` explains each command. Try `duck demo` first.\n"
        "Exit codes: 0 done or forgotten; 1 not forgotten, an earlier request is remembered, too\n"
        "much accuracy lost, or runs failed; 2 wrong input; 3 no verdict; 4 internal error;\n"
        "130 interrupted (Ctrl-C)."
    )


def _run(command: str, words: Sequence[str]) -> int:
    only_prints = command in PRINTING_COMMANDS or not {"-h", "--help"}.isdisjoint(words)
    if only_prints and can_use_placeholders():
        try:
            with use_placeholders():
                return _run_module(command, words)
        except BrokenPipeError:
            raise
        except Exception:
            # The error may come from a placeholder. If not, it occurs again without them.
            pass
    return _run_module(command, words)


def _run_module(command: str, words: Sequence[str]) -> int:
    # Importing torch creates a million objects, none of them garbage. Looking for some among them
    # takes a fifth of the time.
    gc.disable()
    try:
        module = import_module(f"duck.cli.{command}_command")
    finally:
        gc.enable()
    return int(module.main(list(words)))


def _report_error(command: str, error: Exception) -> int:
    if isinstance(error, DuckError | OSError):
        return _fail(f"duck {command}: {error}", MISUSE)
    if os.environ.get("DUCK_TRACEBACK"):
        raise error
    # The class of torch is compared by name: importing it would take seconds.
    if type(error).__name__ == "OutOfMemoryError":
        advice = "Lower --image-size, or use --device cpu."
        return _fail(f"duck {command}: the device ran out of memory. {advice}", MISUSE)
    reason = f"{type(error).__name__}: {error}"
    return _fail(f"duck {command} failed: {reason} (DUCK_TRACEBACK=1 shows where)", CRASHED)


@contextmanager
def _short_cache_warnings(command: str) -> Iterator[None]:
    """Print a warning about a cache as one line, without file and line number."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_short(
            message: Warning | str, category: type[Warning], *place: Any, **options: Any
        ) -> None:
            if issubclass(category, CacheWarning):
                _print_error(f"duck {command}: {message}")
            else:
                show(message, category, *place, **options)

        warnings.simplefilter("always", CacheWarning)
        warnings.showwarning = show_short
        yield


def _fail(message: str, code: int) -> int:
    _print_error(message)
    return code


def _print_error(message: str) -> None:
    try:
        print(printable(message), file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard_output(sys.stderr)
