"""Simulate how often the intervals of attacks hold the truth and how often their tests are wrong.

    python benchmarks/interval_coverage.py --draws 2000

Scores are drawn from distributions whose AUC and rates are known. One JSON line per simulation,
with the number of draws n; simulations that are in the file already are skipped.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from result_files import RESULTS, ResultFile, Row, create_parser
from scipy.optimize import brentq
from scipy.stats import mannwhitneyu, norm

from duck.audits.attacks.base import model_attacks
from duck.audits.attacks.svm import quick_svm
from duck.audits.attacks.ulira import (
    add_fit_error,
    against_not_requested,
    against_oracles,
    excess_over_unseen,
)
from duck.audits.measurements import Measurement, mean
from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs, match_unseen
from duck.audits.pool_measures import DELTA, epsilon_per_sample, klom, leakage, memorisation
from duck.audits.quick import ALPHA, NO_TRACE, decisive_attacks, is_hand_picked, quick
from duck.audits.scores import Margins, Outputs, Scored
from duck.audits.statistics import SampleEstimate, clopper_pearson, roc
from duck.audits.verdict import NOT_FORGOTTEN

MEMBERS = 500
RATE = 0.01
LEAKS = {"no leak": 0.0, "leak of 1 standard deviation": 1.0, "leak of 2": 2.0}
Simulation = Callable[[int], Row]
"""Returns the results of so many draws."""


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=RESULTS / "interval-coverage.jsonl")
    parser.add_argument("--only", default="", help="simulations whose name begins like this")
    parser.add_argument("--limit-minutes", type=float, default=60)
    args = parser.parse_args()
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    for name, simulate in simulations().items():
        if name in results.done or not name.startswith(args.only):
            continue
        if not results.has_time_for(name):
            break
        started_at = time.monotonic()
        row = simulate(args.draws)
        results.append({"name": name, "n": args.draws, **row}, time.monotonic() - started_at)


def simulations() -> dict[str, Simulation]:
    """Return all simulations by name."""
    found: dict[str, Simulation] = {}
    for leak, shift in LEAKS.items():
        for others in (100, 500, 2000):
            found[f"AUC and TPR, {leak}, {others} non-members"] = coverage_of(shift, others)
    for name, counts in CLASS_COUNTS.items():
        found[f"SVM attack, no leak, {name}"] = svm_errors(counts)
    for name, choice in CHOICES.items():
        found[f"quick tier, {name}"] = quick_errors(choice)
    for name, shifts in SHIFTS.items():
        for title, estimate in POOL_ESTIMATES.items():
            found[f"{title}, {name}"] = pool_coverage(estimate, *shifts)
        found[f"ε, {name}"] = epsilon_errors(*shifts)
    return found


def coverage_of(shift: float, others: int) -> Simulation:
    """Simulate the intervals of AUC and TPR where members lie `shift` higher."""
    auc = float(norm.cdf(shift / 2**0.5))
    tpr = float(norm.sf(norm.ppf(1 - RATE) - shift))

    def simulate(draws: int) -> Row:
        curves = [roc(draw_scores(seed, shift, others)) for seed in range(draws)]
        rates = [curve.tpr_at(RATE) for curve in curves]
        of_members = [clopper_pearson(rate.value * rate.n, rate.n) for rate in rates]
        return {
            "members": MEMBERS,
            "non_members": others,
            "auc": auc,
            "auc_coverage": share_with(auc, [curve.auc for curve in curves]),
            "tpr": tpr,
            "tpr_mean": float(np.mean([rate.value for rate in rates])),
            "tpr_coverage": share_with(tpr, rates),
            "tpr_mean_interval": [
                float(np.mean([rate.low for rate in rates])),
                float(np.mean([rate.high for rate in rates])),
            ],
            "tpr_coverage_without_noise_of_the_threshold": float(
                np.mean([low <= tpr <= high for low, high in of_members])
            ),
        }

    return simulate


def draw_scores(seed: int, shift: float, others: int) -> Scored:
    generator = np.random.default_rng(seed)
    count = MEMBERS + others
    is_member = np.arange(count) < MEMBERS
    return Scored(np.arange(count).astype(str), generator.normal(shift * is_member), is_member)


def share_with(truth: float, estimates: list[SampleEstimate]) -> float:
    """Return the share of intervals that hold the truth."""
    return float(np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]))


CLASS_COUNTS = {
    "4 classes of 20": [20] * 4,
    "10 classes of 10": [10] * 10,
    "10 classes of 100": [100] * 10,
    "10 classes of 1 to 40": [1, 1, 2, 3, 5, 8, 12, 18, 27, 40],
    "50 classes of 2": [2] * 50,
}
"""Forget samples of each class; twice as many unseen samples are there."""


def svm_errors(counts: list[int]) -> Simulation:
    """Simulate the quick SVM where forgotten and unseen samples are drawn alike."""

    def simulate(draws: int) -> Row:
        aucs, p_values = [], []
        for seed in range(draws):
            forgotten, unseen = draw_matched_outputs(seed, np.array(counts))
            scored = quick_svm(forgotten, unseen, seed)
            aucs.append(roc(scored).auc.value)
            members, others = scored.scores[scored.members], scored.scores[~scored.members]
            p_values.append(float(mannwhitneyu(members, others, alternative="greater").pvalue))
        return {
            "forgotten": sum(counts),
            "auc_mean": float(np.mean(aucs)),
            "auc_mean_error": float(np.std(aucs, ddof=1) / draws**0.5),
            "rejected_at_5_percent": float(np.mean(np.array(p_values) < 0.05)),
            "rejected_at_1_percent": float(np.mean(np.array(p_values) < 0.01)),
        }

    return simulate


def draw_matched_outputs(seed: int, counts: np.ndarray) -> tuple[Outputs, Outputs]:
    """Draw outputs of both sides, with the same share of each class."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    unseen_labels = np.repeat(np.arange(len(counts)), 2 * counts)
    members, matched = match_unseen(labels, unseen_labels, seed)
    return (
        draw_outputs("f", labels[members], len(counts), generator),
        draw_outputs("u", unseen_labels[matched], len(counts), generator),
    )


