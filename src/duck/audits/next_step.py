"""What to do after an audit or an unlearning: complete commands, or why there is none."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duck.audits.verdict import (
    DEFAULT_MODELS,
    FORGOTTEN,
    NO_RETAIN_DATA,
    NOT_FORGOTTEN,
    Audit,
    Tier,
)
from duck.methods.base import METHODS
from duck.runs import Run, place_of

WEIGHTS = "WEIGHTS"
"""Placeholder for the file of the original's weights where its path is unknown or private."""
CONFIG = "experiment.toml"
NO_UNSEEN_DATA = (
    "This run cannot be audited: an audit compares with unseen samples, and there are no test data."
)

NOTHING_LEFT = "Nothing is left to do."
COMPARE = "Compare with retrained models"
MORE_MODELS = "More retrained models give narrower intervals"
OTHER_METHODS = {
    "warm-restart": "A short new training cycle",
    "assured": "Methods in turn, until one passes this audit",
    "retrained": "Retraining, which forgets exactly",
}
"""What to try after a method that did not forget."""
ONE_SAMPLE = (
    "No audit gives a verdict for one sample, with any number of models: read the percentile of "
    "its loss. Only retraining forgets it for certain (method retrained)."
)


def audit_obstacle(samples: Mapping[str, int]) -> str:
    """Return why an audit refuses these numbers of samples per split; "" where it does not."""
    if not samples.get("retain", 1):
        return NO_RETAIN_DATA
    return NO_UNSEEN_DATA if 0 in (samples.get("holdout"), samples.get("test")) else ""


def audit_command(
    run: Run, folder: str, tier: Tier = "quick", weights: str = WEIGHTS, models: int = 0
) -> str:
    """Return the command that audits the run in a folder, with every flag that it needs.

    `weights` is the file of the original's weights. `models` is the number of retrained models of
    the audit before: a further one compares with no fewer.
    """
    training = run.experiment.training
    words = ["duck", "audit", folder, *(["--tier", tier] if tier != "quick" else [])]
    if training.weights and run.original_run is None and "weights" not in run.source:
        words += ["--original", weights]
    if training.weights and tier != "quick":
        words.append("--default-recipe")
    words += _models_flag(models, tier)
    if ":" in training.model:
        words.append("--trust-model-code")
    return shlex.join(words)


def _models_flag(models: int, tier: Tier) -> list[str]:
    """Return the flag for more retrained models than the default; the quick tier has none."""
    return ["--models", str(models)] if models > DEFAULT_MODELS and tier != "quick" else []


def audit_command_here(run: Run, folder: Path, tier: Tier = "quick", models: int = 0) -> str:
    """Return the command for this machine, with the recorded path of the original's weights."""
    stored = run.source.get("weights")
    weights = WEIGHTS if stored is None else _from_here(place_of(folder, stored))
    return audit_command(run, str(folder), tier, weights, models)


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
        return (f"{NOTHING_LEFT} A page for others: `{report}`.",)
    if audit.verdict == NOT_FORGOTTEN:
        return _forget_again(run, folder, audit, original)
    if run.samples.get("forget") == 1:
        return (ONE_SAMPLE,)
    if audit.tier == "quick":
        return (f"{COMPARE}: `{audit_command_here(run, folder, 'oracle')}`.",)
    more = f"{audit_command_here(run, folder, audit.tier)} --models {2 * max(audit.models, 3)}"
    steps = [f"{MORE_MODELS}: `{more}`."]
    if audit.tier == "oracle":
        command = audit_command_here(run, folder, "full", audit.models)
        steps.append(f"A pool of models finds more: `{command}`.")
    return tuple(steps)


@dataclass(frozen=True)
class PythonNames:
    """What the arguments are called in a suggested Python call."""

    audited: str
    """The first arguments of duck.audit."""
    repeated: str
    """The first arguments of duck.forget, for the same request."""
    method: str = ""
    """The method that ran; "" where it is not known."""
    retraining: str = "new_model=new_model, recipe=recipe"
    """The arguments for retraining."""
    audit_options: str = ""
    """Further arguments that duck.audit was given."""


def next_calls(audit: Audit, names: PythonNames, samples: int) -> tuple[str, ...]:
    """Return what to do after an audit in Python, a sentence with a call each.

    `samples` is the number of forget samples.
    """
    if audit.verdict == FORGOTTEN:
        return (NOTHING_LEFT,)
    if audit.verdict == NOT_FORGOTTEN:
        arguments = {method: f'method="{method}"' for method in OTHER_METHODS}
        arguments["assured"] = f"assure={_python_assurance(audit)}"
        return tuple(
            f"{what}: `duck.forget({names.repeated}, {arguments[method]}, {names.retraining})`."
            for method, what in OTHER_METHODS.items()
            if method != names.method
        )
    if samples == 1:
        return (ONE_SAMPLE,)
    what, tier, models = COMPARE, "oracle", ""
    if audit.tier != "quick":
        what, tier = MORE_MODELS, audit.tier
        models = f"models={2 * max(audit.models, DEFAULT_MODELS // 2)}, "
    options = f"{models}{names.retraining}{names.audit_options}"
    return (f'{what}: `duck.audit({names.audited}, tier="{tier}", {options})`.',)


def _python_assurance(audit: Audit) -> str:
    """Return the argument for an assured run in Python: the full tier needs a stored run."""
    tier: Tier = "oracle" if audit.tier == "full" else audit.tier
    if _models_flag(audit.models, tier):
        return f'duck.AssureOptions("{tier}", models={audit.models})'
    return f'"{tier}"'


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
    assured = ["auto", "--assure", audit.tier, *_models_flag(audit.models, audit.tier)]
    tried = run.experiment.method and METHODS.name_of(run.experiment.method)
    for method, what in OTHER_METHODS.items():
        if method == tried:
            continue
        words = ["duck", "forget", "--run", _from_here(original), "--config", str(config)]
        words += ["--method", *(assured if method == "assured" else [method])]
        words += ["--out", str(folder.parent / f"{folder.name}-{method}")]
        if ":" in run.experiment.training.model:
            words.append("--trust-model-code")
        steps.append(f"{what}: `{shlex.join(words)}`.")
    return tuple(steps)


def _from_here(place: Path) -> str:
    """Return a path below the working folder from there, others as they are."""
    here = Path.cwd()
    return os.path.relpath(place, here) if place.is_relative_to(here) else str(place)
