"""The order of forget and retain batches in an epoch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from duck.types import Augment, Batch, Examples

Step = Mapping[str, Batch]
"""The named batches of one training step."""


class Batches(Protocol):
    """The steps of an epoch, as `fit` consumes them."""

    def __len__(self) -> int:
        """Return the number of steps in an epoch."""

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        """Iterate over the steps of one epoch."""


def count_steps(examples: Examples, size: int) -> int:
    """Return the number of batches in one pass over the examples."""
    return -(-len(examples) // min(size, len(examples)))


def cycle_batches(
    examples: Examples, size: int, generator: torch.Generator, augment: Augment
) -> Iterator[Batch]:
    """Iterate over shuffled batches without end."""
    while True:
        yield from examples.batches(size, generator, augment)


@dataclass(frozen=True)
class ShuffledPass:
    """One shuffled pass over the examples, named `name`."""

    name: str
    examples: Examples
    size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return count_steps(self.examples, self.size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        for batch in self.examples.batches(self.size, generator, self.augment):
            yield {self.name: batch}


@dataclass(frozen=True)
class ConsecutivePasses:
    """In each epoch all steps of the first source, then all steps of the second."""

    first: Batches
    second: Batches

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        yield from self.first.epoch(generator)
        yield from self.second.epoch(generator)


@dataclass(frozen=True)
class NestedBatches:
    """Each forget batch for `ratio` steps with new retain batches (DUCK's high-forget epoch)."""

    forget: Examples
    retain: Examples
    size: int
    ratio: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return count_steps(self.forget, self.size) * self.ratio

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        retain = cycle_batches(self.retain, self.size, generator, self.augment)
        for forget in self.forget.batches(self.size, generator, self.augment):
            for _ in range(self.ratio):
                yield {"forget": forget, "retain": next(retain)}


@dataclass(frozen=True)
class JoinedBatches:
    """One pass over the retain set; each step also has a batch of the forget set, which repeats."""

    forget: Examples
    retain: Examples
    forget_size: int
    retain_size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        return count_steps(self.retain, self.retain_size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        forget = cycle_batches(self.forget, self.forget_size, generator, self.augment)
        for retain in self.retain.batches(self.retain_size, generator, self.augment):
            yield {"forget": next(forget), "retain": retain}


@dataclass(frozen=True)
class MixedBatches:
    """One shuffled pass over the forget and retain sets together, named `mixed`.

    Rows from len(forget) on belong to the retain set. The ids alone decide which samples share a
    batch, not the request, so that a preparation for one request can be reused for others.
    """

    forget: Examples
    retain: Examples
    size: int
    augment: Augment = "none"

    def __len__(self) -> int:
        total = len(self.forget) + len(self.retain)
        return -(-total // min(self.size, total))

    @cached_property
    def _rows_by_id(self) -> Tensor:
        ids = np.concatenate([self.forget.ids, self.retain.ids])
        return torch.from_numpy(np.argsort(ids, kind="stable"))

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        total = len(self._rows_by_id)
        size = min(self.size, total)
        order = self._rows_by_id[torch.randperm(total, generator=generator)]
        # A separate generator: how many numbers the augmentation draws depends on the request.
        seed = int(torch.randint(2**62, (), generator=generator))
        augment_generator = torch.Generator().manual_seed(seed)
        for rows in torch.cat([order, order[: -total % size]]).split(size):
            yield {"mixed": self._batch(rows, augment_generator)}

    def _batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        is_forget = rows < len(self.forget)
        start = len(self.forget)
        parts = []
        if is_forget.any():
            parts.append(self._part(self.forget, rows[is_forget], 0, generator))
        if not is_forget.all():
            parts.append(self._part(self.retain, rows[~is_forget] - start, start, generator))
        return Batch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def _part(
        self, examples: Examples, rows: Tensor, start: int, generator: torch.Generator
    ) -> Batch:
        chosen = examples.take(rows)
        batch = next(iter(chosen.batches(len(rows), generator, self.augment)))
        return batch._replace(rows=rows.to(batch.rows.device)[batch.rows] + start)