def draw_outputs(
    prefix: str, labels: np.ndarray, classes: int, generator: np.random.Generator
) -> Outputs:
    """Draw logits that are right for most samples."""
    ids = np.array([f"{prefix}{row}" for row in range(len(labels))])
    logits = 4 * np.eye(classes)[labels] + generator.normal(size=(len(labels), classes))
    return Outputs(ids, logits, labels)


class Choice(NamedTuple):
    """How samples to forget are chosen, and how the original treats samples that it trained on."""

    ease: float
    """Mean ease of the forget samples, in standard deviations; 0 for a random request."""
    kept_spread: float
    """Spread of the margins of training samples, relative to that of unseen samples."""


CHOICES = {
    "random request": Choice(0, 0.5),
    "hand-picked request, much harder": Choice(-1, 0.5),
    "hand-picked request, harder": Choice(-0.5, 0.5),
    "hand-picked request, easier": Choice(0.5, 0.5),
    "hand-picked request, harder, training samples nearly alike": Choice(-0.5, 0.25),
}
FORGET_COUNT, RETAIN_COUNT, UNSEEN_COUNT, CLASSES = 200, 1000, 400, 4


def quick_errors(choice: Choice) -> Simulation:
    """Simulate the quick tier on models that never saw the forget samples, and on originals."""

    def simulate(draws: int) -> Row:
        counts: Counter[str] = Counter()
        for seed in range(draws):
            setting, retrained, original = draw_models(choice, seed)
            attacks = decisive_attacks(model_attacks(setting, "quick"))
            counts["taken_for_hand_picked"] += is_hand_picked(setting, original, attacks)
            for name, model in (("retrained", retrained), ("original", original)):
                audit = quick(setting, model, original, "")
                counts[f"{name}_not_forgotten"] += audit.verdict == NOT_FORGOTTEN
                lowest = min(row.p for row in audit.attacks.values() if row.p is not None)
                counts["no_trace_although_attacks_differ"] += (
                    NO_TRACE in audit.reasons and lowest < ALPHA
                )
        return {**choice._asdict(), **{name: count / draws for name, count in counts.items()}}

    return simulate


