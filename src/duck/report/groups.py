"""Groups of results that may share a plot: the same data, model and recipe."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from duck.data import DATASETS
from duck.experiment import Training
from duck.types import Recipe


@dataclass(frozen=True)
class Group:
    """Results whose accuracies and times compare: their originals were trained alike."""

    data: str
    model: str = ""
    recipe: Recipe | None = None


def group_of(training: Training) -> Group:
    """The group of a training. Compilation changes how fast a model trains, not what it learns."""
    return Group(data_name(training), training.model, replace(training.recipe, compile=False))


def data_name(training: Training) -> str:
    """A data set by name. Data of one's own get a part of their fingerprint: names may repeat."""
    if training.data in DATASETS:
        return training.data
    return f"{training.data} ({training.fingerprint[:6]})"


def group_labels(groups: Iterable[Group], name_model: bool = False) -> dict[Group, str]:
    """Each group with its label, the most frequent one of a data set first.

    The label is the data set. Where that has several groups, or with `name_model`, the model
    follows; where their recipes differ, the epochs, and whatever else is needed to tell two apart.
    """
    counts = Counter(groups)
    labels = {}
    for data in dict.fromkeys(group.data for group in counts):
        same = sorted((group for group in counts if group.data == data), key=lambda g: -counts[g])
        for group in same:
            parts = [data] if len(same) == 1 and not name_model else [data, group.model]
            labels[group] = ", ".join(filter(None, [*parts, *_recipe_words(group, same)]))
    return labels


def _recipe_words(group: Group, same: Sequence[Group]) -> list[str]:
    """What sets the recipe of a group apart from those of the other groups of its data set."""
    recipe = group.recipe
    if recipe is None or len({other.recipe for other in same}) == 1:
        return []
    others = [other.recipe for other in same if other.recipe and other.model == group.model]
    alike = [asdict(other) for other in others if other.epochs == recipe.epochs]
    differing = [name for name in asdict(recipe) if len({row[name] for row in alike}) > 1]
    words = [f"{name.replace('_', ' ')} {getattr(recipe, name)}" for name in differing]
    return [f"{recipe.epochs} epochs", *words]
