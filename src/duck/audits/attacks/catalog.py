"""What an audit can try, for `duck list attacks`."""

from typing import NamedTuple

from duck.audits.verdict import Tier


class Attack(NamedTuple):
    """A line of the list."""

    name: str
    tier: Tier
    """The first that shows it; higher tiers show it too."""
    judged: bool
    """Whether a verdict of that tier can rest on it."""
    about: str


ATTACKS = (
    Attack(
        "accuracy",
        "quick",
        True,
        "per split and class; decisive: forget (quick, samples), retain-test or test",
    ),
    Attack(
        "recognised",
        "quick",
        True,
        "accuracy on all samples of a removed class; decisive beside retrained models",
    ),
    Attack("AUS", "quick", False, "kept accuracy over what is still remembered"),
    Attack("loss attack", "quick", True, "losses of forgotten against unseen samples, two-sided"),
    Attack("entropy attack", "quick", True, "entropies of outputs, likewise"),
    Attack("runner-up attack", "quick", True, "second largest probabilities, likewise"),
    Attack(
        "SVM attack", "quick", True, "a classifier on outputs tells forgotten from unseen samples"
    ),
    Attack("coverage", "quick", True, "whether every forget sample was processed"),
    Attack(
        "output distance",
        "oracle",
        True,
        "Jensen-Shannon divergence to retrained models, without the forgotten logit",
    ),
    Attack("output KL", "oracle", False, "Kullback-Leibler divergence, likewise"),
    Attack(
        "activation distance",
        "oracle",
        False,
        "L2 distance of softmax outputs to retrained models'",
    ),
    Attack(
        "class membership",
        "oracle",
        False,
        "a classifier tells outputs of this model from a retrained one's",
    ),
    Attack(
        "ToW", "oracle", False, "tug of war: product of accuracies' nearness to retrained models'"
    ),
    Attack(
        "shot probe",
        "oracle",
        True,
        "class removal: finds the class by its mean embedding from 1, 5 or 20 labels; decisive: 1",
    ),
    Attack(
        "linear probe",
        "oracle",
        True,
        "a linear classifier on embeddings; decisive where single samples go",
    ),
    Attack("k-NN probe", "oracle", False, "nearest neighbours among embeddings"),
    Attack("ZRF", "oracle", False, "likeness to a randomly initialised model"),
    Attack(
        "neighbour accuracy", "oracle", False, "on the classes most confused with the forgotten one"
    ),
    Attack("relearning", "oracle", False, "steps until forgotten samples are known again"),
    Attack(
        "U-LiRA",
        "full",
        True,
        "tells models that unlearned a sample from models that never saw it, sample by sample",
    ),
    Attack("LiRA", "full", False, "how unusual a margin is among models that never saw the sample"),
    Attack("RMIA", "full", False, "gain over the average model, against that of unseen samples"),
    Attack("ε", "full", False, "lower bound of the ε of (ε, δ)-unlearning, sample by sample"),
    Attack("KLoM", "full", False, "divergence of margins from oracles', sample by sample"),
    Attack("memorisation", "full", False, "what training on a sample adds to the confidence in it"),
    Attack("leakage", "full", False, "whether unlearning exposes retained samples"),
)
