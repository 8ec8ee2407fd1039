"""What the tables of scores and of attacks show, and the scores of a result it comes from."""

import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import Attack


class Spread(NamedTuple):
    """The mean and the sample standard deviation of some values, and the mean of the paper."""

    mean: float | None
    std: float | None
    paper: float | None = None


class Column(NamedTuple):
    """A column of a table: its title, the factor of its values (100 for per cent), its digits."""

    title: str
    factor: float = 1.0
    digits: int = 3

    def format(self, value: float | None, sign: str = "") -> str:
        """Return a value as a table shows it; `sign` is "+" for differences."""
        return "-" if value is None else f"{self.factor * value:{sign}.{self.digits}f}"

    def format_spread(self, values: Spread) -> str:
        """Return mean ± standard deviation."""
        mean = self.format(values.mean)
        return mean if values.std is None else f"{mean} ± {self.format(values.std)}"


def spread(values: Iterable[float | None], paper: float | None = None) -> Spread:
    """Return mean and standard deviation of the known values; a single one has no deviation."""
    known = [value for value in values if value is not None]
    mean = statistics.mean(known) if known else None
    return Spread(mean, statistics.stdev(known) if len(known) > 1 else None, paper)


ATTACK_SCORES = {
    "tpr_1": Column("TPR@1%FPR %", 100, 2),
    "tpr_0.1": Column("TPR@0.1%FPR %", 100, 2),
    "auc": Column("AUC"),
    "f1": Column("F1 %", 100, 2),
}
"""The scores that an attack can name as its columns."""
COLUMNS: dict[str | None, dict[str, Column]] = {
    None: {
        "aus": Column("AUS"),
        "kept": Column("kept %", 100, 2),
        "forgotten": Column("forgotten %", 100, 2),
    },
    **{
        name: {score: ATTACK_SCORES[score] for score in attack.columns}
        for name, attack in ATTACKS.items()
        if attack.columns
    },
    "density": {
        "forget_train": Column("forgotten class, train", digits=2),
        "retain_train": Column("retained classes, train", digits=2),
        "forget_test": Column("forgotten class, test", digits=2),
        "retain_test": Column("retained classes, test", digits=2),
    },
    "bias": {
        "wrong": Column("predicted wrong %", 100, 2),
        "right": Column("right %", 100, 2),
        "test": Column("test %", 100, 2),
        "shap": Column("SHAP of the square", 1.0, 4),
    },
    "time": {
        "seconds": Column("time s", 1.0, 2),
        "speedup": Column("speed-up over Retrained", 1.0, 1),
        "aus": Column("AUS"),
        "kept": Column("kept %", 100, 2),
    },
}
"""By the attack or study of a grid; None: the columns of the large tables of the paper. `time` is a
view of those tables."""
ACCURACIES = {
    "class": {"aus": "aus", "kept": "retain_test", "forgotten": "forget_test"},
    "samples": {"aus": "aus", "kept": "test", "forgotten": "forget"},
}
"""The scores of those columns. If a class is removed, `forgotten` is the accuracy on its test
samples, else that on the forgotten training samples."""


def find_attack(measurement: str | None) -> type[Attack] | None:
    """Return the attack of a table; None for plain scores, studies and times."""
    return ATTACKS[measurement] if measurement and measurement in ATTACKS else None


def measures(scenario: str, measurement: str | None) -> Mapping[str, str]:
    """Return the columns of a table with the scores that they show."""
    if measurement is None:
        return ACCURACIES[scenario]
    return {name: name for name in COLUMNS[measurement]}
