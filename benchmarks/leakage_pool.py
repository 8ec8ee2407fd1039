"""The models of `leakage.py`: originals with half of the candidates, and what they become.

Models and outputs are artifacts in a folder, by a digest of all that they depend on. A second call
reads them and adds what is missing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from duck.artifacts import Artifact, ArtifactStore, Key
from duck.audits.scores import margins
from duck.errors import BadInput
from duck.experiment import Training, digest_of, fingerprint
from duck.methods.base import METHODS, Method
from duck.models import build
from duck.predict import accuracy, logits_on
from duck.runtime import Stopwatch, device_name, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.types import Data, Examples, Ids, Recipe, Scenario

Part = Literal["original", "retrained"]
Positions = npt.NDArray[np.intp]
"""Places among the candidates of a pool."""
Flags = npt.NDArray[np.bool_]
Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float16]]
"""Margins, scores and logits."""
T = TypeVar("T")
SHARE = 0.2
"""Candidates, as a share of the training samples; each model trains on half of them."""


@dataclass(frozen=True)
class Design:
    """Everything that the originals and the retrained models depend on."""

    training: Training
    removed_class: int | None
    """The class whose samples are the candidates. None: a random fifth of all samples."""
    device: str
    shares_originals: bool = False


@dataclass(frozen=True)
class ModelKey:
    """What one model depends on."""

    design: Design
    part: Part
    number: int


@dataclass(frozen=True)
class OutputsKey:
    """What the outputs of one model depend on."""

    model: ModelKey
    removed_class: int | None
    method: Method | None
    """None: the model as it was trained."""
    requests: tuple[tuple[int, ...], ...]
    """Positions of the candidates that a request names. A model forgets those that it saw."""


@dataclass(frozen=True)
class EagerKey:
    """What the time of one retraining without compilation depends on."""

    model: ModelKey
    recipe: Recipe


class Outputs(NamedTuple):
    """What is known of a model, or of one that unlearned several requests in turn."""

    margins: npt.NDArray[np.float32]
    """Of the candidates."""
    scores: npt.NDArray[np.float32]
    """What the attack reads: margins or, for a class, the logit of the largest probability among
    the other classes."""
    logits: npt.NDArray[np.float16]
    accuracy: float
    """On reported test samples, without those of a removed class."""
    holdout: float
    """Accuracy on the holdout, without the samples of a removed class."""
    seconds: float
    """Of the training or of one unlearning: CPU time on a CPU, which other processes do not
    change, and wall time elsewhere."""

    def take(self, columns: Positions) -> "Outputs":
        """Return the outputs of these candidates."""
        arrays = (self.margins[columns], self.scores[columns], self.logits[columns])
        return Outputs(*arrays, self.accuracy, self.holdout, self.seconds)


@dataclass(frozen=True, eq=False)
class Pool:
    """Originals that each saw one of every two candidates, and models that saw none of them."""

    data: Data
    model: str
    recipe: Recipe
    removed_class: int | None
    seed: int
    device: torch.device
    store: ArtifactStore
    shares_originals: bool = False
    """Whether the originals, and the candidates, are those of the pool without a removed class.
    A removed class is then forgotten with all of its samples, and the candidates of the class are
    watched."""
    stored_on: str = ""
    """Name of the device on which the outputs in the store were made. Nothing is trained then."""
    listed: tuple[str, ...] = ()
    """The ids of the candidates. Empty: they are drawn."""

    @cached_property
    def training(self) -> Training:
        """What all models have in common."""
        recipe = replace(self.recipe, compile=False)
        prints = fingerprint(self.data)
        if self.listed:
            prints = digest_of((prints, self.listed))
        return Training(self.data.name, self.model, recipe, self.seed, fingerprint=prints)

    @property
    def halved_class(self) -> int | None:
        """The class of which every original saw one half, if there is one."""
        return None if self.shares_originals else self.removed_class

    def design(self, part: Part) -> Design:
        """Return what the models of one part depend on."""
        device = self.stored_on or device_name(self.device)
        if part == "original":
            return Design(self.training, self.halved_class, device)
        return Design(self.training, self.removed_class, device, self.shares_originals)

    @cached_property
    def candidates(self) -> Tensor:
        """Rows of the training data in a random order; two consecutive ones are a pair."""
        generator = seeded(self.seed, "leakage", "candidates")
        if self.listed:
            rows = torch.from_numpy(np.isin(self.data.train.ids, self.listed)).nonzero().flatten()
            rows = rows[torch.randperm(len(rows), generator=generator)]
            return rows[: len(rows) - len(rows) % 2]
        if self.halved_class is None:
            rows = torch.randperm(len(self.data.train), generator=generator)
            count = int(SHARE * len(rows))
        else:
            rows = (self.data.train.labels == self.halved_class).nonzero().flatten()
            rows = rows[torch.randperm(len(rows), generator=generator)]
            count = len(rows)
        # The odd one of a class is left out of every model's data, or the class would remain.
        return rows[: count - count % 2]

    @cached_property
    def common(self) -> Tensor:
        """Rows that every original trains on."""
        is_common = torch.ones(len(self.data.train), dtype=torch.bool)
        is_common[self.candidates] = False
        if self.halved_class is not None:
            is_common &= self.data.train.labels != self.halved_class
        return is_common.nonzero().flatten()

    @cached_property
    def watched(self) -> Examples:
        """The candidates."""
        return self.data.train.take(self.candidates)

    @property
    def ids(self) -> Ids:
        return self.watched.ids

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return self.watched.labels.numpy()

    @cached_property
    def test(self) -> Examples:
        """The reported test samples, without those of a removed class."""
        assert self.data.test is not None
        return self._unseen(~torch.isin(torch.arange(len(self.data.test)), self.data.holdout))

    @cached_property
    def holdout(self) -> Examples:
        """The holdout, without samples of a removed class."""
        assert self.data.test is not None
        return self._unseen(torch.isin(torch.arange(len(self.data.test)), self.data.holdout))

    def _unseen(self, chosen: Tensor) -> Examples:
        assert self.data.test is not None
        if self.removed_class is not None:
            chosen = chosen & (self.data.test.labels != self.removed_class)
        return self.data.test.take(chosen.nonzero().flatten())

    def members(self, number: int, purpose: str = "halves") -> Flags:
        """Return which candidates an original saw: one of each pair, by its number alone.

        Two consecutive originals complement each other, and of consecutive pairs each saw half.
        """
        generator = seeded(self.seed, "leakage", purpose, str(number // 2))
        first = torch.randint(2, (len(self.candidates) // 2,), generator=generator).bool()
        members = torch.stack([first, ~first], 1).flatten().numpy()
        return ~members if number % 2 else members

    def trained_model(self, part: Part, number: int) -> nn.Module:
        """Return an original or a retrained model: the stored one, or a new one."""
        return self._load_or_train(part, number)[0]

    def is_trained(self, part: Part, number: int) -> bool:
        """Return whether a model and its outputs are stored."""
        keys = (self._outputs_key(part, number), self._model_key(part, number))
        return all(key in self.store for key in keys)

    def trained_outputs(self, part: Part, number: int) -> Outputs:
        """Return the outputs of an original or of a retrained model, which is trained for it."""

        def make() -> Artifact:
            model, seconds = self._load_or_train(part, number)
            arrays = self._observe(model, self.watched)
            return _to_artifact(Outputs(*arrays, *self.accuracies(model), seconds))

        return self.store.get_or_make(self._outputs_key(part, number), make, _from_artifact)

    def unlearned_outputs(
        self, number: int, method: Method, requests: Sequence[Positions]
    ) -> Outputs:
        """Return the outputs of an original after it unlearned each request, from its own weights.

        Each request has outputs of its own samples alone, in the order of the requests. Accuracy
        and seconds are means over the requests.
        """
        plain = tuple(tuple(map(int, request)) for request in requests)
        key_of_model = ModelKey(self.design("original"), "original", number)
        depends_on = OutputsKey(key_of_model, self.removed_class, method, plain)

        def make() -> Artifact:
            model = self.trained_model("original", number)
            found = [self._unlearn(model, number, method, request) for request in requests]
            arrays: Any = tuple(np.concatenate([one[place] for one in found]) for place in range(3))
            numbers = np.mean([(one.accuracy, one.holdout, one.seconds) for one in found], axis=0)
            return _to_artifact(Outputs(*arrays, *numbers.tolist()))

        key = Key.of("predictions", depends_on, self.model)
        return self.store.get_or_make(key, make, _from_artifact)

    def accuracies(self, model: nn.Module) -> tuple[float, float]:
        """Return the accuracies on the reported test samples and on the holdout."""
        return accuracy(model, self.test), accuracy(model, self.holdout)

    def scenario(self, number: int, request: Positions) -> Scenario:
        """Return what an original forgets: its candidates of a request, or the removed class."""
        rows = self._rows("original", number)
        if self.shares_originals and self.removed_class is not None:
            forget = rows[self.data.train.labels[rows] == self.removed_class]
        else:
            forget = self.candidates[request[self.members(number)[request]]]
        train = self.data.train
        training_data = replace(self.data, train=train.take(rows))
        ids = train.take(forget).ids.tolist()
        return ForgetSamples(ids)(training_data, self._seed("original", number))

    def unlearn(
        self, model: nn.Module, method: Method, scenario: Scenario
    ) -> tuple[nn.Module, float]:
        """Return the unlearned model and the seconds."""
        # For a few epochs compilation would cost more than it saves.
        compiled = self.recipe.compile and METHODS.name_of(method) == "retrained"
        recipe = replace(self.recipe, compile=compiled)
        task = scenario.task(new_model=self.new_model, recipe=recipe)
        return timed(self.device, lambda: method(model, task))

    def eager_seconds(self, number: int) -> float:
        """Return the seconds of retraining without compilation, as the methods run."""
        eager = replace(self.recipe, compile=False)
        model_key = ModelKey(self.design("retrained"), "retrained", number)
        key = Key.of("predictions", EagerKey(model_key, eager), self.model)

        def make() -> Artifact:
            _, seconds = self._train("retrained", number, eager)
            return Artifact({"none": torch.zeros(1)}, {"seconds": seconds})

        return self.store.get_or_make(key, make, lambda found: float(found.facts["seconds"]))

    def _unlearn(
        self, model: nn.Module, number: int, method: Method, request: Positions
    ) -> Outputs:
        unlearned, seconds = self.unlearn(model, method, self.scenario(number, request))
        arrays = self._observe(unlearned, self.watched.take(torch.from_numpy(request)))
        return Outputs(*arrays, *self.accuracies(unlearned), seconds)

    def _observe(self, model: nn.Module, examples: Examples) -> Arrays:
        """Return margins, scores and logits of a model."""
        logits = logits_on(model, examples).cpu().numpy()
        own = margins(logits, examples.labels.numpy())
        scores = own
        if self.removed_class is not None:
            others = np.delete(logits, self.removed_class, axis=1)
            scores = margins(others, others.argmax(1))
        return own.astype(np.float32), scores.astype(np.float32), logits.astype(np.float16)

    def _load_or_train(self, part: Part, number: int) -> tuple[nn.Module, float]:
        model, facts = self.store.get_or_train(
            self._model_key(part, number),
            self.new_model,
            lambda: _with_facts(*self._train(part, number)),
            dict,
            device=self.device,
        )
        return model, facts["seconds"]

    def _train(
        self, part: Part, number: int, recipe: Recipe | None = None
    ) -> tuple[nn.Module, float]:
        if self.stored_on:
            raise BadInput(
                f"There are no stored outputs of {part} {number} on {self.stored_on}: give "
                "--stored-on only for models that were made on another device, and --work the "
                "folder with their outputs."
            )
        seed = self._seed(part, number)
        model = self.new_model(seed).to(self.device)
        examples = self.data.train.take(self._rows(part, number))
        generator = seeded(seed, "train")
        chosen = recipe or self.recipe
        _, seconds = timed(self.device, lambda: loop.train(model, examples, chosen, generator))
        return model.eval(), seconds

    def _rows(self, part: Part, number: int) -> Tensor:
        """Return the rows that a model trains on."""
        if part == "retrained" and not self.shares_originals:
            return self.common
        # The retained part of what an original saw has candidates of other classes.
        purpose = "halves" if part == "original" else "halves of retrained models"
        members = torch.from_numpy(self.members(number, purpose))
        rows = torch.cat([self.common, self.candidates[members]]).sort().values
        if part == "retrained":
            rows = rows[self.data.train.labels[rows] != self.removed_class]
        return rows

    def _seed(self, part: Part, number: int) -> int:
        generator = seeded(self.seed, "leakage", part, str(number))
        return int(torch.randint(2**62, (), generator=generator))

    def new_model(self, seed: int | None = None) -> nn.Module:
        """Build a model with fresh weights."""
        return build(self.model, self.data.num_classes, self.data.train.shape, seed)

    def _model_key(self, part: Part, number: int) -> Key:
        return Key.of("originals", ModelKey(self.design(part), part, number), self.model)

    def _outputs_key(self, part: Part, number: int) -> Key:
        key_of_model = ModelKey(self.design(part), part, number)
        depends_on = OutputsKey(key_of_model, self.removed_class, None, ())
        return Key.of("predictions", depends_on, self.model)


def timed(device: torch.device, call: Callable[[], T]) -> tuple[T, float]:
    """Call a function and return its result and its seconds."""
    if device.type == "cpu":
        started_at = time.process_time()
        result = call()
        return result, time.process_time() - started_at
    with Stopwatch(device) as stopwatch:
        result = call()
    return result, stopwatch.seconds


def hardest(outputs: Sequence[Outputs], count: int) -> Positions:
    """Return the candidates with the highest mean loss in models that did not see them."""
    # The loss is log(1 + exp(-margin)).
    losses = np.mean([np.logaddexp(0, -one.margins.astype(np.float64)) for one in outputs], 0)
    return np.sort(np.argsort(-losses)[:count])


def groups(candidates: int, size: int, requests: int) -> list[Positions]:
    """Return requests of 2 x size candidates each, of which every original saw half."""
    if 2 * size > candidates:
        raise BadInput(f"--size {size} needs {2 * size} candidates, there are {candidates}.")
    count = min(requests, candidates // (2 * size))
    return [np.arange(2 * size * place, 2 * size * (place + 1)) for place in range(count)]


def _with_facts(model: nn.Module, seconds: float) -> tuple[nn.Module, dict[str, float]]:
    return model, {"seconds": seconds}


def _to_artifact(outputs: Outputs) -> Artifact:
    found = outputs._asdict()
    tensors = {name: torch.from_numpy(found.pop(name)) for name in ("margins", "scores", "logits")}
    return Artifact(tensors, found)


def _from_artifact(artifact: Artifact) -> Outputs:
    arrays: dict[str, Any] = {name: value.numpy() for name, value in artifact.tensors.items()}
    return Outputs(**arrays, **artifact.facts)
