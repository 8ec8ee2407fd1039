"""What a model says of every sample that an audit looks at: asked once, in float32, and who is who among them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from duck.audits.scores import Outputs
from duck.errors import BadInput
from duck.predict import predict
from duck.runtime import device_of, seeded
from duck.types import Data, Examples, Ids, Predictions, Scenario

RETAINED = 5000
"""Retained samples that are asked about; embeddings of all would fill the memory."""
LOWEST = -1e4
"""In place of a logit of -inf, which a masked class has."""
Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class SplitOutputs:
    """Of one model over one split; rows aligned with ids."""

    logits: Array
    embeddings: Array
    labels: npt.NDArray[np.int64]
    ids: Ids

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        right: npt.NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return right

    def take(self, rows: Rows | slice = slice(None)) -> Outputs:
        """Return the logits of these rows, in the form that attacks take."""
        return Outputs(self.ids[rows], self.logits[rows], self.labels[rows])


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """One model: on all forget samples, on retained ones, and on all that no model of an audit was trained on."""

    forget: SplitOutputs
    retain: SplitOutputs
    unseen: SplitOutputs


@dataclass(frozen=True, eq=False)
class Setting:
    """Who is who among the observed rows. Rows are those of `unseen`."""

    kind: Literal["class", "samples"]
    num_classes: int
    classes: tuple[str, ...]
    asked: int
    """Forget samples."""
    forgotten: npt.NDArray[np.int64]
    """Classes that go; none where single samples go."""
    test: Rows
    forget_test: Rows
    retain_test: Rows
    members: Rows
    """Of the forget samples, those that have unseen samples of their class to be compared with."""
    matched: Rows
    """These, holdout included: of each class as large a share as among the members, else an attack would tell classes apart."""
    seed: int

    @property
    def kept(self) -> npt.NDArray[np.int64]:
        """Classes that stay."""
        return np.setdiff1d(np.arange(self.num_classes), self.forgotten)

    @property
    def reported(self) -> Rows:
        """The rows whose accuracy must not suffer."""
        return self.retain_test if self.kind == "class" else self.test


def make_setting(scenario: Scenario) -> Setting:
    """Who is who; an error where there is nobody to compare with."""
    data = scenario.data
    if data.test is None or not len(scenario.holdout) or not len(scenario.test):
        raise BadInput(
            "The holdout is empty: an audit compares forgotten samples with unseen ones. "
            "Give data that the model never saw (test= in Python, a test/ folder on the command line)."
        )
    if len(scenario.forget) < 2:
        raise BadInput(
            f"There is {len(scenario.forget)} forget sample: an audit compares groups and needs at least 2, better 100."
        )
    labels = data.train.labels[scenario.forget].numpy()
    members, matched = compared(labels, data.test.labels.numpy(), scenario.seed)
    if len(matched) < 2:
        raise BadInput(
            f"There are {len(matched)} unseen samples of the forgotten classes to compare with ({_shown(labels, data)}): an audit needs at "
            "least 2, better 100 of each. Give test data that have them."
        )
    return Setting(
        scenario.kind, data.num_classes, data.classes, len(scenario.forget),
        forgotten=np.unique(labels) if scenario.kind == "class" else np.empty(0, np.int64),
        test=scenario.test.numpy(), forget_test=scenario.forget_test.numpy(), retain_test=scenario.retain_test.numpy(),
        members=members, matched=matched, seed=scenario.seed,
    )  # fmt: skip


def _shown(labels: npt.NDArray[np.int64], data: Data) -> str:
    """A few of the classes, with the number of their unseen samples."""
    assert data.test is not None
    gone = np.unique(labels)
    counts = [
        f"{data.classes[label]}: {int((data.test.labels == int(label)).sum())}"
        for label in gone[:5]
    ]
    return ", ".join(counts) + (", ..." if len(gone) > 5 else "")


def compared(
    forget: npt.NDArray[np.int64], unseen: npt.NDArray[np.int64], seed: int
) -> tuple[Rows, Rows]:
    """Rows of both, by their labels: members, and as many unseen samples as there are with each class in the proportion of the members.

    The class with the fewest unseen samples for a member sets how many there are of all. Where that leaves less than half of what a
    comparison without such classes would rest on, they and their members are left out.
    """
    both, wanted = np.unique(forget[np.isin(forget, unseen)], return_counts=True)
    there = np.array([(unseen == label).sum() for label in both])
    ratios = there / wanted
    kept = max(
        (ratios >= least for least in np.unique(ratios)),
        key=lambda some: _size(wanted[some], ratios[some]),
        default=ratios > 0,
    )
    if _size(wanted[kept], ratios[kept]) < 2 * _size(wanted, ratios):
        kept = ratios > 0
    members = np.flatnonzero(np.isin(forget, both[kept]))
    counts = np.rint(wanted[kept] * min(ratios[kept], default=0)).astype(int)
    generator = seeded(seed, "audit", "matched")
    drawn = [np.flatnonzero(unseen == label) for label in both[kept]]
    some = [
        rows[torch.randperm(len(rows), generator=generator).numpy()[:count]]
        for rows, count in zip(drawn, counts, strict=True)
    ]
    return members, np.sort(np.concatenate([*some, np.empty(0, np.intp)]))


def _size(wanted: npt.NDArray[np.intp], ratios: Array) -> float:
    """Of a comparison: half the harmonic mean of both sides, to which the power of a rank test goes."""
    members = float(wanted.sum())
    others = members * float(min(ratios, default=0))
    return members * others / max(members + others, 1)


def observe(
    model: nn.Module, scenario: Scenario, head: str | None = None, name: str = "model"
) -> ModelOutputs:
    """Ask a model about everything; its name is for the error where it answers with no numbers."""
    data = scenario.data.to(device_of(model))
    assert data.test is not None
    some = (
        torch.randperm(len(scenario.retain), generator=seeded(scenario.seed, "audit", "retain"))[
            :RETAINED
        ]
        .sort()
        .values
    )
    parts = data.train.take(scenario.forget), data.train.take(scenario.retain[some]), data.test
    return ModelOutputs(*(_part(model, part, head, name) for part in parts))


def _part(model: nn.Module, examples: Examples, head: str | None, name: str) -> SplitOutputs:
    seen = predict(model, examples, head)
    for what, values in (("outputs", seen.logits), ("embeddings", seen.embeddings)):
        # An output of -inf hides a class; where all are, nothing is said.
        hidden = (values == -torch.inf) & (what == "outputs")
        wrong = (~torch.isfinite(values) & ~hidden).any(1) | hidden.all(1)
        if wrong.any():
            count = int(wrong.sum())
            raise BadInput(
                f"The {name} gives {what} that are no numbers (NaN or infinite) for {count} of {len(values)} samples: "
                "it has diverged, or its input is broken. There is nothing to audit."
            )
    return _arrays(seen)


def _arrays(seen: Predictions) -> SplitOutputs:
    logits, embeddings = (
        seen.logits.double().clamp(min=LOWEST).numpy(),
        seen.embeddings.double().numpy(),
    )
    return SplitOutputs(logits, embeddings, seen.labels.numpy(), np.asarray(seen.ids))


def renormalised(part: SplitOutputs, keep: npt.NDArray[Any]) -> Array:
    """Softmax over these classes alone: what a model says besides a forgotten class, whether it still names it or hides it."""
    logits = part.logits[:, keep]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares: Array = powers / powers.sum(1, keepdims=True)
    return shares