def draw_models(choice: Choice, seed: int) -> tuple[Setting, ModelOutputs, ModelOutputs]:
    """Draw the outputs of a retrained model and of an original on the same samples."""
    generator = np.random.default_rng(seed)
    counts = {"forget": FORGET_COUNT, "retain": RETAIN_COUNT, "unseen": UNSEEN_COUNT}
    labels = {name: np.arange(count) % CLASSES for name, count in counts.items()}
    ease = {name: generator.normal(size=count) for name, count in counts.items()}
    ease["forget"] += choice.ease

    def outputs(*trained_on: str) -> ModelOutputs:
        parts = {}
        for name, count in counts.items():
            is_known = name in trained_on
            spread = choice.kept_spread if is_known else 1.0
            logits = generator.normal(0, 0.5, (count, CLASSES))
            right = 3 + 2 * is_known + 1.5 * spread * ease[name]
            logits[np.arange(count), labels[name]] += right
            ids = np.array([f"{name}{row}" for row in range(count)])
            parts[name] = SplitOutputs(ids, logits, labels[name], np.empty((count, 0)))
        return ModelOutputs(parts["forget"], parts["retain"], parts["unseen"])

    members, matched = match_unseen(labels["forget"], labels["unseen"], seed)
    none = np.empty(0, np.intp)
    setting = Setting(
        "samples",
        CLASSES,
        tuple(map(str, range(CLASSES))),
        FORGET_COUNT,
        np.empty(0, np.int64),
        test=np.arange(UNSEEN_COUNT),
        forget_test=none,
        retain_test=none,
        members=members,
        matched=matched,
        seed=seed,
    )
    return setting, outputs("retain"), outputs("forget", "retain")


SHIFTS = {
    "no shift": (0.0, 0.0),
    "shift of all samples": (1.5, 1.5),
    "shift of forgotten samples alone": (1.5, 0.0),
}
"""Mean shift of the margins of unlearned models, in standard deviations: on forgotten samples, on
unseen ones. Samples differ: the shift of one is exponentially distributed."""
SAMPLES, MODELS, ORACLES = 60, 24, 12


IDS = np.array([f"{side}{row}" for side in "fu" for row in range(SAMPLES)])
FORGOTTEN_IDS, UNSEEN_IDS = IDS[:SAMPLES], IDS[SAMPLES:]


def excess(unlearned: Margins, oracles: Margins) -> SampleEstimate:
    return excess_over_unseen(unlearned, oracles, UNSEEN_IDS)


def among_unlearned(unlearned: Margins, oracles: Margins) -> SampleEstimate:
    forgotten = unlearned.at(FORGOTTEN_IDS)
    auc = roc(against_not_requested(forgotten)).auc
    return add_fit_error(auc, against_not_requested, forgotten)


def ulira(unlearned: Margins, oracles: Margins) -> SampleEstimate:
    sides = unlearned.at(FORGOTTEN_IDS), oracles.at(FORGOTTEN_IDS)
    return add_fit_error(roc(against_oracles(*sides)).auc, against_oracles, *sides)


def mean_memorisation(unlearned: Margins, oracles: Margins) -> Measurement:
    return mean(memorisation(unlearned.at(FORGOTTEN_IDS)))


def mean_leakage(unlearned: Margins, oracles: Margins) -> SampleEstimate:
    return leakage(unlearned, FORGOTTEN_IDS, UNSEEN_IDS)


def mean_klom(unlearned: Margins, oracles: Margins) -> Measurement:
    return mean(klom(unlearned.at(FORGOTTEN_IDS), oracles.at(FORGOTTEN_IDS)).values)


POOL_ESTIMATES: dict[str, Callable[[Margins, Margins], SampleEstimate | Measurement]] = {
    "U-LiRA excess": excess,
    "U-LiRA": ulira,
    "U-LiRA among unlearned": among_unlearned,
    "memorisation": mean_memorisation,
    "leakage retained": mean_leakage,
    "KLoM": mean_klom,
}
"""Estimates with an interval. "leakage retained" reads forgotten samples as retained ones."""


