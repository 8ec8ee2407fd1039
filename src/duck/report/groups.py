"""Groups of results that can share a plot: the same data, model and recipe."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from duck.data import DATASETS
from duck.experiment import Training
from duck.types import Recipe


@dataclass(frozen=True)
class Group:
    """Results whose accuracies and times can be compared: their originals were trained alike."""

    data: str
    model: str
    recipe: Recipe


def group_of(training: Training) -> Group:
    """Return the group of a training.

    Two folders of a user can have the same name: their data are named with a part of the
    fingerprint. Compilation changes how fast a model trains, not what it learns.
    """
    data = training.data
    if data not in DATASETS:
        data = f"{data} ({training.fingerprint[:6]})"
    return Group(data, training.model, replace(training.recipe, compile=False))


def group_labels(groups: Iterable[Group], name_model: bool = False) -> dict[Group, str]:
    """Return a label for each group, with the most frequent group of a data set first.

    The label is the data set. If a data set has several groups, or with `name_model`, the model
    follows, and as many settings as distinguish its recipe from others of the same model.
    """
    counts = Counter(groups)
    labels = {}
    for data in dict.fromkeys(group.data for group in counts):
        same_data = [group for group, _ in counts.most_common() if group.data == data]
        for group in same_data:
            parts = [data] if len(same_data) == 1 and not name_model else [data, group.model]
            others = [asdict(one.recipe) for one in same_data if one.model == group.model]
            for name, value in asdict(group.recipe).items():
                if any(other[name] != value for other in others):
                    parts.append(f"{name.replace('_', ' ')} {value}")
                    others = [other for other in others if other[name] == value]
            labels[group] = ", ".join(parts)
    return labels
