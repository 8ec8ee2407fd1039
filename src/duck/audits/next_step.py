"""What to do after an audit or an unlearning: complete commands, or why there is none."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from duck.audits.verdict import FORGOTTEN, NO_RETAIN_DATA, NOT_FORGOTTEN, Audit, Tier
from duck.methods.base import METHODS
from duck.runs import Run, place_of

WEIGHTS = "WEIGHTS"
"""Placeholder for the file of the original's weights where its path is unknown or private."""
CONFIG = "experiment.toml"
NO_UNSEEN_DATA = (
    "This run cannot be audited: an audit compares with unseen samples, and there are no test data."
)


def audit_obstacle(samples: Mapping[str, int]) -> str:
    """Return why an audit refuses these numbers of samples per split; "" where it does not."""
    if not samples.get("retain", 1):
        return NO_RETAIN_DATA
    return NO_UNSEEN_DATA if 0 in (samples.get("holdout"), samples.get("test")) else ""


def audit_command(run: Run, folder: str, tier: Tier = "quick", weights: str = WEIGHTS) -> str:
    """Return the command that audits the run in a folder, with every flag that it needs.

    `weights` is the file of the original's weights.
    """
    made = run.experiment.training
    words = ["duck", "audit", folder, *(["--tier", tier] if tier != "quick" else [])]
    if made.weights and run.original_run is None and "weights" not in run.source:
        words += ["--original", weights]
    if made.weights and tier != "quick":
        words.append("--default-recipe")
    if ":" in made.model:
        words.append("--trust-model-code")
    return shlex.join(words)


def audit_command_here(run: Run, folder: Path, tier: Tier = "quick") -> str:
    """Return the command for this machine, with the recorded path of the original's weights."""
    stored = run.source.get("weights")
    weights = WEIGHTS if stored is None else _from_here(place_of(folder, stored))
    return audit_command(run, str(folder), tier, weights)


def verdict_without_audit(run: Run, folder: Path) -> str:
    """Return a sentence: the scores alone give no verdict, and which command does."""
    obstacle = audit_obstacle(run.samples)
    advice = obstacle or f"Run `{audit_command_here(run, folder)}`."
    return f"Verdict: none without an audit. {advice}"


def next_steps(run: Run, folder: Path, audit: Audit, original: Path | None) -> tuple[str, ...]:
    """Return what to do after an audit of a stored run, a sentence with a command each.

    `original` is the run of the original, or a file of its weights.
    """
    if audit.verdict == FORGOTTEN:
        report = shlex.join(["duck", "report", str(folder), "-o", "report.html"])
        return (f"Nothing is left to do. A page for others: `{report}`.",)
    if audit.verdict == NOT_FORGOTTEN:
        return _forget_again(run, folder, audit, original)
    if audit.tier == "quick":
        return (f"Compare with retrained models: `{audit_command_here(run, folder, 'oracle')}`.",)
    more = f"{audit_command_here(run, folder, audit.tier)} --models {2 * max(audit.models, 3)}"
    steps = [f"More retrained models give narrower intervals: `{more}`."]
    if audit.tier == "oracle":
        command = audit_command_here(run, folder, "full")
        steps.append(f"A pool of models finds more: `{command}`.")
    return tuple(steps)


def _forget_again(run: Run, folder: Path, audit: Audit, original: Path | None) -> tuple[str, ...]:
    """Return commands that repeat the request with another method."""
    if original is None or not original.is_dir():
        return (
            "Repeat `duck forget` with another --method, or train a model without these samples.",
        )
    config = folder / CONFIG
    store = shlex.join(["duck", "show", str(folder), "--toml"]) + f" > {shlex.quote(str(config))}"
    steps = [f"Store the request in a file: `{store}`."]
    answers = {question: grade.answer for question, grade in audit.grades.items()}
    if answers.get("exposed") == "yes" and answers.get("remembers") != "yes":
        steps.append(
            "The samples were pushed too far: a smaller learning rate or fewer epochs are softer."
        )
    other_methods = {
        "warm-restart": ("A short new training cycle", ["--method", "warm-restart"]),
        "assured": (
            "Methods in turn, until one passes this audit",
            ["--method", "auto", "--assure", audit.tier],
        ),
        "retrained": ("Retraining, which forgets exactly", ["--method", "retrained"]),
    }
    tried = run.experiment.method and METHODS.name_of(run.experiment.method)
    for method, (what, flags) in other_methods.items():
        if method == tried:
            continue
        words = ["duck", "forget", "--run", _from_here(original), "--config", str(config), *flags]
        words += ["--out", str(folder.parent / f"{folder.name}-{method}")]
        if ":" in run.experiment.training.model:
            words.append("--trust-model-code")
        steps.append(f"{what}: `{shlex.join(words)}`.")
    return tuple(steps)


def _from_here(place: Path) -> str:
    """Return a path below the working folder from there, others as they are."""
    here = Path.cwd()
    return os.path.relpath(place, here) if place.is_relative_to(here) else str(place)
