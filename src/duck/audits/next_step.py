"""The next audit of a stored run: a complete command, or the reason why there is none."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from duck.audits.verdict import Tier
from duck.runs import Run, place_of

WEIGHTS = "WEIGHTS"
"""Placeholder for the file of the original's weights where its path is unknown or private."""
ONE_SAMPLE = (
    "A single sample cannot be audited: an audit compares groups of samples and needs at least 2."
)
NO_UNSEEN_DATA = (
    "This run cannot be audited: an audit compares with unseen samples, and there are no test data."
)


def audit_obstacle(samples: Mapping[str, int]) -> str:
    """Return why an audit refuses these numbers of samples per split; "" where it does not."""
    if samples["forget"] < 2:
        return ONE_SAMPLE
    return NO_UNSEEN_DATA if 0 in (samples.get("holdout"), samples.get("test")) else ""


def audit_command(run: Run, folder: str, tier: Tier = "quick", weights: str = WEIGHTS) -> str:
    """Return the command that audits the run in a folder, with every flag that it needs.

    `weights` is the file of the original's weights.
    """
    made = run.experiment.training
    words = ["duck", "audit", folder, *(["--tier", tier] if tier != "quick" else [])]
    if made.weights and run.original_run is None:
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


def _from_here(place: Path) -> str:
    """Return a path below the working folder from there, others as they are."""
    here = Path.cwd()
    return os.path.relpath(place, here) if place.is_relative_to(here) else str(place)