def pool_coverage(
    estimate_of: Callable[[Margins, Margins], SampleEstimate | Measurement],
    of_forgotten: float,
    of_unseen: float,
) -> Simulation:
    """Simulate the interval of a measurement of a pool; the truth is the mean of all draws."""

    def simulate(draws: int) -> Row:
        draws = min(draws, 500)
        estimates = []
        for seed in range(draws):
            found = estimate_of(*draw_margins(IDS, of_forgotten, of_unseen, seed))
            assert found.low is not None
            assert found.high is not None
            estimates.append(SampleEstimate(found.value, found.low, found.high, found.n))
        values = [estimate.value for estimate in estimates]
        return {
            "n": draws,
            "models": MODELS,
            "oracles": ORACLES,
            "samples_of_a_side": SAMPLES,
            "mean": float(np.mean(values)),
            "mean_error": float(np.std(values, ddof=1) / draws**0.5),
            "mean_width": float(np.mean([estimate.high - estimate.low for estimate in estimates])),
            "holds_the_mean": share_with(float(np.mean(values)), estimates),
            "holds_0": share_with(0.0, estimates),
            "holds_0.5": share_with(0.5, estimates),
        }

    return simulate


def epsilon_errors(of_forgotten: float, of_unseen: float) -> Simulation:
    """Simulate how often the lower bound of a sample's ε exceeds its true ε."""

    def simulate(draws: int) -> Row:
        draws = min(draws, 100)
        too_high: list[bool] = []
        for seed in range(draws):
            unlearned, oracles = draw_margins(IDS, of_forgotten, of_unseen, seed)
            forgotten = unlearned.at(FORGOTTEN_IDS)
            bounds = epsilon_per_sample(forgotten, oracles.at(FORGOTTEN_IDS)).lower
            truth = [gaussian_epsilon(shift) for shift in draw_shifts(of_forgotten, seed)]
            too_high += (bounds > np.array(truth)).tolist()
        return {"n": len(too_high), "draws": draws, "too_high": float(np.mean(too_high))}

    return simulate


def gaussian_epsilon(shift: float) -> float:
    """Return the ε of two Gaussians with unit variance at this distance (Balle and Wang 2018)."""

    def delta(epsilon: float) -> float:
        tails = norm.cdf(shift / 2 - epsilon / shift), norm.cdf(-shift / 2 - epsilon / shift)
        return float(tails[0] - np.exp(epsilon) * tails[1])

    if shift < 1e-6 or delta(0.0) < DELTA:
        return 0.0
    return float(brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, 300.0))


def draw_shifts(of_forgotten: float, seed: int) -> np.ndarray:
    """Return the shifts of the forgotten samples in `draw_margins`."""
    generator = np.random.default_rng(seed)
    generator.normal(0, 3, len(IDS))
    generator.uniform(0.5, 2, len(IDS))
    shifts: np.ndarray = of_forgotten * generator.exponential(size=len(IDS))[:SAMPLES]
    return shifts


def draw_margins(
    ids: np.ndarray, of_forgotten: float, of_unseen: float, seed: int
) -> tuple[Margins, Margins]:
    """Draw margins of unlearned models and of oracles; half of the models had a sample."""
    generator = np.random.default_rng(seed)
    mean, deviation = generator.normal(0, 3, len(ids)), generator.uniform(0.5, 2, len(ids))
    shift = np.repeat([of_forgotten, of_unseen], SAMPLES) * generator.exponential(size=len(ids))
    values = mean + deviation * (generator.normal(size=(MODELS, len(ids))) + shift)
    references = mean + deviation * generator.normal(size=(ORACLES, len(ids)))
    halves = [generator.permutation(np.arange(MODELS) < MODELS // 2) for _ in range(SAMPLES)]
    members = np.concatenate([np.transpose(halves), np.zeros((MODELS, SAMPLES), bool)], axis=1)
    never = np.zeros(references.shape, bool)
    return Margins(ids, values, members), Margins(ids, references, never)


if __name__ == "__main__":
    main()
