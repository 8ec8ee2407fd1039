"""The rows of `duck list attacks`: every attack and every measurement of an audit."""

from typing import NamedTuple

from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import Needs
from duck.audits.verdict import TIERS, Tier


class Entry(NamedTuple):
    """An attack or a measurement, as a user chooses among them."""

    name: str
    tier: Tier
    """The lowest tier that reports it; higher tiers report it too."""
    judged: bool
    """Whether the verdict of that tier can depend on it."""
    about: str
    needs: Needs
    paper: str = "none"
    order: int = 0
    """Place within its tier; not listed."""

    def to_dict(self) -> dict[str, str | bool]:
        """Return a row of the list as plain data for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "order"}


MEASUREMENTS = (
    Entry(
        "accuracy",
        "quick",
        True,
        "per split and class; decisive: that of a removed class, in the quick tier",
        "outputs",
        order=10,
    ),
    Entry(
        "recognised",
        "quick",
        False,
        "accuracy on all samples of a removed class",
        "outputs",
        order=20,
    ),
    Entry(
        "AUS",
        "quick",
        False,
        "retained accuracy relative to what is still remembered",
        "outputs",
        "Cotogni 2023, arXiv:2312.02052",
        order=30,
    ),
    Entry(
        "coverage", "quick", True, "whether every forget sample was processed", "outputs", order=80
    ),
    Entry(
        "margin",
        "oracle",
        True,
        "residual memory by margins of forget samples and of noisy copies of them",
        "retrained models",
        order=2,
    ),
    Entry(
        "class logit",
        "oracle",
        True,
        "residual memory of a class by how well its logit finds its samples",
        "retrained models",
        order=3,
    ),
    Entry(
        "likeness to the original",
        "oracle",
        True,
        "residual memory of a class by the outputs for the other classes",
        "retrained models",
        order=3,
    ),
    Entry(
        "embedding",
        "oracle",
        True,
        "residual memory by embeddings, also those of one layer earlier",
        "retrained models",
        order=4,
    ),
    Entry(
        "excess distance",
        "oracle",
        True,
        "distance to retrained models on forget samples, divided by that on unseen ones",
        "retrained models",
        order=6,
    ),
    Entry(
        "distance elsewhere",
        "oracle",
        False,
        "distance to retrained models on unseen samples",
        "retrained models",
        order=8,
    ),
    Entry(
        "output distance",
        "oracle",
        False,
        "Jensen-Shannon divergence to retrained models, without the forgotten logit",
        "retrained models",
        order=10,
    ),
    Entry(
        "output KL",
        "oracle",
        False,
        "Kullback-Leibler divergence, likewise",
        "retrained models",
        order=20,
    ),
    Entry(
        "activation distance",
        "oracle",
        False,
        "L2 distance of softmax outputs to retrained models'",
        "retrained models",
        order=30,
    ),
    Entry(
        "class membership",
        "oracle",
        False,
        "a classifier tells outputs of this model from a retrained one's",
        "retrained models",
        order=40,
    ),
    Entry(
        "ToW",
        "oracle",
        False,
        "tug of war: product of accuracies' nearness to retrained models'",
        "retrained models",
        "Zhao 2024, arXiv:2406.01257",
        order=50,
    ),
    Entry(
        "shot probe",
        "oracle",
        False,
        "class removal: finds the class by its mean embedding from 1, 5 or 20 labels",
        "retrained models",
        order=60,
    ),
    Entry(
        "linear probe",
        "oracle",
        False,
        "a linear classifier on embeddings",
        "retrained models",
        order=70,
    ),
    Entry(
        "k-NN probe",
        "oracle",
        False,
        "nearest neighbours among embeddings",
        "retrained models",
        order=80,
    ),
    Entry(
        "ZRF",
        "oracle",
        False,
        "likeness to a randomly initialised model",
        "outputs",
        "Chundawat 2023, arXiv:2205.08096",
        order=90,
    ),
    Entry(
        "neighbour accuracy",
        "oracle",
        False,
        "on the classes most confused with the forgotten one",
        "outputs",
        order=100,
    ),
    Entry(
        "relearning",
        "oracle",
        False,
        "steps until forgotten samples are known again",
        "retrained models",
        order=110,
    ),
    Entry(
        "U-LiRA excess",
        "full",
        True,
        "U-LiRA on forget samples minus U-LiRA on unseen ones",
        "pool",
        order=12,
    ),
    Entry(
        "U-LiRA among unlearned",
        "full",
        True,
        "tells models that unlearned a sample from models that unlearned others",
        "pool",
        order=14,
    ),
    Entry(
        "ε",
        "full",
        True,
        "lower bound of the ε of (ε, δ)-unlearning, sample by sample",
        "pool",
        order=40,
    ),
    Entry(
        "KLoM",
        "full",
        False,
        "divergence of margins from oracles', sample by sample",
        "pool",
        "Georgiev 2024, arXiv:2410.23232",
        order=50,
    ),
    Entry(
        "memorisation",
        "full",
        False,
        "what training on a sample adds to the confidence in it",
        "pool",
        "Feldman 2020, arXiv:2008.03703",
        order=60,
    ),
    Entry(
        "leakage", "full", False, "whether unlearning exposes retained samples", "pool", order=70
    ),
)


def list_attacks() -> list[Entry]:
    """Return the attacks and measurements of all tiers, in the order of the tiers."""
    attacks = [
        Entry(
            attack.title,
            attack.tier,
            attack.decisive,
            attack.description,
            attack.needs,
            attack.paper,
            attack.order,
        )
        for attack in ATTACKS.values()
        if attack.tier is not None
    ]
    return sorted(
        [*attacks, *MEASUREMENTS], key=lambda entry: (TIERS.index(entry.tier), entry.order)
    )
