import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _hear_ctrl_c() -> Iterator[None]:
    """Tests that a shell started in the background, and their children, would ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
