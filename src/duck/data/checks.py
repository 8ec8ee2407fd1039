"""Checks of the data of a request: copies across splits, random augmentation, unscaled pixels."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from duck.data.images import evenly_spaced_rows
from duck.errors import BadInput
from duck.printable import listed
from duck.types import Examples, Scenario

MAX_TEST_COPIES = 0.05
"""Share of the test images that may be copies of training images. With more, test scores are not
those of unseen data. CIFAR-100 has 10 exact copies among its 10,000 test images, CIFAR-10 none."""
RANGE_SAMPLES = 256
"""Samples whose range of values is checked."""
LISTED_IDS = 20


@dataclass(frozen=True)
class Finding:
    """A problem of the data and the ids of its samples.

    Records contain only the text, because ids may be names of persons.
    """

    text: str
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.text} Ids: {listed(self.ids, LISTED_IDS)}." if self.ids else self.text


def check_data(scenario: Scenario) -> list[Finding]:
    """Return the problems of a scenario's data; raise BadInput if test scores would be wrong."""
    return [*_random_samples(scenario), *_unscaled_pixels(scenario.data.train), *_copies(scenario)]


def copies_in_retain(scenario: Scenario) -> Tensor:
    """Return the training rows of the retain set that are exact copies of forget samples.

    Data that change at random have none.
    """
    if scenario.data.train.random:
        return torch.empty(0, dtype=torch.int64)
    digests = scenario.data.train.digests
    forget = _forget_digests(scenario)
    rows = [row for row in scenario.retain.tolist() if digests[row] in forget]
    return torch.tensor(rows, dtype=torch.int64)


def _forget_digests(scenario: Scenario) -> set[bytes]:
    digests = scenario.data.train.digests
    return {digests[row] for row in scenario.forget.tolist()}


def _copies(scenario: Scenario) -> Iterator[Finding]:
    data = scenario.data
    if data.train.random:
        return
    if data.test is not None and not data.test.random:
        yield from _copies_in_test(scenario, data.test)
    retain = tuple(data.train.ids[copies_in_retain(scenario).numpy()].tolist())
    if retain:
        yield Finding(
            f"The retain set contains exact copies of forget samples ({len(retain)}), so the model "
            "still learns from them. Forget them too: --with-copies (with_copies=True in Python).",
            retain,
        )


def _copies_in_test(scenario: Scenario, test: Examples) -> Iterator[Finding]:
    forget_digests = _forget_digests(scenario)
    other_digests = set(scenario.data.train.digests) - forget_digests
    pairs = list(zip(test.ids.tolist(), test.digests, strict=True))
    forget = [name for name, digest in pairs if digest in forget_digests]
    others = [name for name, digest in pairs if digest in other_digests]
    known = [*forget, *others]
    # Equal vectors of a few features may well be different samples.
    is_image = len(test.shape) == 3
    if is_image and len(known) > MAX_TEST_COPIES * len(test):
        raise BadInput(
            f"{len(known)} of {len(test)} test samples are exact copies of training samples "
            f"({len(forget)} of forget samples, {len(others)} of others): {listed(known)}. Test "
            "scores and the stop rule need samples that the model never saw. Remove these from the "
            "test data."
        )
    for names, kind in ((forget, "forget samples"), (others, "other training samples")):
        if names:
            yield Finding(
                f"{len(names)} of {len(test)} test samples are exact copies of {kind}: scores on "
                "them are not those of unseen data.",
                tuple(names),
            )


def _random_samples(scenario: Scenario) -> Iterator[Finding]:
    parts = {"training": scenario.data.train, "test": scenario.data.test}
    names = [name for name, part in parts.items() if part is not None and part.random]
    if names:
        yield Finding(
            f"The {' and '.join(names)} samples change at random each time they are read: "
            "accuracies are those of one augmented draw, and copies were not searched. Give the "
            "data set without augmentation."
        )


def _unscaled_pixels(train: Examples) -> Iterator[Finding]:
    if len(train.shape) != 3 or train.pixels is not None:
        return
    rows = evenly_spaced_rows(len(train), RANGE_SAMPLES)
    images = torch.cat([batch.images for batch in train.take(rows).batches(RANGE_SAMPLES)])
    low, high = float(images.min()), float(images.max())
    # Normalised pixels have negative values; pixels in 0..1 and grey levels of few bits are small.
    if low >= 0 and 64 <= high <= 255:
        yield Finding(
            f"The images are floats from {low:g} to {high:g}, as if they were pixels in 0..255. If "
            "the model was trained on pixels in 0..1 or on normalised pixels, scale them in the "
            "same way, or give uint8 images with mean= and std= (--mean, --std)."
        )
