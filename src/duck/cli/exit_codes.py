"""Exit codes, and streams that nobody reads."""

import os
from contextlib import suppress
from typing import IO

DONE = 0
FAILED = 1
"""Nothing was forgotten, an earlier request is known again or was never forgotten, too much accuracy was lost, an audit says "not
forgotten", or runs failed."""
MISUSE = 2
NO_VERDICT = 3
CRASHED = 4
INTERRUPTED = 130
UNREAD = 141
"""Whoever read the output has gone, as `head` does."""


def unread(stream: IO[str]) -> None:
    """Whoever read it has gone: what is still written is not missed, and is no error."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
