"""Execute the runs of a grid: train originals, unlearn, attack, study."""

import json
import re
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from duck import files
from duck.api import train
from duck.bench import studies
from duck.bench.attacks import Attacker
from duck.bench.grids import Attack, Cell, Grid, Measurement, Settings, Study, result_id
from duck.bench.outputs import OutputStore, Target
from duck.bench.results import Result, Values, mark_invalid_scores
from duck.data import load
from duck.data.progress import ProgressCallback
from duck.errors import BadInput, DuckError, UnknownName
from duck.experiment import Experiment, Training, to_dict
from duck.methods.base import clone
from duck.metrics import Scores, evaluate, training_scores
from duck.models import build
from duck.models.weights import REQUEST_DIGEST, load_weights, save_weights
from duck.preparation import Preparations
from duck.runtime import Stopwatch, device_name, seeded
from duck.sample_ids import NO_SALT
from duck.scenarios import Debias
from duck.training import loop
from duck.types import Data, Recipe, Scenario
from duck.unlearning import notes, unlearn

GIB = 2**30
MAX_ERROR_LENGTH = 400
"""Characters; errors of accelerators can fill a page."""


@dataclass(frozen=True)
class Job:
    """One run: a cell of a grid, an attack on its model or a study of it.

    Without a cell: the training of an original.
    """

    dataset: str
    experiment: Experiment
    cell: Cell | None = None
    measurement: Measurement | None = None

    @property
    def settings(self) -> Settings | None:
        """The settings of the attack or study, or None."""
        return None if self.measurement is None else self.measurement.settings

    @property
    def id(self) -> str:
        return result_id(self.experiment, self.settings)

    @property
    def keys(self) -> dict[str, Any]:
        """The fields that name a result."""
        cell = self.cell
        if cell is None:
            return {
                "dataset": self.dataset,
                "scenario": None,
                "case": None,
                "method": None,
                "preset": None,
            }
        keys: dict[str, Any] = {
            "dataset": self.dataset,
            "scenario": cell.block.scenario,
            "case": cell.case,
            "method": cell.method,
            "preset": cell.preset,
        }
        if cell.variant:
            keys["variant"] = cell.variant
        if cell.block.recipe_preset != "standard":
            keys["recipe"] = cell.block.recipe_preset
        return keys

    def __str__(self) -> str:
        if self.cell is None:
            biased = " on biased data" if self.experiment.request else ""
            return f"{self.dataset}: train {self.experiment.training.model}{biased}"
        block = self.cell.block
        what = f"class {self.cell.case}" if block.classes else f"seed {self.cell.case}"
        if block.random_classes:
            what = f"{block.random_classes} classes, {what}"
        before = "" if self.measurement is None else f"{self.measurement.name} of "
        return f"{self.dataset}, {what}: {before}{self.cell.label} ({self.cell.preset})"


def load_all(
    names: Iterable[str],
    root: Path,
    download: bool = False,
    progress: ProgressCallback | None = None,
) -> tuple[dict[str, Data], dict[str, str]]:
    """Return the data sets that can be loaded, and why the others cannot."""
    found, missing = {}, {}
    for name in dict.fromkeys(names):
        try:
            found[name] = load(name, root, download=download, progress=progress)
        except UnknownName:
            raise
        except (DuckError, OSError) as error:
            missing[name] = str(error)
    return found, missing


@dataclass
class PreparedOriginal:
    """An original model with its data and preparations, ready for requests."""

    data: Data
    model: nn.Module
    preparations: Preparations
    before: dict[tuple[str, int], tuple[Scenario, Scores]] = field(default_factory=dict)

    def scenario(self, experiment: Experiment) -> tuple[Scenario, Scores]:
        """Return the scenario of a request and the original's scores on it."""
        assert experiment.request is not None
        key = str(experiment.request), experiment.seed
        if key not in self.before:
            scenario = experiment.request(self.data, experiment.seed, experiment.protocol)
            self.before[key] = scenario, evaluate(self.model, scenario)
        return self.before[key]


