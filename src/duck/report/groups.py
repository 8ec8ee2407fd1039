"""Groups of results that can share a plot: the same data, model and recipe."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from duck.data import DATASETS
from duck.experiment import Training
from duck.types import Recipe


@dataclass(frozen=True)
class Group:
    """Results whose accuracies and times can be compared: their originals were trained alike."""

    data: str
    model: str = ""
    recipe: Recipe | None = None


def group_of(training: Training) -> Group:
    """Return the group of a training.

    Compilation changes how fast a model trains, not what it learns: it does not split groups.
    """
    return Group(data_name(training), training.model, replace(training.recipe, compile=False))


def data_name(training: Training) -> str:
    """Return the name of the data set; a user's own data get a part of their fingerprint.

    Two folders of a user can have the same name.
    """
    if training.data in DATASETS:
        return training.data
    return f"{training.data} ({training.fingerprint[:6]})"


def group_labels(groups: Iterable[Group], name_model: bool = False) -> dict[Group, str]:
    """Return a label for each group, with the most frequent group of a data set first.

    The label is the data set. If a data set has several groups, or with `name_model`, the model
    follows. If their recipes differ, the epochs follow, and every other setting that differs.
    """
    counts = Counter(groups)
    labels = {}
    for data in dict.fromkeys(group.data for group in counts):
        same_data = [group for group in counts if group.data == data]
        same_data.sort(key=lambda group: -counts[group])
        for group in same_data:
            parts = [data] if len(same_data) == 1 and not name_model else [data, group.model]
            parts += _recipe_differences(group, same_data)
            labels[group] = ", ".join(filter(None, parts))
    return labels


def _recipe_differences(group: Group, same_data: Sequence[Group]) -> list[str]:
    """Return what distinguishes the recipe of a group from the others of its data set."""
    recipe = group.recipe
    if recipe is None or len({other.recipe for other in same_data}) == 1:
        return []
    others = [other.recipe for other in same_data if other.recipe and other.model == group.model]
    rows = [asdict(other) for other in others if other.epochs == recipe.epochs]
    names = [name for name in asdict(recipe) if len({row[name] for row in rows}) > 1]
    settings = [f"{name.replace('_', ' ')} {getattr(recipe, name)}" for name in names]
    return [f"{recipe.epochs} epochs", *settings]
