"""The SVM attack (the paper's supplement): separate forgotten from unseen samples by the outputs.

One classifier is trained against one model.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from duck.audits.attacks.base import ATTACKS, OutputsAttack
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.scores import Array, Flags, Outputs, Places, Scored
from duck.errors import BadInput
from duck.pools.reader import Pool
from duck.runtime import seeded

C = (1, 5, 10, 100)
GAMMA = (1, 0.1, 0.01)
FOLDS = 3
CACHE_MB = 1000
SPLITS = 5
TEST_SHARE = 0.2
RATIO = {"class": 3, "samples": 1}
"""Forgotten samples for each unseen one."""
MIN_SAMPLES = 2 * FOLDS
"""On each side: a fold of a smaller set may lack one side."""
QUICK_MAX_ROWS = 2000
QUICK_C = 10
QUICK_GAMMA = 1


@ATTACKS.register("svm")
class SvmAttack(OutputsAttack):
    """Rank samples by their distance to the boundary of an SVM with fixed hyperparameters."""

    title = "SVM attack"
    description = "a classifier on the outputs separates forgotten from unseen samples"
    direction = "a classifier on the outputs separates forgotten from unseen samples"
    paper = "Cotogni 2023, arXiv:2312.02052"
    decisive = True
    # The SVM was fitted to separate the two: only success is evidence.
    alternative = "greater"
    columns = ("f1",)
    further_scores = ("chance",)
    ratios: ClassVar[Mapping[str, str]] = {"class": "3:1, chance 75", "samples": "1:1, chance 50"}
    remark = "F1 is micro-averaged, as in the paper, and equals the accuracy."
    settings = ("splits",)
    order = 70

    def __init__(self, setting: Setting, pool: Pool | None = None) -> None:
        super().__init__(setting, pool)
        # An audit asks several times for the same model, and training takes a second.
        self._scored: WeakKeyDictionary[ModelOutputs, Scored] = WeakKeyDictionary()

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Train on one half of the samples and score the other."""
        if outputs not in self._scored:
            forgotten = outputs.forget.take(self.setting.members)
            unseen = outputs.unseen.take(self.setting.matched)
            self._scored[outputs] = quick_svm(forgotten, unseen, self.setting.seed)
        return self._scored[outputs]

    @classmethod
    def is_possible(cls, setting: Setting) -> bool:
        """Return whether each side has enough samples to train an SVM."""
        return min(len(setting.matched), len(setting.members)) >= MIN_SAMPLES


@dataclass(frozen=True)
class SvmResult:
    """The scores that the SVM reached in each of several splits."""

    f1: tuple[float, ...]
    """Micro-averaged over both sides, which is the accuracy."""
    chance: float
    """The score of calling every sample forgotten."""
    settings: tuple[tuple[float, float], ...]
    """C and gamma that each grid search chose."""
    forgotten: int
    unseen: int

    @property
    def mean(self) -> float:
        """Mean over the splits."""
        return statistics.mean(self.f1)


def svm_attack(
    forgotten: Outputs,
    unseen: Outputs,
    kind: Literal["class", "samples"],
    seed: int = 0,
    splits: int = SPLITS,
    jobs: int = 1,
) -> SvmResult:
    """Run the paper's attack: an RBF kernel on softmax outputs, tested on 20 % of the samples.

    C and gamma come from a grid search in 3 folds of the other 80 %. For a removed class, `unseen`
    holds test samples of that class, with 3 forgotten samples for each; otherwise one for one.
    """
    generator = seeded(seed, "svm")
    subsets = [_draw(forgotten, unseen, RATIO[kind], generator) for _ in range(splits)]
    results = [_grid_search(*_join(*sides), generator, jobs) for sides in subsets]
    forgotten_count, unseen_count = map(len, subsets[0])
    return SvmResult(
        tuple(f1 for f1, _ in results),
        forgotten_count / (forgotten_count + unseen_count),
        tuple(settings for _, settings in results),
        forgotten_count,
        unseen_count,
    )


