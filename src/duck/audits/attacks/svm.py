"""One classifier against one model: an SVM that tells forgotten from unseen samples by the model's outputs (the paper's supplement)."""

import statistics
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from duck.audits.scores import Outputs, Places, Scored
from duck.errors import BadInput
from duck.runtime import seeded

C = (1, 5, 10, 100)
GAMMA = (1, 0.1, 0.01)
FOLDS = 3
CACHE = 1000
"""MB."""
SPLITS = 5
TESTED = 0.2
RATIO = {"class": 3, "samples": 1}
"""Forgotten samples for each unseen one."""
QUICK_ROWS, QUICK_C, QUICK_GAMMA = 2000, 10, 1


@dataclass(frozen=True)
class Separation:
    """What the SVM reached in each of several splits."""

    f1: tuple[float, ...]
    """Micro-averaged over both sides, which is the accuracy."""
    chance: float
    """Of calling every sample forgotten."""
    settings: tuple[tuple[float, float], ...]
    """C and gamma that each grid search chose."""
    forgotten: int
    unseen: int

    @property
    def mean(self) -> float:
        return statistics.mean(self.f1)

    @property
    def std(self) -> float:
        return statistics.stdev(self.f1) if len(self.f1) > 1 else 0.0


def svm_attack(
    forgotten: Outputs,
    unseen: Outputs,
    kind: Literal["class", "samples"],
    seed: int = 0,
    splits: int = SPLITS,
    jobs: int = 1,
) -> Separation:
    """The paper's: RBF kernel on softmax outputs, C and gamma by a grid search in 3 folds of 80 %, judged on the other 20 %.

    Of a removed class, `unseen` are test samples of that class, and 3 forgotten samples stand against each; else one.
    """
    generator = seeded(seed, "svm")
    drawn = [_drawn(forgotten, unseen, RATIO[kind], generator) for _ in range(splits)]
    found = [_grid_search(forgotten, unseen, rows, generator, jobs) for rows in drawn]
    count, others = map(len, drawn[0])
    return Separation(
        tuple(f1 for f1, _ in found),
        count / (count + others),
        tuple(chosen for _, chosen in found),
        count,
        others,
    )


def quick_svm(forgotten: Outputs, unseen: Outputs, seed: int = 0) -> Scored:
    """In seconds: fixed C and gamma, at most 2,000 rows; one half trains, the other half is ranked by its distance to the boundary."""
    generator = seeded(seed, "quick-svm")
    some, others = (rows[: QUICK_ROWS // 2] for rows in _drawn(forgotten, unseen, 1, generator))
    inputs, answers = _joined(forgotten, unseen, some, others)
    names = np.concatenate([forgotten.ids[some], unseen.ids[others]])
    train, test = train_test_split(
        np.arange(len(answers)), test_size=0.5, stratify=answers, random_state=_state(generator)
    )
    svm = SVC(C=QUICK_C, gamma=QUICK_GAMMA).fit(inputs[train], answers[train])
    return Scored(names[test], svm.decision_function(inputs[test]), answers[test])


def _drawn(
    forgotten: Outputs, unseen: Outputs, ratio: int, generator: torch.Generator
) -> tuple[Places, Places]:
    """Rows of both, as many as the ratio allows."""
    count = min(len(unseen), len(forgotten) // ratio)
    if count < 2 * FOLDS:
        raise BadInput(
            f"The SVM attack needs at least {2 * FOLDS * ratio} forgotten and {2 * FOLDS} unseen samples, "
            f"got {len(forgotten)} and {len(unseen)}."
        )
    some, others = (
        torch.randperm(len(side), generator=generator).numpy() for side in (forgotten, unseen)
    )
    return some[: ratio * count], others[:count]


def _grid_search(
    forgotten: Outputs,
    unseen: Outputs,
    rows: tuple[Places, Places],
    generator: torch.Generator,
    jobs: int,
) -> tuple[float, tuple[float, float]]:
    inputs, answers = _joined(forgotten, unseen, *rows)
    # Stratified: the chance level of the test rows is then that of all.
    train, test = train_test_split(
        np.arange(len(answers)), test_size=TESTED, stratify=answers, random_state=_state(generator)
    )
    kernels, scores = _Kernels(inputs), {}
    for gamma in GAMMA:
        search = GridSearchCV(
            SVC(kernel="precomputed", cache_size=CACHE),
            {"C": C},
            cv=FOLDS,
            n_jobs=jobs,
            refit=False,
        )
        with parallel_config(backend="threading"):  # an SVM trains outside of Python's lock
            search.fit(kernels(gamma, train, train), answers[train])
        scores.update(
            {
                (c, gamma): score
                for c, score in zip(C, search.cv_results_["mean_test_score"], strict=True)
            }
        )
    best = max(
        ((c, gamma) for c in C for gamma in GAMMA), key=scores.__getitem__
    )  # of equals the first
    chosen = SVC(C=best[0], kernel="precomputed", cache_size=CACHE).fit(
        kernels(best[1], train, train), answers[train]
    )
    return float(chosen.score(kernels(best[1], test, train), answers[test])), (
        float(best[0]),
        float(best[1]),
    )


class _Kernels:
    """RBF kernels of the same rows: computed once for each gamma, not for every fit, which is most of an SVM's time on many outputs."""

    def __init__(self, inputs: npt.NDArray[np.float64]) -> None:
        squares = np.square(inputs).sum(1)
        self.distances = inputs @ inputs.T
        self.distances *= -2
        self.distances += squares
        self.distances += squares[:, None]

    def __call__(self, gamma: float, some: Places, others: Places) -> npt.NDArray[np.float64]:
        part = self.distances[np.ix_(some, others)]
        part *= -gamma
        kernel: npt.NDArray[np.float64] = np.exp(part, out=part)
        return kernel


def _joined(
    forgotten: Outputs, unseen: Outputs, some: Places, others: Places
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    inputs = np.concatenate([forgotten.probabilities[some], unseen.probabilities[others]])
    return inputs, np.repeat([True, False], [len(some), len(others)])


def _state(generator: torch.Generator) -> int:
    return int(torch.randint(2**31, (), generator=generator))
