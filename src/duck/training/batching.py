"""The order of forget and retain batches: passes, one pass after another, DUCK's nesting, a pass joined by a cycle, one mixed stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from duck.types import Augment, Batch, Examples

Step = Mapping[str, Batch]


class Batches(Protocol):
    """What `fit` consumes: the named batches of each step of an epoch."""

    def __len__(self) -> int:
        """Steps in an epoch."""

    def epoch(self, generator: torch.Generator) -> Iterator[Step]: ...


def steps(examples: Examples, size: int) -> int:
    return -(-len(examples) // min(size, len(examples)))


def endless(
    examples: Examples, size: int, generator: torch.Generator, augment: Augment
) -> Iterator[Batch]:
    while True:
        yield from examples.batches(size, generator, augment)


@dataclass(frozen=True)
class Passes:
    """One shuffled pass over the examples, named `name`."""

    name: str
    examples: Examples
    size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return steps(self.examples, self.size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        for batch in self.examples.batches(self.size, generator, self.augment):
            yield {self.name: batch}


@dataclass(frozen=True)
class InTurn:
    """In each epoch all steps of the first, then all steps of the second."""

    first: Batches
    second: Batches

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        yield from self.first.epoch(generator)
        yield from self.second.epoch(generator)


@dataclass(frozen=True)
class Nested:
    """Each forget batch for `ratio` steps, each step with a fresh retain batch (DUCK's high-forget epoch)."""

    forget: Examples
    retain: Examples
    size: int
    ratio: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return steps(self.forget, self.size) * self.ratio

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        retain = endless(self.retain, self.size, generator, self.augment)
        for forget in self.forget.batches(self.size, generator, self.augment):
            for _ in range(self.ratio):
                yield {"forget": forget, "retain": next(retain)}


@dataclass(frozen=True)
class Joined:
    """One pass over retain; each step is joined by forget samples that cycle through all of them."""

    forget: Examples
    retain: Examples
    forget_size: int
    retain_size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return steps(self.retain, self.retain_size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        forget = endless(self.forget, self.forget_size, generator, self.augment)
        for retain in self.retain.batches(self.retain_size, generator, self.augment):
            yield {"forget": next(forget), "retain": retain}


@dataclass(frozen=True)
class Mixed:
    """One shuffled pass over forget and retain together, named `mixed`; rows from len(forget) on are those of retain.

    Which samples share a batch depends on the ids alone, not on who is to be forgotten: what is prepared for one request serves others.
    """

    forget: Examples
    retain: Examples
    size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        total = len(self.forget) + len(self.retain)
        return -(-total // min(self.size, total))

    @cached_property
    def _by_id(self) -> Tensor:
        return torch.from_numpy(
            np.argsort(np.concatenate([self.forget.ids, self.retain.ids]), kind="stable")
        )

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        total = len(self._by_id)
        order, size = self._by_id[torch.randperm(total, generator=generator)], min(self.size, total)
        # Of its own: how much is drawn from it depends on the request.
        inner = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for rows in torch.cat([order, order[: -total % size]]).split(size):
            forget = rows < len(self.forget)
            halves = (
                (self.forget, rows[forget], 0),
                (self.retain, rows[~forget] - len(self.forget), len(self.forget)),
            )
            parts = [
                self._batch(examples, chosen, start, inner)
                for examples, chosen, start in halves
                if len(chosen)
            ]
            yield {"mixed": Batch(*(torch.cat(part) for part in zip(*parts, strict=True)))}

    def _batch(
        self, examples: Examples, rows: Tensor, start: int, generator: torch.Generator
    ) -> Batch:
        images, labels, places = next(
            iter(examples.take(rows).batches(len(rows), generator, self.augment))
        )
        return Batch(images, labels, rows.to(places.device)[places] + start)
