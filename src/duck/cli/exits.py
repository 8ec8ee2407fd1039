"""Exit codes."""

DONE = 0
FAILED = 1
"""Nothing was forgotten, an audit says "not forgotten", or runs of a grid failed."""
MISUSE = 2
NO_VERDICT = 3
CRASHED = 4
INTERRUPTED = 130
UNREAD = 141
"""Whoever read the output has gone, as `head` does."""
