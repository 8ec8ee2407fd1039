"""Folders of runs and bias removals, generated from a seed without training a model."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from duck.assurance import Assurance, Attempt
from duck.bench.results import BenchCurve
from duck.experiment import Experiment, Training, to_dict
from duck.methods.base import METHODS
from duck.methods.presets import Preset
from duck.methods.presets import preset as get_preset
from duck.metrics import aus
from duck.records import to_plain
from duck.report import read_bench
from duck.report.results import Result
from duck.runs import ByClass, Run
from duck.scenarios import ForgetClasses, ForgetFraction, Request
from duck.types import Recipe
from duck.unlearning import Epoch
from tests.bench.stored import MACHINE, to_result

TEST = 40
"""Unseen samples of each class."""


def write_run(
    folder: Path,
    method: str = "duck",
    request: Request | None = None,
    names: Sequence[str] = tuple("0123456789"),
    seed: int = 0,
    verdict: str | None = None,
    analysis: bool = False,
    notes: Sequence[str] = (),
) -> Path:
    """Write a folder with run.json and, on request, audit-oracle.json and analysis.json."""
    rng = random.Random(seed)
    asked = ForgetClasses([3]) if request is None else request
    forgotten = [int(index) for index in asked.classes] if isinstance(asked, ForgetClasses) else []
    before, after = (
        confused(rng, len(names), [], 0.03),
        confused(rng, len(names), [] if method == "original" else forgotten, 0.05),
    )
    experiment = Experiment(
        Training("digits", "convnet", Recipe(epochs=3), fingerprint="ab12"),
        asked,
        METHODS[method](),
        seed,
    )
    samples = {
        "forget": 400,
        "retain": 3600,
        "holdout": 80,
        "processed": 400,
        **split_sizes(len(names), forgotten),
    }
    old, new = (
        scores(before, forgotten, 0.99, None),
        scores(
            after, forgotten, 0.99 if method == "original" else 0.0 if forgotten else 0.95, before
        ),
    )
    by_class = ByClass(
        "class" if forgotten else "samples",
        list(names),
        {str(index): 400 // max(1, len(forgotten)) for index in forgotten} or {"0": 400},
        before,
        after,
    )
    seconds = {"original": 0.0, "retrained": 40.0}.get(method, rng.uniform(1, 9))
    run = Run(
        experiment,
        new,
        seconds,
        samples,
        0.0,
        old,
        history(rng),
        list(notes),
        by_class,
        created="2026-11-15T10:00:00+00:00",
    )
    plain = {
        **asdict(run),
        "id": experiment.id,
        "experiment": to_dict(experiment),
        "environment": environment(),
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(plain))
    if verdict:
        (folder / "audit-oracle.json").write_text(json.dumps(audit(rng, verdict, names)))
    if analysis:
        (folder / "analysis.json").write_text(json.dumps(analysed(rng, len(names), forgotten)))
    return folder


def write_assurance(folder: Path, reason: str = "Residual memory 0.38.") -> Assurance:
    """Write assurance.json into the folder of a run."""
    tried = (
        Attempt("duck-soft", 2.5, False, reason, "no verdict", 0.38),
        Attempt("scrub", 0.0, False, "It failed: out of memory."),
        Attempt("warm-restart", 130.0, True, "Nothing was found.", "forgotten", 0.01),
    )
    assurance = Assurance("oracle", "warm-restart", True, tried, "forgotten", 9.25, 700.0)
    (folder / "assurance.json").write_text(json.dumps(to_plain(assurance)))
    return assurance


def bench_line(
    method: str = "duck",
    request: Request | None = None,
    case: int | str = 3,
    preset: Preset = "tuned",
    model: str = "convnet",
    epochs: int = 3,
    seconds: float = 2.0,
    retain: float = 0.9,
    forget: float = 0.0,
    **rest: Any,
) -> dict[str, Any]:
    """Return a result of `duck bench` on digits.

    `retain` and `forget` are the accuracies of the AUS. Those of the original are 0.9.
    """
    asked = ForgetClasses([3]) if request is None else request
    kind = "samples" if isinstance(asked, ForgetFraction) else "class"
    made = Training("digits", model, Recipe(epochs=epochs), fingerprint="ab12")
    seed = case if isinstance(case, int) else 42
    chosen = get_preset(method, "digits", kind, None, preset)
    names = ("retain_test", "forget_test") if kind == "class" else ("test", "forget")
    scores = {"aus": aus(kind, 0.9, retain, forget), names[0]: retain, names[1]: forget}
    return {
        "id": f"{method} {case}",
        "dataset": "digits",
        "scenario": kind,
        "case": case,
        "method": method,
        "preset": preset,
        "train_samples": 4000,
        "wall_seconds": seconds,
        **MACHINE,
        "experiment": to_dict(Experiment(made, asked, chosen, seed)),
        "scores": scores,
        "original": {names[0]: 0.9, names[1]: 0.9},
        "seconds": seconds,
        "prepare_seconds": 0.0,
        "notes": [],
        "forget_samples": 400,
        **rest,
    }


def bench(lines: Sequence[dict[str, Any]]) -> list[Result]:
    """Return what a page shows of the lines of a bench, without a check of their scores."""
    return read_bench(map(to_result, lines))


def bench_curve(fpr: Sequence[float], tpr: Sequence[float], others: int = 10_000) -> BenchCurve:
    """Return the ROC curve of an attack."""
    return BenchCurve(list(fpr), list(tpr), {}, 0.5, {}, 100, others)


def attacked(
    method: str,
    preset: str,
    fpr: Sequence[float],
    tpr: Sequence[float],
    others: int = 10_000,
    request: Request | None = None,
    attack: str = "lira",
    data: str = "cifar10",
) -> Result:
    """Return a result of an attack of a bench."""
    (result,) = bench([bench_line(method, request)])
    training = replace(result.experiment.training, data=data)
    return replace(
        result,
        experiment=replace(result.experiment, training=training),
        preset=preset,
        attack=attack,
        roc=bench_curve(fpr, tpr, others),
    )


def confused(
    rng: random.Random, classes: int, forgotten: Sequence[int], error: float
) -> dict[str, dict[str, int]]:
    """Return a confusion matrix: neighbours are confused, forgotten classes not predicted."""
    table: dict[str, dict[str, int]] = {}
    for true in range(classes):
        row = table.setdefault(str(true), {})
        for _ in range(TEST):
            seen = true if rng.random() > error else (true + rng.choice((1, 2))) % classes
            while seen in forgotten:
                seen = (seen + rng.choice((1, 2))) % classes
            row[str(seen)] = row.get(str(seen), 0) + 1
    return table


def scores(
    table: dict[str, dict[str, int]], forgotten: Sequence[int], forget: float, before: Any
) -> dict[str, float | None]:
    right = {int(true): row.get(true, 0) / TEST for true, row in table.items()}
    kept = [right[index] for index in right if index not in forgotten]
    test, retain_test = sum(right.values()) / len(right), sum(kept) / len(kept)
    parts = {"test": test, "forget_test": None, "retain_test": None}
    if forgotten:
        parts |= {
            "forget_test": sum(right[index] for index in forgotten) / len(forgotten),
            "retain_test": retain_test,
        }
    old = scores(before, forgotten, 0.99, None) if before else parts
    retain_split, forgotten_value = (
        ("retain_test", parts["forget_test"]) if forgotten else ("test", forget)
    )
    score = aus(
        "class" if forgotten else "samples",
        old[retain_split] or 0,
        parts[retain_split] or 0,
        forgotten_value or 0,
    )
    return {
        "aus": score,
        "forget": forget,
        "retain": 0.998,
        **parts,
        "forget_loss": 0.01 if before is None else 4.2,
    }


def split_sizes(classes: int, forgotten: Sequence[int]) -> dict[str, int]:
    lost = TEST * len(forgotten)
    return {
        "test": TEST * classes,
        "forget_test": lost,
        "retain_test": TEST * classes - lost if forgotten else 0,
    }


def history(rng: random.Random) -> tuple[Epoch, ...]:
    falling = (0.4, 0.02, 0.0, 0.0)
    phases = (("high-forget", 1), ("high-forget", 2), ("low-forget", 1), ("low-forget", 2))
    return tuple(
        Epoch(phase, epoch, rng.random(), 0.99, forget, 0.9)
        for (phase, epoch), forget in zip(phases, falling, strict=True)
    )


def audit(rng: random.Random, verdict: str, names: Sequence[str]) -> dict[str, Any]:
    """As the contract has it."""

    def value(middle: float) -> dict[str, float]:
        return {"value": middle, "low": middle - 0.03, "high": middle + 0.03}

    rates = [10 ** (-3 + at / 50) for at in range(151)]
    curves = {
        model: {"fpr": rates, "tpr": [rate**power for rate in rates]}
        for model, power in (("original", 0.4), ("unlearned", 0.9), ("retrained", 1.0))
    }
    measured = {
        "original": value(0.91),
        "unlearned": value(0.5 + rng.uniform(0, 0.05)),
        "retrained": value(0.5),
    }
    unseen = {"original": value(0.8), "unlearned": value(0.6), "retrained": None}
    one = {
        "about": "share of this class's test samples that are classified correctly",
        "unit": "%",
        "n": TEST,
        **unseen,
        "judged": False,
    }
    return {
        "verdict": verdict,
        "powered": verdict != "no verdict",
        "tier": "oracle",
        "reasons": ["The margins of the forgotten samples lie within those of 5 retrained models."],
        "attacks": {
            "svm": {
                "about": "a classifier of outputs",
                "unit": "score",
                "n": 400,
                **measured,
                "judged": True,
            },
            "loss": {
                "about": "a threshold on the loss",
                "unit": "AUC",
                "n": 400,
                **unseen,
                "judged": False,
            },
            **{f"accuracy class {name}": one for name in names},
        },
        "controls": {
            "masked logit": {"expected": "not forgotten", "got": "not forgotten", "passed": True}
        },
        "roc": {"svm": curves},
        "seconds": 41.5,
        "date": "2026-11-15",
    }


def analysed(
    rng: random.Random, classes: int, forgotten: Sequence[int], points: int = 200
) -> dict[str, Any]:
    def cloud() -> dict[str, Any]:
        labels = [at % classes for at in range(points)]
        x, y = (
            [rng.gauss(scale * (label % width), 0.6) for label in labels]
            for scale, width in ((4, 4), (5, 3))
        )
        return {"x": x, "y": y, "label": labels, "forget": [label in forgotten for label in labels]}

    def dense() -> dict[str, float]:
        return {str(index): rng.gauss(-20, 3) for index in range(classes)}

    models = ("original", "unlearned", "retrained")
    return {
        "tsne": {model: {split: cloud() for split in ("train", "test")} for model in models},
        "density": {model: {split: dense() for split in ("train", "test")} for model in models},
    }


def shap_image(**fields: Any) -> dict[str, Any]:
    """Return a stored image with SHAP maps."""
    return {"label": 0, "forgotten": False, "numbers": {}, **fields}


def write_removal(
    folder: Path,
    true: str = "1",
    wrong: str = "9",
    seed: int = 0,
    shape: tuple[int, int, int] = (1, 8, 8),
    images: int = 4,
    **rest: Any,
) -> Path:
    """Write the folder of `duck debias --out` without models: bias.json and perhaps shap.npz."""
    draw = np.random.default_rng(seed)
    means = {"biased": 0.05, "duck": -0.001, "corrected": 0.002}

    def share(value: float) -> dict[str, Any]:
        return {"share": value, "interval": [max(0.0, value - 0.02), min(1.0, value + 0.02)]}

    predicted = {
        model: {
            "wrong": share(value),
            "right": share(1 - value),
            "right_without_patch": share(0.97),
            "test": 0.94,
            "n": 800,
        }
        for model, value in (("biased", 0.99), ("duck", 0.015), ("corrected", 0.01))
    }
    test = {"p": 0.004, "n": 12, "least_p": 2.0**-11, "difference": 0.051}
    shap = {
        "n": 12,
        "mean": means,
        "std": dict.fromkeys(means, 0.003),
        "tests": {
            "biased - duck": test,
            "biased - corrected": test,
            "duck - corrected": {**test, "p": 0.2},
        },
        "factor": {"duck": None, "corrected": None},
        "largest_gap": dict.fromkeys(means, 0.0),
        "incomplete": dict.fromkeys(means, 0),
    }
    found = {
        "data": "digits",
        "shape": shape,
        "seed": seed,
        "true": true,
        "wrong": wrong,
        "count": 36,
        "patch": 4,
        "colour": [255, 0, 0],
        "n": 800,
        "predicted": predicted,
        "forget": {"biased": 1.0, "duck": 0.0},
        "shap": shap if images else None,
        "notes": [],
        "seconds": {"duck": 2.5, "corrected": 40.0},
        "train_seconds": 41.0,
        "preset": "tuned",
        "method": {"name": "duck", "lr": 0.002},
        "model": "convnet",
        "recipe": {"epochs": 30, "lr": 0.1},
        "fingerprint": "ab12",
        "environment": environment(),
        "created": "2026-11-15T10:00:00+00:00",
        "command": f"duck debias --data digits --true 1 --wrong 9 --seed {seed} --out again",
    }
    folder.mkdir(parents=True)
    (folder / "bias.json").write_text(json.dumps({**found, **rest}))
    maps: dict[str, Any] = {
        model: draw.normal(0, 0.01, (images, *shape[1:])).astype(np.float16) for model in means
    }
    maps["biased"][:, :4, -4:] += np.float16(0.05)
    if images:
        np.savez_compressed(folder / "shap.npz", **maps)
    return folder


def environment() -> dict[str, Any]:
    packages = {"torch": "2.13.0", "numpy": "2.4.6", "duck-unlearning": "0.1.0"}
    return {
        "python": "3.11.7",
        "packages": packages,
        "platform": "Linux",
        "device": "x86_64",
        "threads": 2,
        "git_commit": None,
    }


def worst_fifty(root: Path, classes: int = 200) -> list[Path]:
    """Every one of them audited, and analysed with more points than a page can hold."""
    names = [f"class {index}" for index in range(classes)]
    folders = fifty(root, names)
    whole = analysed(random.Random(0), classes, [3], points=2000)
    maps = {model: [[-0.123] * 32] * 32 for model in ("original", "unlearned", "retrained")}
    whole["shap"] = {
        "images": [shap_image(id=str(at), title=f"image {at}", maps=maps) for at in range(8)]
    }
    found = audit(random.Random(0), "forgotten", names)
    found["roc"] = dict.fromkeys(("svm", "loss", "entropy"), found["roc"]["svm"])
    # As many as the full tier measures, with words as long as its own.
    found["attacks"] |= {
        f"another measure {at}": found["attacks"]["svm"] | {"about": "what it measures " * 4}
        for at in range(30)
    }
    for folder in folders:
        (folder / "analysis.json").write_text(json.dumps(whole))
        (folder / "audit-oracle.json").write_text(json.dumps(found))
    return folders


def fifty(root: Path, names: Sequence[str] = tuple("0123456789")) -> list[Path]:
    """All methods on many requests, some audited, some analysed."""
    methods = sorted(METHODS)
    requests: list[Request] = [
        ForgetClasses([3]),
        ForgetClasses([1, 2]),
        ForgetClasses([0, 4, 5]),
        ForgetFraction(0.1),
    ]
    made = []
    for number in range(50):
        method, request = (
            methods[number % len(methods)],
            requests[number // len(methods) % len(requests)],
        )
        verdict = (None, "forgotten", "not forgotten", "no verdict")[number % 4]
        made.append(
            write_run(
                root / f"{number:02d}-{method}",
                method,
                request,
                names,
                number,
                verdict=verdict,
                analysis=number % 2 == 0,
            )
        )
    return made
