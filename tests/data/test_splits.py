import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duck.data.splits import holdout_rows, split_by_hash
from duck.types import Ids


def numbered(count: int) -> Ids:
    return np.array([f"sample-{row}" for row in range(count)])


def test_holdout_is_a_fifth_of_each_class() -> None:
    labels = torch.arange(1000) % 10
    rows = holdout_rows(labels, numbered(1000), "some set")
    assert torch.bincount(labels[rows]).tolist() == [20] * 10
    assert rows.tolist() == sorted(set(rows.tolist()))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_holdout_leaves_some_of_each_class_to_report(sizes: list[int]) -> None:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    chosen = torch.bincount(
        labels[holdout_rows(labels, numbered(len(labels)), "x")], minlength=len(sizes)
    ).tolist()
    assert chosen == [0 if size == 1 else max(1, round(0.2 * size)) for size in sizes]


def test_holdout_follows_the_name_and_the_ids_not_the_order() -> None:
    labels, ids = torch.arange(200) % 4, numbered(200)
    chosen = set(ids[holdout_rows(labels, ids, "first").numpy()])
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    shuffled = ids[order.numpy()]
    assert set(shuffled[holdout_rows(labels[order], shuffled, "first").numpy()]) == chosen
    assert set(ids[holdout_rows(labels, ids, "second").numpy()]) != chosen


def test_split_by_hash_is_80_10_10() -> None:
    split = split_by_hash(numbered(20_000))
    assert sorted([*split.train.tolist(), *split.test.tolist()]) == list(range(20_000))
    assert len(split.train) == pytest.approx(16_000, abs=250)
    assert len(split.holdout) == pytest.approx(2_000, abs=200)
    assert len(split.test) - len(split.holdout) == pytest.approx(2_000, abs=200)
    assert int(split.holdout.max()) < len(split.test)


def test_split_by_hash_is_the_first_digits_of_blake2() -> None:
    ids = numbered(500)
    tenths = [
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        * 10
        // 2**64
        for name in ids.tolist()
    ]
    split = split_by_hash(ids)
    assert split.train.tolist() == [row for row, tenth in enumerate(tenths) if tenth < 8]
    assert split.test[split.holdout].tolist() == [
        row for row, tenth in enumerate(tenths) if tenth == 8
    ]


@given(st.sets(st.text(min_size=1, max_size=8), min_size=2, max_size=40))
@settings(max_examples=40, deadline=None)
def test_no_sample_moves_when_others_go(names: set[str]) -> None:
    ids = np.array(sorted(names))
    fewer = ids[1:]
    assert set(fewer[split_by_hash(fewer).train.numpy()]) == set(
        ids[split_by_hash(ids).train.numpy()]
    ) - {ids[0]}


def test_another_process_splits_alike() -> None:
    code = (
        "import numpy as np; from duck.data.splits import split_by_hash;"
        "print(split_by_hash(np.array([str(row) for row in range(60)])).test.tolist())"
    )
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert there == str(split_by_hash(np.arange(60).astype(np.str_)).test.tolist())
