"""Original models: trained once, and then read from the artifact store by every command."""

import resource
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from duck.api import train
from duck.artifacts import ArtifactStore, Facts, Key
from duck.experiment import Experiment
from duck.metrics import training_scores
from duck.models import build
from duck.models.user_models import in_float32
from duck.records import Environment, structure, to_plain
from duck.runs import environment
from duck.runtime import Stopwatch, device_name, is_first
from duck.types import Data, Report

GIB = 2**30


@dataclass(frozen=True)
class TrainingFacts:
    """When, where and how long an original was trained, and its scores."""

    scores: dict[str, float | None]
    seconds: float
    created: str
    environment: Environment
    machine: dict[str, Any]
    """As in the results of `duck bench`."""
    alone: bool
    """Whether nothing else used the device, so that the time can be compared."""


def load_or_train(
    store: ArtifactStore,
    experiment: Experiment,
    data: Data,
    device: torch.device,
    *,
    alone: bool = False,
    renew: bool = False,
    report: Report | None = None,
    checkpoint: Path | None = None,
) -> tuple[nn.Module, TrainingFacts]:
    """Return the original of an experiment and its facts: the stored one, or one trained now.

    data        what it is trained on: the biased data for an experiment about a bias
    renew       train it in any case
    report, checkpoint   as for `duck.train`
    """
    training = experiment.training

    def train_now() -> tuple[nn.Module, Facts]:
        with Stopwatch(device) as stopwatch:
            model = train(
                training.model,
                data,
                training.seed,
                training.recipe,
                device=str(device),
                report=report,
                checkpoint=checkpoint,
            )
        facts = TrainingFacts(
            # In a distributed training only the first process writes.
            scores=training_scores(in_float32(model), data) if is_first() else {},
            seconds=stopwatch.seconds,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=environment(device),
            machine=machine_facts(device),
            alone=alone,
        )
        return model, to_plain(facts)

    return store.get_or_train(
        Key.of_original(experiment),
        lambda: build(training.model, data.num_classes, data.train.shape),
        train_now,
        lambda facts: structure(facts, TrainingFacts),
        device=device,
        renew=renew,
    )


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Return device, versions, date and peak memory; no paths."""
    unit = 1 if sys.platform == "darwin" else 1024
    on_gpu = device.type == "cuda"
    return {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).date().isoformat(),
        "device_gib": torch.cuda.max_memory_allocated(device) / GIB if on_gpu else None,
        "host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB,
    }
