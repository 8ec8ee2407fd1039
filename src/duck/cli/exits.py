"""Exit codes."""

DONE = 0
FAILED = 1
"""Nothing was forgotten."""
MISUSE = 2
CRASHED = 4
INTERRUPTED = 130
