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
from duck.experiment import Training, fingerprint
from duck.methods.base import METHODS, Method
from duck.models import build
from duck.predict import accuracy, logits_on
from duck.runtime import Stopwatch, device_name, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.types import Data, Examples, Ids, Recipe

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
    method: Method | None
    """None: the model as it was trained."""
    requests: tuple[tuple[int, ...], ...]
    """Positions of the candidates that a request names. A model forgets those that it saw."""


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
    seconds: float
    """Of the training or of one unlearning: CPU time on a CPU, which other processes do not
    change, and wall time elsewhere."""

    def take(self, columns: Positions) -> "Outputs":
        """Return the outputs of these candidates."""
        arrays = (self.margins[columns], self.scores[columns], self.logits[columns])
        return Outputs(*arrays, self.accuracy, self.seconds)


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

    @cached_property
    def design(self) -> Design:
        recipe = replace(self.recipe, compile=False)
        prints = fingerprint(self.data)
        training = Training(self.data.name, self.model, recipe, self.seed, fingerprint=prints)
        return Design(training, self.removed_class, device_name(self.device))

    @cached_property
    def candidates(self) -> Tensor:
        """Rows of the training data in a random order; two consecutive ones are a pair."""
        generator = seeded(self.seed, "leakage", "candidates")
        if self.removed_class is None:
            rows = torch.randperm(len(self.data.train), generator=generator)
            count = int(SHARE * len(rows))
        else:
            rows = (self.data.train.labels == self.removed_class).nonzero().flatten()
            rows = rows[torch.randperm(len(rows), generator=generator)]
            count = len(rows)
        # The odd one of a class is left out of every model's data, or the class would remain.
        return rows[: count - count % 2]

    @cached_property
    def common(self) -> Tensor:
        """Rows that every model trains on."""
        is_common = torch.ones(len(self.data.train), dtype=torch.bool)
        is_common[self.candidates] = False
        if self.removed_class is not None:
            is_common &= self.data.train.labels != self.removed_class
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
        is_reported = torch.ones(len(self.data.test), dtype=torch.bool)
        is_reported[self.data.holdout] = False
        if self.removed_class is not None:
            is_reported &= self.data.test.labels != self.removed_class
        return self.data.test.take(is_reported.nonzero().flatten())

    def members(self, number: int, purpose: str = "halves") -> Flags:
        """Return which candidates an original saw: one of each pair, by its number alone.

        Two consecutive originals complement each other, and of consecutive pairs each saw half.
        """
        generator = seeded(self.seed, "leakage", purpose, str(number // 2))
        first = torch.randint(2, (len(self.candidates) // 2,), generator=generator).bool()
        members = torch.stack([first, ~first], 1).flatten().numpy()
        return ~members if number % 2 else members

    def original(self, number: int) -> nn.Module:
        """Return an original: the stored one, or a new one."""
        return self._load_or_train("original", number)[0]

    def is_trained(self, part: Part, number: int) -> bool:
        """Return whether a model and its outputs are stored."""
        outputs = self._outputs_key(part, number) in self.store
        return outputs and (part == "retrained" or self._model_key(part, number) in self.store)

    def trained_outputs(self, part: Part, number: int) -> Outputs:
        """Return the outputs of an original or of a retrained model, which is trained for it."""

        def make() -> Artifact:
            model, seconds = self._load_or_train(part, number)
            return _to_artifact(self._observe(model, self.watched), self.accuracy(model), seconds)

        return self.store.get_or_make(self._outputs_key(part, number), make, _from_artifact)

    def unlearned_outputs(
        self, number: int, method: Method, requests: Sequence[Positions]
    ) -> Outputs:
        """Return the outputs of an original after it unlearned each request, from its own weights.

        Each request has outputs of its own samples alone, in the order of the requests. Accuracy
        and seconds are means over the requests.
        """
        plain = tuple(tuple(map(int, request)) for request in requests)
        depends_on = OutputsKey(ModelKey(self.design, "original", number), method, plain)

        def make() -> Artifact:
            model = self.original(number)
            found = [self._unlearn(model, number, method, request) for request in requests]
            arrays = tuple(np.concatenate([one[place] for one in found]) for place in range(3))
            accuracies = float(np.mean([one.accuracy for one in found]))
            return _to_artifact(arrays, accuracies, float(np.mean([one.seconds for one in found])))

        key = Key.of("predictions", depends_on, self.model)
        return self.store.get_or_make(key, make, _from_artifact)

    def accuracy(self, model: nn.Module) -> float:
        """Return the accuracy on the reported test samples."""
        return accuracy(model, self.test)

    def _unlearn(
        self, model: nn.Module, number: int, method: Method, request: Positions
    ) -> Outputs:
        members = self.members(number)
        forget = self.candidates[request[members[request]]]
        train = self.data.train
        training_data = replace(self.data, train=train.take(self._rows("original", number)))
        scenario = ForgetSamples(train.take(forget).ids.tolist())(
            training_data, self._seed("original", number)
        )
        # For a few epochs compilation would cost more than it saves.
        compiled = self.recipe.compile and METHODS.name_of(method) == "retrained"
        recipe = replace(self.recipe, compile=compiled)
        task = scenario.task(new_model=self._new_model, recipe=recipe)
        unlearned, seconds = timed(self.device, lambda: method(model, task))
        arrays = self._observe(unlearned, self.watched.take(torch.from_numpy(request)))
        return Outputs(*arrays, self.accuracy(unlearned), seconds)

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
        if part == "retrained":  # Its outputs are enough.
            return self._train(part, number)
        model, facts = self.store.get_or_train(
            self._model_key(part, number),
            self._new_model,
            lambda: _with_facts(*self._train(part, number)),
            dict,
            device=self.device,
        )
        return model, facts["seconds"]

    def _train(self, part: Part, number: int) -> tuple[nn.Module, float]:
        seed = self._seed(part, number)
        model = self._new_model(seed).to(self.device)
        examples = self.data.train.take(self._rows(part, number))
        generator = seeded(seed, "train")
        _, seconds = timed(self.device, lambda: loop.train(model, examples, self.recipe, generator))
        return model.eval(), seconds

    def _rows(self, part: Part, number: int) -> Tensor:
        if part == "retrained":
            return self.common
        members = torch.from_numpy(self.members(number))
        return torch.cat([self.common, self.candidates[members]]).sort().values

    def _seed(self, part: Part, number: int) -> int:
        generator = seeded(self.seed, "leakage", part, str(number))
        return int(torch.randint(2**62, (), generator=generator))

    def _new_model(self, seed: int | None = None) -> nn.Module:
        return build(self.model, self.data.num_classes, self.data.train.shape, seed)

    def _model_key(self, part: Part, number: int) -> Key:
        return Key.of("originals", ModelKey(self.design, part, number), self.model)

    def _outputs_key(self, part: Part, number: int) -> Key:
        depends_on = OutputsKey(ModelKey(self.design, part, number), None, ())
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


def _to_artifact(arrays: Sequence[npt.NDArray[Any]], accuracy: float, seconds: float) -> Artifact:
    tensors = {
        name: torch.from_numpy(array)
        for name, array in zip(("margins", "scores", "logits"), arrays, strict=True)
    }
    return Artifact(tensors, {"accuracy": accuracy, "seconds": seconds})


def _from_artifact(artifact: Artifact) -> Outputs:
    tensors = artifact.tensors
    return Outputs(
        tensors["margins"].numpy(),
        tensors["scores"].numpy(),
        tensors["logits"].numpy(),
        artifact.facts["accuracy"],
        artifact.facts["seconds"],
    )