class Runner:
    """Executes jobs on one device. An exception in a job becomes the error of its result."""

    def __init__(
        self,
        data: Mapping[str, Data],
        models: Path,
        device: torch.device,
        attacker: Attacker | None = None,
        *,
        compiled: bool = False,
        keep_models: bool = False,
        alone: bool = True,
    ) -> None:
        """Create a runner.

        compiled      compile retraining, whatever its recipe says
        keep_models   store unlearned models, too, by the ids of their experiments
        alone         nothing else uses the device, so that times can be compared
        """
        self.data, self.models, self.device, self.attacker = data, models, device, attacker
        self.compiled, self.keep_models, self.outputs = (
            compiled,
            keep_models,
            OutputStore(models / "outputs"),
        )
        self.alone = alone
        self._moved: tuple[str, Data] | None = None
        self._prepared: tuple[str, PreparedOriginal] | None = None
        self._failed: dict[str, str] = {}
        """Originals whose training failed, and why: no other cell trains them again."""
        self._latest: tuple[str, nn.Module] | None = None
        """The id of the last unlearning and its model: a study of it usually comes next."""

    def ready(self, grid: Grid) -> set[str]:
        """Return the experiments that a grid's attack or study can use without a new model."""
        if grid.attack:
            return self.outputs.experiments()
        return {path.stem for path in self.models.glob("*.safetensors")} if grid.study else set()

    def __call__(self, job: Job) -> Result:
        _reset_peak(self.device)
        begun = time.monotonic()
        try:
            values = self._execute(job)
        except Exception as error:
            values = {"error": short_message(error)}
        named = {
            "id": job.id,
            **job.keys,
            "train_samples": len(self.data[job.dataset].train),
            "experiment": to_dict(job.experiment),
        }
        if job.measurement is not None:
            named[job.measurement.key] = job.settings
        seconds = time.monotonic() - begun
        stamp = {"wall_seconds": seconds, "alone": self.alone, **_machine(self.device)}
        # The record of a stored original has the machine and the time of its training.
        return mark_invalid_scores(Result(**{**named, **stamp, **values}))

    def _execute(self, job: Job) -> dict[str, Any]:
        """Return the fields of the result that the run itself determines."""
        if job.cell is None:
            return self._load_or_train(job)[1]
        return vars(self._measure(job))

    def _measure(self, job: Job) -> Values:
        if job.measurement is None:
            return self._unlearn(job)[0]
        if isinstance(job.measurement, Attack):
            return self._attack(job)
        return self._study(job, job.measurement)

    def _study(self, job: Job, study: Study) -> Values:
        if study.name == "bias":
            prepared = self._prepare(job)
            return studies.measure_bias_removal(
                prepared.model, job.experiment, prepared.data, study.images
            )
        model = self._load_or_unlearn(job)
        prepared = self._prepare(job)
        scenario, _ = prepared.scenario(job.experiment)
        return studies.measure_density(model, scenario, study.dimensions)

    def _load_or_unlearn(self, job: Job) -> nn.Module:
        """Return the unlearned model of a job: the latest one, a stored one or a new one."""
        if self._latest is not None and self._latest[0] == job.experiment.id:
            return self._latest[1]
        weights = self.models / f"{job.experiment.id}.safetensors"
        if not weights.exists():
            return self._unlearn(job)[1]
        data = self._data(job.dataset)
        model = build(job.experiment.training.model, data.num_classes, data.train.shape)
        load_weights(model, weights)
        return model.to(self.device).eval()

    def _attack(self, job: Job) -> Values:
        assert self.attacker is not None
        assert job.cell is not None
        if job.measurement != self.attacker.attack:
            raise BadInput(
                f"The job is of {job.settings}, the attacker of {self.attacker.attack.settings}. "
                "Plan with the settings of the attacker."
            )
        target = self._target(job)
        with Stopwatch(self.device) as stopwatch:
            values = self.attacker(target, job.cell.block.kind, job.experiment.seed)
        return replace(values, seconds=stopwatch.seconds)

    def _target(self, job: Job) -> Target:
        """Return the outputs of the model: stored ones, or those of a new model."""
        target = self.outputs.read(job.experiment.id)
        if target is None:
            self._unlearn(job)
            target = self.outputs.read(job.experiment.id)
        if target is None:
            raise BadInput(
                f"{job.dataset} has no test samples, which an attack needs, or the outputs of the "
                "model could not be stored."
            )
        return target

    def _unlearn(self, job: Job) -> tuple[Values, nn.Module]:
        prepared, experiment = self._prepare(job), job.experiment
        scenario, before = prepared.scenario(experiment)
        made = experiment.training
        assert experiment.method is not None
        # Retraining has the full recipe; for a few epochs compilation costs more than it saves.
        compiled = (made.recipe.compile or self.compiled) and job.keys["method"] == "retrained"
        data = prepared.data
        outcome = unlearn(
            experiment.method,
            prepared.model,
            scenario,
            new_model=lambda: build(made.model, data.num_classes, data.train.shape),
            recipe=replace(made.recipe, compile=compiled),
            original=before,
            preparations=prepared.preparations,
        )
        self._latest = experiment.id, outcome.model
        values = Values(
            scores=asdict(outcome.scores),
            original=asdict(before),
            seconds=outcome.seconds,
            prepare_seconds=outcome.prepare_seconds,
            compiled=compiled,
            forget_samples=outcome.forget_samples,
            processed=outcome.processed,
            status=outcome.status,
            kept_accuracy=outcome.kept_accuracy,
            notes=[*notes(scenario, outcome), *self._store(experiment, outcome.model, scenario)],
        )
        return values, outcome.model

    def _store(self, experiment: Experiment, model: nn.Module, scenario: Scenario) -> list[str]:
        """Store outputs and weights. A full disk does not cost the result: return a note."""
        try:
            self.outputs.write(experiment.id, model, scenario)
            if self.keep_models:
                request_digest = experiment.request_digest(NO_SALT)  # no grid names sample ids
                digest = {REQUEST_DIGEST: request_digest} if request_digest else None
                save_weights(model, self.models / f"{experiment.id}.safetensors", digest)
        except files.WRITE_ERRORS as error:
            return [f"It could not be kept for attacks and analyses: {files.reason(error)}."]
        return []

    def _prepare(self, job: Job) -> PreparedOriginal:
        key = _key(job.experiment)
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = self._latest = None  # frees the one before
            model, _ = self._load_or_train(job)
            _warm_up(model, self._data(job.dataset), self.device)
            self._prepared = (
                key,
                PreparedOriginal(
                    self._data(job.dataset), model, Preparations(self.models / "prepared")
                ),
            )
        return self._prepared[1]

    def _data(self, name: str) -> Data:
        """Return a data set on the device; only one at a time is held there."""
        if self._moved is None or self._moved[0] != name:
            self._moved = None
            self._moved = name, self.data[name].to(self.device)
        return self._moved[1]

    def _load_or_train(self, job: Job) -> tuple[nn.Module, dict[str, Any]]:
        """Return the original and its record: stored ones, or trained now."""
        made, data = job.experiment.training, self._data(job.dataset)
        if isinstance(job.experiment.request, Debias):
            data = job.experiment.request(data, job.experiment.seed).data
        weights = self.models / f"{_key(job.experiment)}.safetensors"
        if weights.stem in self._failed:
            raise BadInput(f"Its original could not be made: {self._failed[weights.stem]}")
        if weights.with_suffix(".json").exists():
            model = build(made.model, data.num_classes, data.train.shape)
            try:
                line = _read(weights.with_suffix(".json"))
                load_weights(model, weights)
                return model.to(self.device).eval(), line
            except BadInput as error:
                files.warn(f"{error} The original is trained again.")
        return self._train(made, data, weights)

    def _train(self, made: Training, data: Data, weights: Path) -> tuple[nn.Module, dict[str, Any]]:
        try:
            with Stopwatch(self.device) as stopwatch:
                model = train(made.model, data, made.seed, made.recipe, device=str(self.device))
        except Exception as error:
            self._failed[weights.stem] = short_message(error)
            raise
        timing = {
            "seconds": stopwatch.seconds,
            "wall_seconds": stopwatch.seconds,
            "compiled": made.recipe.compile,
        }
        shared = {} if self.alone else {"alone": False}
        line = {"scores": training_scores(model, data), **timing, **shared, **_machine(self.device)}
        with files.writing_cache(self.models):
            save_weights(model, weights)
            # Last: where the record is, the weights are whole.
            files.write_json(weights.with_suffix(".json"), line, indent=None)
        return model, line


