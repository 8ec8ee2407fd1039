"""Flags of the original model and of the request, which forget, compare and tune share."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from duck import runs
from duck.checks import check_model_code
from duck.cli.console import say
from duck.cli.inputs import DataFlags, GivenFlags
from duck.data import DATASETS
from duck.data.checks import Finding, check_data
from duck.earlier_requests import with_history
from duck.errors import BadInput, DuckError
from duck.experiment import EarlierRequest, Training, data_left, fingerprint, scenario_of
from duck.files import read_bytes
from duck.methods.base import Method
from duck.methods.presets import default_recipe
from duck.models import build
from duck.models.head import PROBE_IMAGES, find_head
from duck.models.user_models import in_float32
from duck.models.weights import load_weights, request_digest
from duck.scenarios import (
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    Request,
    WithCopies,
    add_copies,
    class_from_word,
)
from duck.types import Data, Protocols, Scenario
from duck.unlearning import Outcome, note_guessed_recipe, surely_forgot
from duck.unlearning_runs import data_place


@dataclass
class RequestFlags:
    """What to forget: one of --classes, --fraction, --random-classes and --ids."""

    classes: tuple[str, ...] = ()
    """Names of classes; a number is an index if no class has that name."""
    fraction: float | None = None
    """Share of the training samples, drawn with the seed."""
    random_classes: int | None = None
    """Number of classes to remove together, drawn with the seed."""
    ids: Path | None = None
    """File with one id a line: in a folder the path of an image below --data (train/cat/1.png), in
    other data its name or number."""
    protocol: Protocols = "holdout"
    """holdout: stop rules use a fifth of the test data, which is not reported; paper: the whole
    test set is used for both."""

    def check(self, default: Request | None = None) -> None:
        """Raise an error if the flags are wrong, before the data are read."""
        values = {
            "--classes": self.classes or None,
            "--fraction": self.fraction,
            "--random-classes": self.random_classes,
            "--ids": self.ids,
        }
        given = [name for name, value in values.items() if value is not None]
        if len(given) > 1 or (not given and default is None):
            raise BadInput(
                f"Give what to forget with one of {', '.join(values)}; "
                f"given: {', '.join(given) or 'none'}."
            )
        if self.ids is not None:
            _ = self._samples

    def build(self, data: Data, default: Request | None = None) -> Request:
        """Return the request; `default` if no flag gives one.

        Whether a number is the name of a class depends on the data.
        """
        self.check(default)
        if self.classes:
            return ForgetClasses(class_from_word(word, data) for word in self.classes)
        if self.random_classes is not None:
            return ForgetRandomClasses(self.random_classes)
        if self.fraction is not None:
            return ForgetFraction(self.fraction)
        if self.ids is not None:
            return self._samples
        assert default is not None
        return default

    @cached_property
    def _samples(self) -> ForgetSamples:
        """The request for the ids, read once: a pipe cannot be read twice."""
        assert self.ids is not None
        return ForgetSamples.from_file(self.ids)


@dataclass
class OriginalFlags:
    """The model: a stored run, or your own."""

    run: Path | None = None
    """A run of `duck train`, or of `duck forget` for a further request: it has the model, weights,
    data and earlier requests."""
    model: str | None = None
    """Your own model builder, package.module:function, or a name from `duck list models`."""
    weights: Path | None = None
    """Its weights: .safetensors, or a .pt state_dict."""
    head: str | None = None
    """Name of the classifier head inside the model. Default: it is found."""
    ignore_earlier: bool = False
    """Accept --weights that have forgotten something before. That forget set is not known: it is
    neither left out of the retain set nor scored."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code
    can do anything."""

    def check(self) -> None:
        """Raise an error if the flags are wrong, before the data are read."""
        if bool(self.run) == bool(self.model):
            raise BadInput(
                "Give the model as --run RUN, or as --model BUILDER --weights FILE --data DATA."
            )
        if self.model and not self.weights:
            raise BadInput(
                f"--model {self.model} also needs --weights FILE: an untrained model has nothing "
                "to forget."
            )
        if self.weights and not self.ignore_earlier:
            check_forgot_nothing(self.weights)

    def splits_data(self) -> bool:
        """Return whether test data are split off if there are none.

        A model that was trained elsewhere has seen all of the data.
        """
        if self.run:
            return not runs.load(self.run).experiment.training.weights
        return self.model is None

    def earlier(self) -> tuple[EarlierRequest, ...]:
        """Return the requests that the model of --run has forgotten."""
        return runs.load(self.run).experiment.all_requests if self.run else ()

    def scenario(self, request: Request, data: Data, seed: int, protocol: Protocols) -> Scenario:
        """Apply a request to the data, after the requests of --run and with their scores."""
        scenario = scenario_of(self.earlier(), request, data, seed, protocol)
        if self.run is None or not scenario.earlier:
            return scenario
        run = runs.load(self.run)
        assert run.experiment.method is not None
        return with_history(scenario, run.earlier, surely_forgot(run.experiment.method, run.forgot))

    def with_copies(
        self, request: Request, data: Data, seed: int, protocol: Protocols
    ) -> WithCopies:
        """Add exact copies of its samples to a request, from what the requests of --run left."""
        self.scenario(request, data, seed, protocol)  # an error if it was forgotten before
        return add_copies(request, data_left(self.earlier(), data), seed, protocol)

    def training(self, data: Data, source: DataFlags) -> Training:
        """Return how the original was trained, as far as it is known."""
        if self.run:
            return _training_of_run(self.run, data, self.trust_model_code)
        assert self.model is not None
        assert self.weights is not None
        digest = hashlib.blake2b(_bytes(self.weights), digest_size=16).hexdigest()
        recipe = default_recipe(data.name, len(data.train), data.augment, self.model)
        return Training(
            data.name,
            self.model,
            recipe,
            0,
            source.image_size,
            source.mean,
            source.std,
            fingerprint(data),
            weights=digest,
            recipe_assumed=True,
        )

    def places(self, folder: Path, source: DataFlags) -> dict[str, Any]:
        """Return the paths of the original and the data, from a run folder: fields of `Run`."""
        paths = source.source(folder)
        if self.run:
            return {"original_run": runs.path_from(folder, self.run), "source": paths}
        if self.weights:
            paths["weights"] = runs.path_from(folder, self.weights)
        return {"source": paths}

    def load(self, training: Training, data: Data, device: torch.device) -> nn.Module:
        """Load the original."""
        model = build(training.model, data.num_classes, data.train.shape)
        load_weights(model, self.weights or (self.run or Path()) / runs.WEIGHTS)
        return model.to(device)

    def head_name(self) -> str | None:
        """Return --head or the head of --run; None if it is to be found."""
        return self.head or (runs.load(self.run).experiment.head if self.run else None)

    def other_head(self, training: Training, data: Data, device: torch.device) -> str | None:
        """Return the name of the head if it is another one than would be found.

        The id of the experiment then does not depend on a flag that changes nothing.
        """
        name = self.head_name()
        if name is None:
            return None
        model = in_float32(self.load(training, data, device))
        images = next(data.train.to(device).batches(PROBE_IMAGES)).images
        head = find_head(model, images, name)
        try:
            return None if find_head(model, images) == head else name
        except DuckError:
            # None is found: this is what the flag is for.
            return name


def check_forgot_nothing(weights: Path) -> None:
    """Raise an error for weights of a model that has forgotten something before."""
    digest = request_digest(weights)
    if not digest:
        return
    place = weights.parent if (weights.parent / runs.RECORD).exists() else "RUN"
    raise BadInput(
        f"{weights} is of a model that has forgotten something before (digest of the request: "
        f"{digest}). The file does not say what, and a new request would learn it again with the "
        f"retain set. Give --run {place}, which has the earlier request; or, if those samples are "
        "no longer among the data, add --ignore-earlier."
    )


def report_findings(scenario: Scenario) -> list[Finding]:
    """Check the data of a request and print the findings with sample ids, which no record has."""
    findings = check_data(scenario)
    for finding in findings:
        say(str(finding))
    return findings


def unprinted_notes(notes: Sequence[str], printed: Sequence[Finding]) -> list[str]:
    """Return the notes without the findings that `report_findings` has printed."""
    texts = {finding.text for finding in printed}
    return [note for note in notes if note not in texts]


def add_notes(
    outcome: Outcome,
    method: Method,
    training: Training,
    data: Data,
    original: OriginalFlags,
    findings: Sequence[Finding] = (),
    copies: str = "",
) -> Outcome:
    """Add what a reader must know about the request, the data and a model from elsewhere.

    copies   how many copies were added to the request
    """
    new_notes = [*filter(None, [copies]), *(finding.text for finding in findings)]
    if training.weights:
        new_notes += _foreign_model_notes(training, data, original)
    outcome = replace(outcome, method_notes=(*outcome.method_notes, *new_notes))
    if not training.weights:
        return outcome
    return note_guessed_recipe(outcome, method, training.recipe)


def _foreign_model_notes(training: Training, data: Data, original: OriginalFlags) -> Iterator[str]:
    digest = request_digest(original.weights) if original.weights else ""
    if digest:
        yield (
            "The original had forgotten something before (digest of the request: "
            f"{digest}), which was ignored: it may be known again."
        )
    pixels = getattr(data.train, "pixels", None)
    if pixels is not None and not training.mean and not training.std:
        yield (
            f"Pixels were normalised by the data's own {pixels}: give --mean and --std if the "
            "model was trained with others."
        )


def model_factory(training: Training, data: Data) -> Callable[[], nn.Module]:
    """Return a function that builds fresh models of the architecture; it can be pickled."""
    return partial(build, training.model, data.num_classes, data.train.shape)


def data_flags(given: GivenFlags) -> DataFlags:
    """Return the data of --run, else those of --data."""
    run = given.get("--run")
    if not run:
        return DataFlags(given.get("--data") or "digits")
    record = runs.read_record(Path(run))
    training = record["experiment"]["training"]
    data, root = data_place(Path(run), record["source"])
    return DataFlags(
        data or training["data"],
        root,
        image_size=training.get("image_size"),
        mean=tuple(training.get("mean", ())),
        std=tuple(training.get("std", ())),
    )


def data_name(given: GivenFlags) -> str:
    """Return the name of the data in presets, before they are read."""
    run = given.get("--run")
    if not run:
        return given.get("--data") or "digits"
    return str(runs.read_record(Path(run))["experiment"]["training"]["data"])


def data_samples(given: GivenFlags) -> int | None:
    """Return the number of training samples before the data are read.

    The presets know it for named data sets (None); others are taken for small (0).
    """
    run = given.get("--run")
    if not run:
        return None if data_name(given) in DATASETS else 0
    samples: dict[str, int] = runs.read_record(Path(run)).get("samples", {})
    parts = sum(samples.get(name, 0) for name in ("forget", "retain"))
    return samples.get("train") or parts or None


def _training_of_run(run: Path, data: Data, trusted: bool) -> Training:
    training = runs.load(run).experiment.training
    if training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those that {run} was trained on: the fingerprints differ. Name them "
            "with --data, --root."
        )
    check_model_code(training.model, run, trusted)
    return training


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise BadInput(f"The weights {path} cannot be read: {error.strerror}.") from error
