"""Progress of long reads."""

from collections.abc import Callable

ProgressCallback = Callable[[int, int], None]
"""Called with (done, total): bytes of a download, or images decoded."""