def _warm_up(model: nn.Module, data: Data, device: torch.device) -> None:
    """Train briefly on a GPU: the first training of a process spends seconds on loading kernels."""
    if device.type == "cuda":
        some = data.train.take(torch.arange(min(2048, len(data.train))))
        loop.train(
            clone(model),
            some,
            Recipe(epochs=1, batch_size=256, augment=data.augment),
            seeded(0, "warm-up"),
        )


def _key(experiment: Experiment) -> str:
    """Return the id of an original: by data, model, recipe, seed and the bias in its data."""
    bias = experiment.request if isinstance(experiment.request, Debias) else None
    return Experiment(experiment.training, bias, seed=experiment.training.seed).id


def _read(record: Path) -> dict[str, Any]:
    try:
        line: dict[str, Any] = json.loads(files.read_text(record))
    except (OSError, ValueError) as error:
        raise BadInput(f"The record {record.name} of an original cannot be read.") from error
    if not isinstance(line, dict) or "scores" not in line or "seconds" not in line:
        raise BadInput(f"{record.name} is not the record of an original.")
    return line


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _machine(device: torch.device) -> dict[str, Any]:
    """Return device, versions, date and memory; no paths."""
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).date().isoformat(),
        "device_gib": torch.cuda.max_memory_allocated(device) / GIB
        if device.type == "cuda"
        else None,
        "host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB,
    }


def short_message(error: Exception) -> str:
    """Return one line without folders: results are shared, and paths are private."""
    message = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_ERROR_LENGTH]
    return re.sub(r"(?<![\w./])(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)", r"\1", message)
