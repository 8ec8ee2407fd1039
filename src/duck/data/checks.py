"""Checks of the data behind a request: copies across the splits, random augmentation, unscaled pixels."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from duck.data.images import spread
from duck.errors import BadInput
from duck.types import Examples, Scenario

MAX_TEST_COPIES = 0.05
"""Share of the test images that may be copies of training images; with more of them test scores are not those of unseen data.
CIFAR-100 has 10 exact copies among its 10,000 test images, CIFAR-10 has none."""
RANGE_SAMPLES = 256
"""Samples whose values are looked at."""
LISTED_IDS = 20


@dataclass(frozen=True)
class Finding:
    """What is wrong with the data, and the ids of the samples. A record keeps the text alone: ids may name persons."""

    text: str
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.text} Ids: {listed(self.ids, LISTED_IDS)}." if self.ids else self.text


def listed(names: tuple[str, ...] | list[str], most: int = 5) -> str:
    """Return the first names, quoted, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def check_data(scenario: Scenario) -> list[Finding]:
    """Return what to note about the data of a scenario. Raises BadInput where the test scores would be wrong."""
    return [*_random_samples(scenario), *_unscaled_pixels(scenario.data.train), *_copies(scenario)]


def copies_in_retain(scenario: Scenario) -> Tensor:
    """Return the training rows in the retain set whose pixels equal those of a forget sample; none of data that change at random."""
    if is_random(scenario.data.train):
        return torch.empty(0, dtype=torch.int64)
    return _Digests(scenario).copies_in_retain


class _Digests:
    """The digests of a scenario's samples, compared across the splits."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.train = scenario.data.train.digests

    @cached_property
    def forget(self) -> set[bytes]:
        return {self.train[row] for row in self.scenario.forget.tolist()}

    @cached_property
    def copies_in_retain(self) -> Tensor:
        rows = [row for row in self.scenario.retain.tolist() if self.train[row] in self.forget]
        return torch.tensor(rows, dtype=torch.int64)

    def in_test(self, test: Examples) -> tuple[list[str], list[str]]:
        """Return the ids of test samples that equal a forget sample, and of those that equal another training sample."""
        names, train = test.ids.tolist(), set(self.train)
        known = [
            (name, digest)
            for name, digest in zip(names, test.digests, strict=True)
            if digest in train
        ]
        forget = [name for name, digest in known if digest in self.forget]
        return forget, [name for name, digest in known if digest not in self.forget]


def _copies(scenario: Scenario) -> list[Finding]:
    data = scenario.data
    if is_random(data.train):
        return []
    digests, found = _Digests(scenario), []
    if data.test is not None and not is_random(data.test):
        found = _copies_in_test(*digests.in_test(data.test), data.test)
    retain = tuple(data.train.ids[digests.copies_in_retain.numpy()].tolist())
    if retain:
        text = (
            f"The retain set holds exact copies of forget samples ({len(retain)}): the model keeps what they show. "
            "Forget them too: --with-copies (with_copies=True in Python)."
        )
        found.append(Finding(text, retain))
    return found


def _copies_in_test(forget: list[str], others: list[str], test: Examples) -> list[Finding]:
    # Equal vectors of a few features may well be different samples.
    is_image, known = len(test.shape) == 3, [*forget, *others]
    if is_image and len(known) > MAX_TEST_COPIES * len(test):
        raise BadInput(
            f"{len(known)} of {len(test)} test samples are training samples, exact copies ({len(forget)} of forget samples, "
            f"{len(others)} of others): {listed(known)}. Test scores and the stop rule need samples that the model never saw. "
            "Remove these from the test data."
        )
    found = []
    for names, kind in ((forget, "forget samples"), (others, "also training samples")):
        if names:
            text = f"{len(names)} of {len(test)} test samples are {kind}, exact copies: scores on them are not those of unseen data."
            found.append(Finding(text, tuple(names)))
    return found


def _random_samples(scenario: Scenario) -> list[Finding]:
    parts = {"training": scenario.data.train, "test": scenario.data.test}
    names = [name for name, part in parts.items() if part is not None and is_random(part)]
    if not names:
        return []
    text = (
        f"The {' and '.join(names)} samples change at random each time they are read: accuracies are those of one augmented draw, and "
        "copies were not looked for. Give the data set without augmentation."
    )
    return [Finding(text)]


def is_random(examples: Examples) -> bool:
    """Return whether samples change each time they are read."""
    return bool(getattr(examples, "random", False))


def _unscaled_pixels(train: Examples) -> list[Finding]:
    if len(train.shape) != 3 or getattr(train, "pixels", None) is not None:
        return []
    rows = spread(len(train), RANGE_SAMPLES)
    images = torch.cat([batch.images for batch in train.take(rows).batches(RANGE_SAMPLES)])
    low, high = float(images.min()), float(images.max())
    # Normalised pixels have negative values, pixels in 0..1 and grey levels of few bits small ones.
    if low < 0 or not 64 <= high <= 255:
        return []
    text = (
        f"The images are floats from {low:g} to {high:g}, taken as they are: pixels of 0 to 255? If the model was trained on pixels in "
        "0..1 or normalised ones, scale them in the same way, or give uint8 images with mean= and std= (--mean, --std)."
    )
    return [Finding(text)]
