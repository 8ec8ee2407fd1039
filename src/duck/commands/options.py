"""Options that several commands share: the data, the original model, and the stored run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from duck import runs
from duck.checks import check_model_code
from duck.data import DATASETS, SMALL_IMAGES, load
from duck.data.progress import ProgressCallback
from duck.earlier_requests import with_history
from duck.errors import BadInput, DuckError
from duck.experiment import EarlierRequest, Training, fingerprint, scenario_of
from duck.methods.presets import default_recipe
from duck.models import build
from duck.models.head import PROBE_IMAGES, find_head
from duck.models.user_models import in_float32
from duck.models.weights import file_digest, load_weights, request_digest
from duck.scenarios import ForgetClasses, Request, class_from_word
from duck.types import Data, Drift, Protocols, Recipe, Scenario
from duck.unlearning import certainly_forgot


@dataclass(frozen=True)
class DataOptions:
    """Where the data are: by default where a given run says."""

    data: str | None = None
    """digits, noisy-digits, cifar10, cifar100, tiny-imagenet, a folder of class folders of images,
    or an .npz file. Default: the data of a given run, else digits."""
    root: Path | None = None
    """Folder that holds the named data sets. Default: that of a given run, else data."""
    download: bool = False
    """Download a named data set that is missing, and check its SHA-256."""
    image_size: int | None = None
    """Resize images to this many pixels a side. Default: as for a given run, else unchanged."""
    mean: tuple[float, ...] = ()
    """Mean per channel, of pixels in 0..1, that your model was trained with. Default: as
    for a given run, else the mean of the data."""
    std: tuple[float, ...] = ()
    """Standard deviation per channel, of pixels in 0..1. Default: as for a given run, else that
    of the data."""

    @property
    def name(self) -> str:
        """The name of a data set, or a path."""
        return self.data or "digits"

    @property
    def folder(self) -> Path:
        """The folder of the named data sets."""
        return self.root or Path("data")

    def completed(self, run: Path) -> Self:
        """Return these options; what is not given is taken from the record of a run."""
        record = runs.load_public(run)
        training = record.experiment.training
        data, root = record.source.get("data"), record.source.get("root")
        if data and data not in DATASETS:
            data = str(runs.place_of(run, data))
        recorded: dict[str, Any] = {
            "data": data or training.data,
            "root": runs.place_of(run, root) if root else None,
            "image_size": training.image_size,
            "mean": training.mean,
            "std": training.std,
        }
        given = {field.name for field in fields(self) if getattr(self, field.name) != field.default}
        return replace(self, **{name: recorded[name] for name in recorded.keys() - given})

    def load(self, split: bool = True, progress: ProgressCallback | None = None) -> Data:
        """Load the data.

        split   whether to split test data off if there are none. A model that was trained
                elsewhere has seen all of the data.
        """
        return load(
            self.name,
            self.folder,
            download=self.download,
            progress=progress,
            image_size=self.image_size,
            mean=self.mean,
            std=self.std,
            split=split,
        )

    def source(self, folder: Path) -> dict[str, str | None]:
        """Return the paths of the data, relative to the folder of a run."""
        data = self.name if self.name in DATASETS else runs.path_from(folder, Path(self.name))
        return {"data": data, "root": runs.path_from(folder, self.folder)}

    def training(
        self, data: Data, model: str, recipe: Recipe, seed: int = 0, weights: str = ""
    ) -> Training:
        """Return the training of a model on these data.

        weights   fingerprint of weights that were trained elsewhere, by an unknown recipe
        """
        return Training(
            data.name,
            model,
            recipe,
            seed,
            self.image_size,
            self.mean,
            self.std,
            fingerprint(data),
            weights,
            recipe_assumed=bool(weights),
        )


@dataclass(frozen=True)
class RunOptions:
    """How to run, and where to put the result."""

    out: Path | None = None
    """Folder of the run. Default: runs/ID."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    overwrite: bool = False
    """Replace the run at --out, with its audits and analysis; other files in the folder stay."""