def quick_svm(forgotten: Outputs, unseen: Outputs, seed: int = 0) -> Scored:
    """Train on one half of at most 2,000 rows and score the other by its distance to the boundary.

    C and gamma are fixed, so that it takes seconds. Rows are drawn in pairs of a forgotten and an
    unseen sample of the same class, and the pairs of a class are dealt to both halves in turn. With
    any other split, a class that has more forgotten samples in one half has fewer in the other, and
    the AUC without a leak is below 0.5.
    """
    generator = seeded(seed, "quick-svm")
    forgotten_rows, unseen_rows = _draw_pairs(forgotten, unseen, generator)
    train, test = (
        (forgotten.take(forgotten_rows[half::2]), unseen.take(unseen_rows[half::2]))
        for half in (0, 1)
    )
    svm = SVC(C=QUICK_C, gamma=QUICK_GAMMA).fit(*_join(*train))
    inputs, targets = _join(*test)
    ids = np.concatenate([side.ids for side in test])
    return Scored(ids, svm.decision_function(inputs), targets)


def _draw_pairs(
    forgotten: Outputs, unseen: Outputs, generator: torch.Generator
) -> tuple[Places, Places]:
    """Draw rows of both sides, the same class at each place, sorted by class."""
    forgotten_order = torch.randperm(len(forgotten), generator=generator).numpy()
    unseen_order = torch.randperm(len(unseen), generator=generator).numpy()
    pairs = []
    for label in np.intersect1d(forgotten.labels, unseen.labels):
        forgotten_rows = forgotten_order[forgotten.labels[forgotten_order] == label]
        unseen_rows = unseen_order[unseen.labels[unseen_order] == label]
        count = min(len(forgotten_rows), len(unseen_rows))
        pairs.append(np.stack([forgotten_rows[:count], unseen_rows[:count]]))
    found = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), np.intp)
    count = found.shape[1]
    if count < MIN_SAMPLES:
        raise BadInput(
            f"The SVM attack needs at least {MIN_SAMPLES} forgotten and {MIN_SAMPLES} unseen "
            f"samples of the same classes, got {len(forgotten)} and {len(unseen)}, of which "
            f"{count} have a partner."
        )
    chosen = np.sort(torch.randperm(count, generator=generator).numpy()[: QUICK_MAX_ROWS // 2])
    return found[0, chosen], found[1, chosen]


def _draw(
    forgotten: Outputs, unseen: Outputs, ratio: int, generator: torch.Generator
) -> tuple[Outputs, Outputs]:
    """Draw samples of both sides, as many as the ratio allows."""
    count = min(len(unseen), len(forgotten) // ratio)
    if count < MIN_SAMPLES:
        raise BadInput(
            f"The SVM attack needs at least {MIN_SAMPLES * ratio} forgotten and {MIN_SAMPLES} "
            f"unseen samples, got {len(forgotten)} and {len(unseen)}."
        )
    forgotten_order = torch.randperm(len(forgotten), generator=generator).numpy()
    unseen_order = torch.randperm(len(unseen), generator=generator).numpy()
    return forgotten.take(forgotten_order[: ratio * count]), unseen.take(unseen_order[:count])


def _grid_search(
    inputs: Array, targets: Flags, generator: torch.Generator, jobs: int
) -> tuple[float, tuple[float, float]]:
    """Return the test score of the best C and gamma, and these."""
    # Stratified: the chance level of the test rows is then that of all rows.
    train_inputs, test_inputs, train_targets, test_targets = train_test_split(
        inputs,
        targets,
        test_size=TEST_SHARE,
        stratify=targets,
        random_state=int(torch.randint(2**31, (), generator=generator)),
    )
    search = GridSearchCV(SVC(cache_size=CACHE_MB), {"C": C, "gamma": GAMMA}, cv=FOLDS, n_jobs=jobs)
    with parallel_config(backend="threading"):  # an SVM trains outside of Python's lock
        search.fit(train_inputs, train_targets)
    best = search.best_params_
    return float(search.score(test_inputs, test_targets)), (float(best["C"]), float(best["gamma"]))


def _join(forgotten: Outputs, unseen: Outputs) -> tuple[Array, Flags]:
    """Return the inputs of an SVM, and for each row whether it is a forgotten sample."""
    inputs = np.concatenate([forgotten.probabilities, unseen.probabilities])
    return inputs, np.repeat([True, False], [len(forgotten), len(unseen)])
