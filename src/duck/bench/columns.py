"""What the tables of scores and of attacks show, and the scores of a line that it comes from."""

import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from duck.audits.attacks import ATTACKS

Spread = dict[str, float | None]
"""The `mean` and the sample standard deviation `std` of some values."""


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
        mean, std = self.format(values["mean"]), self.format(values["std"])
        return mean if values["std"] is None else f"{mean} ± {std}"


def spread(values: Iterable[float | None]) -> Spread:
    """Return mean and standard deviation of the known values; a single one has no deviation."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.mean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
    }


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
        "wrong": Column("called wrong %", 100, 2),
        "right": Column("right %", 100, 2),
        "test": Column("test %", 100, 2),
        "shap": Column("SHAP of the square", 1.0, 4),
    },
    "time": {
        "seconds": Column("time s", 1.0, 2),
        "speedup": Column("Retrained takes x", 1.0, 1),
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


def measures(scenario: str, measurement: str | None) -> Mapping[str, str]:
    """Return the columns of a table with the scores that they show."""
    if measurement is None:
        return ACCURACIES[scenario]
    return {name: name for name in COLUMNS[measurement]}
