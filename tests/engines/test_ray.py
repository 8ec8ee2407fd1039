"""The Ray engine on a Ray instance of this machine; skipped where Ray is not installed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from duck.engines import RayEngine, create_engine
from duck.errors import BadInput, DuckError
from duck.pools.reader import Pool
from tests.audits.pools import build, plan
from tests.engines.functions import die, fail, square


def always(_: object) -> bool:
    return True


def test_ray_options_need_the_ray_engine() -> None:
    assert create_engine("ray", 2, "auto", 0.5) == RayEngine(2, "auto", 0.5)
    with pytest.raises(BadInput, match="--engine ray"):
        create_engine("processes", 2, "auto")
    with pytest.raises(BadInput, match="--engine ray"):
        create_engine(None, 1, None, 0.5)
    with pytest.raises(BadInput, match="at least 1"):
        RayEngine(0)
    with pytest.raises(BadInput, match="0 or more"):
        RayEngine(1, None, -1.0)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"duck-unlearning\[ray\]"):
        list(RayEngine(1)(square, [1], always))


# Ray warns of its own future changes and leaves sockets to be collected.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ray_keeps_the_contract(tmp_path: Path) -> None:
    """One test: to start Ray takes seconds."""
    ray = pytest.importorskip("ray")
    root = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, root)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        engine = RayEngine(2)
        assert sorted(engine(square, [0, 3, 2, 1], lambda task: task != 2)) == [0, 9]
        with pytest.raises(ZeroDivisionError, match="number 2"):
            list(RayEngine(1)(fail, [0, 2, 3], always))
        with pytest.raises(DuckError, match="resume"):
            list(RayEngine(1)(die, [0, 5], always))
        assert build(tmp_path / "ray", plan(), 2, engine="ray", workers=2) == (3, 0, 0)
    finally:
        ray.shutdown()
        sys.path.remove(root)
    assert build(tmp_path / "inline", plan(), 2) == (3, 0, 0)
    one = Pool(tmp_path / "ray").before.margins
    other = Pool(tmp_path / "inline").before.margins
    assert np.array_equal(one, other)
