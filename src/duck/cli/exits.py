"""Exit codes."""

DONE = 0
FAILED = 1
"""Nothing was forgotten, or an audit says "not forgotten"."""
MISUSE = 2
NO_VERDICT = 3
CRASHED = 4
INTERRUPTED = 130
