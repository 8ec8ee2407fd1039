"""The model that is to forget, and who: flags that `forget`, `compare` and `tune` share."""

import hashlib
from collections.abc import Callable, Sequence
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
    """Who is to be forgotten: one of --classes, --fraction, --random-classes and --ids."""

    classes: tuple[str, ...] = ()
    """Names of classes; a number is an index where no class has that name."""
    fraction: float | None = None
    """Share of the training samples, drawn with the seed."""
    random_classes: int | None = None
    """Number of classes to remove together, drawn with the seed."""
    ids: Path | None = None
    """File with one id a line: in a folder the path of an image below --data (train/cat/1.png), in other data its name or number."""
    protocol: Protocols = "holdout"
    """holdout: stop rules look at a fifth of the test data, which is not reported; paper: whole test set in both roles."""

    def check(self, default: Request | None = None) -> None:
        """Raise an error where the flags alone are wrong: asked before the data are read."""
        asked = {
            "--classes": self.classes or None,
            "--fraction": self.fraction,
            "--random-classes": self.random_classes,
            "--ids": self.ids,
        }
        given = [name for name, value in asked.items() if value is not None]
        if len(given) > 1 or (not given and default is None):
            raise BadInput(
                f"Say who is to be forgotten with one of {', '.join(asked)}; given: {', '.join(given) or 'none'}."
            )
        if self.ids is not None:
            _ = self._samples

    def build(self, data: Data, default: Request | None = None) -> Request:
        """Return the request; `default` where no flag says. Only the data tell whether a number is the name of a class."""
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
        """The ids, read once: a pipe cannot be read twice."""
        assert self.ids is not None
        return ForgetSamples.from_file(self.ids)


@dataclass
class OriginalFlags:
    """The model: a stored run, or your own."""

    run: Path | None = None
    """A run of `duck train`, or of `duck forget` for a further request: brings model, weights, data and the earlier requests."""
    model: str | None = None
    """Your own model builder, package.module:function, or a name from `duck list models`."""
    weights: Path | None = None
    """Its weights: .safetensors, or a .pt state_dict."""
    head: str | None = None
    """Name of the classifier head inside the model; found by a probe where not given."""
    ignore_earlier: bool = False
    """Take --weights that have forgotten something before, whose forget set is not known: it is not kept apart, nor scored."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code can do anything."""

    def check(self) -> None:
        if bool(self.run) == bool(self.model):
            raise BadInput(
                "Give the model as --run RUN, or as --model BUILDER --weights FILE --data DATA."
            )
        if self.model and not self.weights:
            raise BadInput(
                f"--model {self.model} also needs --weights FILE: an untrained model has nothing to forget."
            )
        if self.weights and not self.ignore_earlier:
            check_forgot_nothing(self.weights)

    def splits_data(self) -> bool:
        """Whether data without test data give some away: a model that was trained elsewhere has seen all of them."""
        if self.run:
            return not runs.load(self.run).experiment.training.weights
        return self.model is None

    def earlier(self) -> tuple[EarlierRequest, ...]:
        """What the model of --run has forgotten already."""
        return runs.load(self.run).experiment.all_requests if self.run else ()

    def scenario(self, request: Request, data: Data, seed: int, protocol: Protocols) -> Scenario:
        """Apply a request to the data, after those of --run, with what that run found out about them."""
        scenario = scenario_of(self.earlier(), request, data, seed, protocol)
        if self.run is None or not scenario.earlier:
            return scenario
        run = runs.load(self.run)
        assert run.experiment.method is not None
        return with_history(scenario, run.earlier, surely_forgot(run.experiment.method, run.forgot))

    def with_copies(
        self, request: Request, data: Data, seed: int, protocol: Protocols
    ) -> WithCopies:
        """Return the request with the exact copies of its samples, among what the requests of --run left."""
        self.scenario(request, data, seed, protocol)  # refuses what an earlier request forgot
        return add_copies(request, data_left(self.earlier(), data), seed, protocol)

    def training(self, data: Data, source: DataFlags) -> Training:
        """How the original came to be, as far as it is known."""
        if self.run:
            return _of_run(self.run, data, self.trust_model_code)
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
            digest,
            True,
        )

    def places(self, folder: Path, source: DataFlags) -> dict[str, Any]:
        """Where the run in a folder finds its original and its data again: fields of `store.Run`."""
        found = source.source(folder)
        if self.run:
            return {"original_run": runs.path_from(folder, self.run), "source": found}
        return {
            "source": {**found, "weights": runs.path_from(folder, self.weights)}
            if self.weights
            else found
        }

    def load(self, training: Training, data: Data, device: torch.device) -> nn.Module:
        model = build(training.model, data.num_classes, data.train.shape)
        load_weights(model, self.weights or (self.run or Path()) / runs.WEIGHTS)
        return model.to(device)

    def head_name(self) -> str | None:
        """Return --head or, for a further request, that of the run before; None where a probe is to find it."""
        return self.head or (runs.load(self.run).experiment.head if self.run else None)

    def other_head(self, training: Training, data: Data, device: torch.device) -> str | None:
        """Return the head's name, checked on the model; None where a probe finds the same one, so that nothing depends on the flag."""
        head = self.head_name()
        if head is None:
            return None
        model, images = (
            in_float32(self.load(training, data, device)),
            next(data.train.to(device).batches(PROBE_IMAGES)).images,
        )
        given = find_head(model, images, head)
        try:
            return None if find_head(model, images) == given else head
        except DuckError:  # a probe finds none: that is what the flag is for
            return head