@dataclass(frozen=True)
class OriginalOptions:
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
    """Import and call the model builder (package.module:function) that a stored run names. This
    runs third-party code."""

    def check(self) -> None:
        """Raise an error if the options are wrong, before the data are read."""
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
            _check_forgot_nothing(self.weights)

    @cached_property
    def _run(self) -> runs.Run | None:
        return runs.load(self.run) if self.run else None

    def splits_data(self) -> bool:
        """Return whether test data are split off if there are none.

        A model that was trained elsewhere has seen all of the data.
        """
        return not self._run.experiment.training.weights if self._run else self.model is None

    def earlier(self) -> tuple[EarlierRequest, ...]:
        """Return the requests that the model of the run has forgotten."""
        return self._run.experiment.all_requests if self._run else ()

    def scenario(self, request: Request, data: Data, seed: int, protocol: Protocols) -> Scenario:
        """Apply a request to the data, after the requests of the run and with their scores."""
        scenario = scenario_of(self.earlier(), request, data, seed, protocol)
        if self._run is None or self._run.experiment.method is None or not scenario.earlier:
            return scenario
        forgot = certainly_forgot(self._run.experiment.method, self._run.forgot)
        return with_history(scenario, self._run.earlier, forgot, self._run.drift or Drift())

    def training(self, data: Data, source: DataOptions) -> Training:
        """Return how the original was trained, as far as it is known."""
        if self._run:
            training = self._run.experiment.training
            if training.fingerprint != fingerprint(data):
                raise BadInput(
                    f"The data are not those that {self.run} was trained on: the fingerprints "
                    "differ. Name them with --data, --root."
                )
            check_model_code(training.model, str(self.run), self.trust_model_code)
            return training
        assert self.model is not None
        assert self.weights is not None
        recipe = default_recipe(data.name, len(data.train), data.augment, self.model)
        return source.training(data, self.model, recipe, weights=file_digest(self.weights))

    def places(self, folder: Path, source: DataOptions) -> runs.Places:
        """Return the paths of the original and the data, from a run folder."""
        paths = source.source(folder)
        if self.run:
            return {"original_run": runs.path_from(folder, self.run), "source": paths}
        if self.weights:
            paths["weights"] = runs.path_from(folder, self.weights)
        return {"source": paths}

    def load(self, training: Training, data: Data, device: torch.device) -> nn.Module:
        """Load the original."""
        model = model_factory(training, data)()
        load_weights(model, self.weights or (self.run or Path()) / runs.WEIGHTS)
        return model.to(device)

    def head_name(self) -> str | None:
        """Return the given head or that of the run; None if it is to be found."""
        return self.head or (self._run.experiment.head if self._run else None)

    def other_head(self, training: Training, data: Data, device: torch.device) -> str | None:
        """Return the name of the head if it is another one than would be found.

        The id of the experiment then does not depend on an option that changes nothing.
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
            # None is found: this is what the option is for.
            return name

    def foreign_notes(self, training: Training, data: Data) -> Iterator[str]:
        """Yield what a reader must know if the model was trained elsewhere."""
        if not training.weights:
            return
        digest = request_digest(self.weights) if self.weights else ""
        if digest:
            yield (
                "The original had forgotten something before (digest of the request: "
                f"{digest}), which was ignored. The model may learn those samples again."
            )
        pixels = data.train.pixels
        if pixels is not None and not training.mean and not training.std:
            yield (
                f"Pixels were normalised with {pixels}, computed from the data. Give --mean and "
                "--std if the model was trained with other values."
            )


def resolve_classes(request: Request, data: Data) -> Request:
    """Return the request with its classes as records store them.

    Whether a number is the name of a class or its index depends on the data.
    """
    if not isinstance(request, ForgetClasses):
        return request
    return ForgetClasses(
        class_from_word(word, data) if isinstance(word, str) else word for word in request.classes
    )


def default_model(data: str) -> str:
    """Return the name of the model for a data set where none is named."""
    return "convnet" if data in SMALL_IMAGES else "resnet18"


def model_factory(training: Training, data: Data) -> Callable[[], nn.Module]:
    """Return a function that builds fresh models of the architecture; it can be pickled."""
    return partial(build, training.model, data.num_classes, data.train.shape)


def _check_forgot_nothing(weights: Path) -> None:
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
