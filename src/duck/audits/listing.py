"""The rows of `duck list attacks`: every attack and every measurement of an audit."""

from typing import NamedTuple

from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import Needs
from duck.audits.verdict import TIERS, Tier

QUICK = {
    "accuracy": "for each split and class; decisive in the quick tier: that of a removed class",
    "recognised": "accuracy on all samples of a removed class",
    "AUS": "retained accuracy relative to what is still remembered",
    "coverage": "whether every forget sample was processed",
}
ORACLE = {
    "margin": "residual memory by the margins of forget samples and of changed copies of them",
    "class logit": "residual memory of a class: how well its logit finds its samples",
    "likeness to the original": "residual memory of a class by the outputs for the other classes",
    "embedding": "residual memory by the embeddings, and by those of one layer earlier",
    "excess distance": "distance to retrained models on forget samples, divided by that on unseen "
    "ones",
    "distance elsewhere": "distance to retrained models on unseen samples",
    "output distance": "Jensen-Shannon divergence to retrained models, without the forgotten logit",
    "output KL": "Kullback-Leibler divergence to retrained models, without the forgotten logit",
    "activation distance": "L2 distance of softmax outputs to those of retrained models",
    "class membership": "a classifier separates outputs of this and of a retrained model",
    "ToW": "tug of war: product of the closeness of each accuracy to that of retrained models",
    "shot probe": "class removal: finds the class by its mean embedding from 1, 5 or 20 labels",
    "linear probe": "a linear classifier on embeddings",
    "k-NN probe": "nearest neighbours among embeddings",
    "ZRF": "similarity to a randomly initialised model",
    "neighbour accuracy": "accuracy on the classes most confused with the forgotten one",
    "relearning": "training steps until the model relearns the forgotten samples",
}
FULL = {
    "U-LiRA excess": "U-LiRA on forget samples minus U-LiRA on unseen ones",
    "U-LiRA among unlearned": "separates models that unlearned a sample from models that unlearned "
    "others",
    "ε": "lower bound of the ε of (ε, δ)-unlearning, sample by sample",
    "ε excess": "ε on forget samples minus ε on unseen ones",
    "KLoM": "divergence of the margins from those of oracles, sample by sample",
    "memorisation": "how much training on a sample adds to the confidence in it",
    "leakage": "whether unlearning exposes retain samples",
}
MEASUREMENTS: dict[Tier, dict[str, str]] = {"quick": QUICK, "oracle": ORACLE, "full": FULL}
"""What each tier adds to those before it."""
JUDGED = {
    *("accuracy", "coverage", "margin", "class logit", "likeness to the original", "embedding"),
    *("excess distance", "U-LiRA excess", "U-LiRA among unlearned", "ε excess"),
}
NEEDS: dict[Tier, Needs] = {"quick": "outputs", "oracle": "retrained models", "full": "pool"}
NEED_OUTPUTS_ALONE = {"ZRF", "neighbour accuracy"}
PAPERS = {
    "AUS": "Cotogni 2023, arXiv:2312.02052",
    "ToW": "Zhao 2024, arXiv:2406.01257",
    "ZRF": "Chundawat 2023, arXiv:2205.08096",
    "KLoM": "Georgiev 2024, arXiv:2410.23232",
    "memorisation": "Feldman 2020, arXiv:2008.03703",
}
# Positions among the attacks of a tier: that of U-LiRA is 10, the others are 20 to 70.
PLACE, PLACE_AFTER_ATTACKS = 15, 100
AFTER_ATTACKS = {"coverage", "ε", "ε excess", "KLoM", "memorisation", "leakage"}


class Entry(NamedTuple):
    """An attack or a measurement, as a user chooses among them."""

    name: str
    tier: Tier
    """The lowest tier that reports it; higher tiers report it too."""
    judged: bool
    """Whether the verdict of that tier can depend on it."""
    about: str
    needs: Needs
    paper: str


def list_attacks() -> list[Entry]:
    """Return the attacks and measurements of all tiers, in the order of the tiers."""
    places: dict[Entry, int] = {}
    for attack in ATTACKS.values():
        if attack.tier is not None:
            facts = (attack.decisive, attack.description, attack.needs, attack.paper)
            places[Entry(attack.title, attack.tier, *facts)] = attack.order
    for tier, measurements in MEASUREMENTS.items():
        for name, about in measurements.items():
            needs = "outputs" if name in NEED_OUTPUTS_ALONE else NEEDS[tier]
            entry = Entry(name, tier, name in JUDGED, about, needs, PAPERS.get(name, "none"))
            places[entry] = PLACE_AFTER_ATTACKS if name in AFTER_ATTACKS else PLACE
    return sorted(places, key=lambda entry: (TIERS.index(entry.tier), places[entry]))
