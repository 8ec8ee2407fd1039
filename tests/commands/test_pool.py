"""A pool from options: one call does what the command does, and Slurm gives each task its part."""

import os
from pathlib import Path

import pytest

from duck import DataOptions, Display
from duck.commands.pool import PoolOptions, make_pool, parse_share
from duck.errors import BadInput
from duck.pools.reader import Pool
from duck.scenarios import ForgetClasses

RECIPE = {"epochs": 1, "batch_size": 256}


def set_slurm(patch: pytest.MonkeyPatch, **values: int | str) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        patch.delenv(name)
    for name, value in values.items():
        patch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"ID": 0, "COUNT": 4, "MIN": 0}, (1, 4)),
        ({"ID": 4, "COUNT": 4, "MIN": 1, "STEP": 1}, (4, 4)),
        ({"ID": 14, "COUNT": 3, "MIN": 10, "STEP": 2}, (3, 3)),
    ],
)
def test_a_task_of_a_slurm_array_has_its_share(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, int], share: tuple[int, int]
) -> None:
    set_slurm(monkeypatch, **values)
    assert parse_share("slurm") == share
    assert parse_share(None) == share
    assert parse_share("1/2") == (1, 2)


def test_without_a_slurm_array_the_share_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    set_slurm(monkeypatch)
    assert parse_share(None) == (1, 1)
    with pytest.raises(BadInput):
        parse_share("slurm")


@pytest.mark.parametrize(
    "values",
    [
        {"ID": "x", "COUNT": 2, "MIN": 0},
        {"ID": 7, "COUNT": 3, "MIN": 1},  # ids such as 1, 5, 7 have no even steps
        {"ID": 3, "COUNT": 3, "MIN": 0, "STEP": 2},
    ],
)
def test_an_array_whose_parts_are_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, int | str]
) -> None:
    set_slurm(monkeypatch, **values)
    with pytest.raises(BadInput):
        parse_share(None)


def test_a_call_makes_the_part_of_a_slurm_task_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    display = Display(message=messages.append)
    request = ForgetClasses(["3"])
    source = DataOptions("digits")
    options = PoolOptions(tmp_path / "pool", models=4, method="neg-grad", device="cpu")
    set_slurm(monkeypatch, ID=2, COUNT=2, MIN=1)
    counts = make_pool(options, source, request, recipe=RECIPE, display=display)
    assert counts == (3, 0, 0)
    assert len(messages) == 1
    set_slurm(monkeypatch)
    assert make_pool(options, source, request, recipe=RECIPE, display=display) == (3, 3, 0)
    assert len(messages) == 1
    pool = Pool(tmp_path / "pool")
    assert (pool.design, len(pool)) == ("request", 4)
    assert pool.fingerprint["method"]["name"] == "neg-grad"
    assert pool.fingerprint["recipe"]["epochs"] == 1
