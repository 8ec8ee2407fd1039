"""Commands on the page: how to audit a run, and how to repeat it."""

import shlex
from dataclasses import replace
from pathlib import Path

from duck.audits.next_step import (
    audit_command,
    audit_obstacle,
    can_have_pool,
    data_flags,
    pixel_flags,
)
from duck.audits.options import AuditOptions
from duck.audits.verdict import DEFAULT_MODELS, NO_VERDICT, Tier
from duck.experiment import to_toml
from duck.printable import path_from_here
from duck.report.records import StoredRun
from duck.runs import place_of
from duck.scenarios import ForgetSamples

EXPERIMENT_FILE = "experiment.toml"


def suggested_audit(stored: StoredRun) -> str:
    """Return the command that tests more than the stored audit did; "" if there is none.

    The weights of the original are not named: a report is sent to others.
    """
    audit = stored.audit
    tier: Tier = "oracle"
    models = DEFAULT_MODELS if audit is None else max(audit.models, DEFAULT_MODELS)
    if audit is None:
        if audit_obstacle(stored.run.samples):
            return ""
    elif audit.verdict != NO_VERDICT or audit.powered is False or audit.tier == "full":
        return ""
    elif audit.tier == "oracle":
        if not can_have_pool(stored.run):
            return ""
        tier = "full"
    options = AuditOptions(tier, models)
    return audit_command(stored.run, path_from_here(stored.folder), options)


def experiment_toml(stored: StoredRun) -> str:
    """Return the experiment as TOML, without sample ids and without earlier requests.

    The ids are left out because they can name persons: the user passes the list with --ids.
    Earlier requests come with --run.
    """
    experiment = replace(stored.run.experiment, earlier=())
    if isinstance(experiment.request, ForgetSamples):
        experiment = replace(experiment, request=ForgetSamples(()))
    return to_toml(experiment)


def reproduce_commands(stored: StoredRun) -> list[str]:
    """Return the commands that repeat the run."""
    experiment = stored.run.experiment
    training = experiment.training
    ids = ["--ids", "ids.txt"] if isinstance(experiment.request, ForgetSamples) else []
    forget = ["--config", EXPERIMENT_FILE, *ids, "--out", "again"]
    if experiment.earlier:
        place = stored.run.original_run
        earlier_run = place_of(stored.folder, place) if place else Path("EARLIER")
        return [_command("forget", "--run", path_from_here(earlier_run), *forget)]
    if training.weights:
        # The model was trained elsewhere.
        model = ["--model", training.model, "--weights", "WEIGHTS"]
        data = [*_data_flags(stored), *pixel_flags(stored.run)]
        if "--data" not in data:
            data = ["--data", training.data, *data]
        return [_command("forget", *model, *data, *forget)]
    train = ["--config", EXPERIMENT_FILE, *_data_flags(stored), "--out", "original"]
    return [_command("train", *train), _command("forget", "--run", "original", *forget)]


def _data_flags(stored: StoredRun) -> list[str]:
    return data_flags(stored.run, stored.folder, path_from_here)


def _command(*words: str) -> str:
    return shlex.join(["duck", *words])
