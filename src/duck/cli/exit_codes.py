"""Exit codes of the commands, and output streams that are closed."""

import os
from contextlib import suppress
from typing import IO

DONE = 0
FAILED = 1
"""Nothing was forgotten, an earlier request is remembered, too much accuracy was lost, an
audit found "not forgotten", or runs failed."""
MISUSE = 2
NO_VERDICT = 3
CRASHED = 4
INTERRUPTED = 130
CLOSED_OUTPUT = 141
"""The reader of the output has closed it, as `head` does."""


def discard_output(stream: IO[str]) -> None:
    """Send everything that is still written to a closed stream to the null device."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