def check_forgot_nothing(weights: Path) -> None:
    """Refuse weights whose model has forgotten something before: a new request would learn it again."""
    digest = request_digest(weights)
    if not digest:
        return
    place = weights.parent if (weights.parent / runs.RECORD).exists() else "RUN"
    raise BadInput(
        f"{weights} is of a model that has forgotten something before (digest of the request: {digest}). The file does not say what, and a "
        f"new request would learn it again with the retain set. Give --run {place}, which carries the earlier request; or, if those "
        "samples are no longer among the data, add --ignore-earlier."
    )


def report_findings(scenario: Scenario) -> list[Finding]:
    """Check the data of a request and print the findings with their ids, which records do not hold."""
    findings = check_data(scenario)
    for finding in findings:
        say(str(finding))
    return findings


def notes_left(notes: Sequence[str], printed: Sequence[Finding]) -> list[str]:
    """Return the notes without the findings that `report_findings` printed: those had their ids."""
    texts = {finding.text for finding in printed}
    return [note for note in notes if note not in texts]


def noted(
    outcome: Outcome,
    method: Method,
    training: Training,
    data: Data,
    original: OriginalFlags,
    findings: Sequence[Finding] = (),
    copies: str = "",
) -> Outcome:
    """The outcome with what must be known of its request, its data and, where the original was trained elsewhere, of that.

    `copies`: how many copies were added to the request.
    """
    outcome = replace(
        outcome,
        method_notes=(
            *outcome.method_notes,
            *filter(None, [copies]),
            *(finding.text for finding in findings),
        ),
    )
    if not training.weights:
        return outcome
    digest = request_digest(original.weights) if original.weights else ""
    if digest:
        ignored = f"The original had forgotten something before (digest of the request: {digest}), which was ignored: it may be known again."
        outcome = replace(outcome, method_notes=(*outcome.method_notes, ignored))
    pixels = getattr(data.train, "pixels", None)
    if pixels is None or training.mean or training.std:
        return note_guessed_recipe(outcome, method, training.recipe)
    note = f"Pixels were normalised by the data's own {pixels}: give --mean and --std if the model was trained with others."
    return note_guessed_recipe(
        replace(outcome, method_notes=(*outcome.method_notes, note)), method, training.recipe
    )


def factory(training: Training, data: Data) -> Callable[[], nn.Module]:
    """Return a function that builds fresh models of the architecture; it can be pickled."""
    return partial(build, training.model, data.num_classes, data.train.shape)


def data_flags(given: GivenFlags) -> DataFlags:
    """The data of --run where it is given, else of --data."""
    run = given.get("--run")
    if not run:
        return DataFlags(given.get("--data") or "digits")
    record: dict[str, Any] = runs.read_record(Path(run))
    source, made = record["source"], record["experiment"]["training"]
    data, root = data_place(Path(run), source)
    return DataFlags(
        data or made["data"],
        root,
        image_size=made.get("image_size"),
        mean=tuple(made.get("mean", ())),
        std=tuple(made.get("std", ())),
    )


def data_name(given: GivenFlags) -> str:
    """What presets call these data, before they are read."""
    run = given.get("--run")
    return (
        str(runs.read_record(Path(run))["experiment"]["training"]["data"])
        if run
        else given.get("--data") or "digits"
    )


def data_samples(given: GivenFlags) -> int | None:
    """How many training samples they have, before they are read: of a named data set the presets know it, others are taken for small."""
    run = given.get("--run")
    if run:
        samples: dict[str, int] = runs.read_record(Path(run)).get("samples", {})
        return (
            samples.get("train")
            or sum(samples.get(name, 0) for name in ("forget", "retain"))
            or None
        )
    return None if (given.get("--data") or "digits") in DATASETS else 0


def _of_run(run: Path, data: Data, trusted: bool) -> Training:
    made = runs.load(run).experiment
    if made.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those that {run} was trained on: the fingerprints differ. Name them with --data, --root."
        )
    check_model_code(made.training.model, run, trusted)
    return made.training


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise BadInput(f"The weights {path} cannot be read: {error.strerror}.") from error
