from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_numbers_each_time() -> Iterator[None]:
    """One thread, because threads that wait for each other are slow where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)
