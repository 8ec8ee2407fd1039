"""DUCK: Distance-based Unlearning via Centroid Kinematics (Cotogni et al. 2023)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, one_hot

from duck.errors import BadInput
from duck.methods._stopping import Enough, RankReached, Stop, snapshot, stop_rule
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import PROBES, WithEmbedding, embedded
from duck.runtime import autocast, evaluating, seeded
from duck.training.batching import Batches, Joined, Nested, Step
from duck.training.loop import Loss, fit
from duck.types import Augment, Examples, Recipe, Task

ROUNDS = 8
"""Most trainings on few samples, each with another rate than the one before."""
FIRST_RATE = 1 / 100
"""Factor on the rate for few samples in the first round."""
RATE_FACTOR = 3.0
"""Factor by which the rate rises after rounds that ended too early, until one overshot, and falls after rounds that overshot."""


@METHODS.register("duck")
@dataclass(frozen=True)
class Duck:
    """Pull each forget sample's embedding to the nearest centroid of a wrong class, and keep the retain accuracy (eq. 1-5)."""

    paper: ClassVar[str] = "Cotogni 2023, arXiv:2312.02052"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"

    lambda_forget: float = 1.5
    """Weight of the forget loss."""
    lambda_retain: float = 1.5
    """Weight of the retain loss."""
    batch_ratio: int = 5
    """Steps with each forget batch, each with a fresh retain batch."""
    many_classes: int = 50
    """From so many removed classes on, one step with each forget batch."""
    lr: float = 1e-3
    weight_decay: float = 5e-4
    batch_size: int = 1024
    temperature: float = 2.0
    """Of the softmax in the retain loss."""
    max_epochs: int = 10
    """Of the high-forget phase, if the stop rule does not end it."""
    stop: Stop = "auto"
    """accuracy: forget accuracy below its target; loss: forget loss as high as on unseen samples of the same classes, below 200 samples
    for each of them; auto: loss below 200 forget samples of classes that stay, else accuracy."""
    tolerance: float = 0.01
    """Target of the forget accuracy where whole classes go."""
    check_every: int = 0
    """Steps between two looks at the stop rule; 0: once an epoch."""
    low_epochs: int = 2
    """Of the low-forget phase."""
    low_forget: float = 0.1
    """Factor on the forget weight in the low-forget phase."""
    low_lr: float = 0.1
    """Factor on the learning rate in the low-forget phase."""
    low_batch: int = 512
    """Most forget samples in a step of the low-forget phase."""
    target_class: int | None = None
    """Send every forget sample to this class's centroid instead of the nearest."""
    augment: Augment = "none"
    joint_forward: bool = True
    """One forward pass with forget and retain samples together. False: two passes in the high-forget phase, as in the authors' code."""
    label_smoothing: float = 0.0
    """Of the retain loss; the authors' code has 0.2 on Tiny-ImageNet."""
    forget_loss: bool = True
    """Ablation: False leaves the forget loss out."""
    retain_loss: bool = True
    """Ablation: False leaves the retain loss out."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "duck")
        high = replace(
            task.recipe, optimizer="adam", lr=self.lr, weight_decay=self.weight_decay, schedule="constant",
            epochs=self.max_epochs, batch_size=self.batch_size, augment=self.augment,
        )  # fmt: skip
        low = replace(high, epochs=self.low_epochs, lr=self.lr * self.low_lr, schedule="cosine")
        with embedded(unlearned, task.head, next(task.retain.batches(PROBES)).images) as net:
            targets = self._targets(net, task)
            stop = stop_rule(
                unlearned,
                task,
                self.stop,
                self.tolerance,
                mislabelled=self.target_class is not None,
            )
            nested = Nested(
                task.forget, task.retain, self.batch_size, self._ratio(task), self.augment
            )
            if isinstance(stop, RankReached):
                self._forget_few(net, nested, targets, stop, high, task, generator)
                return unlearned
            fit(
                net, nested, self._loss(targets, 1.0, joint=self.joint_forward), high, generator,
                phase="high-forget", stop=stop, check_every=self.check_every, report=task.report, steady=True,
            )  # fmt: skip
            stop.tell(task, self.max_epochs)
            if self.low_epochs:
                joined = Joined(
                    task.forget, task.retain, self.low_batch, self.batch_size, self.augment
                )
                self._repair(net, joined, targets, stop, low, task, generator)
        return unlearned

    def _forget_few(
        self,
        net: WithEmbedding,
        batches: Batches,
        targets: Tensor,
        stop: RankReached,
        high: Recipe,
        task: Task,
        generator: torch.Generator,
    ) -> None:
        """Pull few samples until their losses rank as wanted, with a rate that does not overshoot; no low-forget phase follows."""
        # Every step of Adam moves each weight by about the rate, however small the gradient of a few samples is.
        rates, loss = (
            FewSampleRates(self.lr * FIRST_RATE),
            self._loss(targets, 1.0, stop.active, self.joint_forward),
        )
        for _ in range(ROUNDS):
            fit(
                net, batches, loss, replace(high, lr=rates.lr), generator,
                phase="high-forget", stop=stop, check_every=1, report=task.report, steady=True,
            )  # fmt: skip
            if stop.met:
                return
            rates.after_round(stop.overshot)
        task.note(
            "Some forget samples are not as hard as the stop rule asks for: "
            f"after {ROUNDS} rounds of at most {self.max_epochs} epochs the stop rule was not met."
        )

    def _repair(
        self,
        net: WithEmbedding,
        batches: Batches,
        targets: Tensor,
        stop: Enough,
        low: Recipe,
        task: Task,
        generator: torch.Generator,
    ) -> None:
        """The low-forget phase. Where it undoes the forgetting, it is repeated with a larger forget weight, and in the end left out."""
        before, met = snapshot(net), stop.met
        for weight in dict.fromkeys((self.low_forget, 3 * self.low_forget, 1.0)):
            fit(
                net,
                batches,
                self._loss(targets, weight),
                low,
                generator,
                phase="low-forget",
                report=task.report,
                steady=True,
            )
            if not met or stop():
                return
            net.load_state_dict(before)
        stop.met = True
        task.note(
            "The low-forget phase was left out: it undid what the high-forget phase had forgotten."
        )

    def _ratio(self, task: Task) -> int:
        labels = task.forget.labels.unique()
        removed = int((~torch.isin(labels, task.retain.labels)).sum())
        return 1 if removed >= self.many_classes else self.batch_ratio

    def _loss(
        self, targets: Tensor, scale: float, active: Tensor | None = None, joint: bool = True
    ) -> Loss:
        """Eq. 3 to 5. In a joint forward pass BatchNorm sees forget and retain samples together.

        active   by row, 1 for forget samples that are pulled and 0 for others; all are pulled where it is not given
        """
        weight_forget = self.lambda_forget * scale * self.forget_loss
        weight_retain = self.lambda_retain * self.retain_loss

        def loss(net: nn.Module, step: Step) -> Tensor:
            forget, retain = step["forget"], step["retain"]
            if joint:
                logits, embeddings = net(torch.cat([forget.images, retain.images]))
                count = len(forget.labels)
                logits, embeddings = logits[count:], embeddings[:count]
            else:
                embeddings, logits = net(forget.images)[1], net(retain.images)[0]
            pull = 1 - cosine_similarity(embeddings.float(), targets[forget.rows])
            keep = cross_entropy(
                logits.float() / self.temperature,
                retain.labels,
                label_smoothing=self.label_smoothing,
            )
            if active is None:
                return weight_forget * pull.mean() + weight_retain * keep
            chosen = active[forget.rows]
            return (
                weight_forget * (pull * chosen).sum() / chosen.sum().clamp(min=1)
                + weight_retain * keep
            )

        return loss

    def _targets(self, net: WithEmbedding, task: Task) -> Tensor:
        """The centroid each forget sample is pulled to, by its row (eq. 1 and 2)."""
        centroids, present = class_centroids(net, task.retain, task.num_classes, task.recipe)
        if self.target_class is not None:
            if not 0 <= self.target_class < task.num_classes or not present[self.target_class]:
                raise BadInput(
                    f"target_class {self.target_class} has no retain samples to make a centroid of."
                )
            return centroids[self.target_class].expand(len(task.forget), -1)
        others = present.sum() - present[task.forget.labels.unique().to(present.device)].long()
        if (others < 1).any():
            raise BadInput(
                "Some forget samples have no other class to go to: retain samples of at least two classes are needed."
            )
        nearest = torch.empty(len(task.forget), dtype=torch.int64, device=centroids.device)
        directions = normalize(centroids)
        with evaluating(net), autocast(task.recipe.precision, task.forget.device):
            for batch in task.forget.batches(1000):
                embeddings = net(batch.images)[1].float()
                with torch.autocast(task.forget.device.type, enabled=False):
                    closeness = normalize(embeddings) @ directions.T
                closeness[:, ~present] = -torch.inf
                closeness[torch.arange(len(batch.rows)), batch.labels] = -torch.inf
                nearest[batch.rows] = closeness.argmax(1)
        return centroids[nearest]


class FewSampleRates:
    """The rates of the rounds on few samples. Which one suits depends on the data and the net."""

    def __init__(self, lr: float) -> None:
        self.lr, self.rising = lr, True

    def after_round(self, overshot: bool) -> float:
        """Raise the rate after a round that did not suffice, until one went too far; from then on it only falls."""
        self.rising = self.rising and not overshot
        if overshot:
            self.lr /= RATE_FACTOR
        elif self.rising:
            self.lr *= RATE_FACTOR
        return self.lr


def class_centroids(
    net: WithEmbedding, examples: Examples, num_classes: int, recipe: Recipe
) -> tuple[Tensor, Tensor]:
    """Mean embedding of each class, row = class id; and which classes have one (eq. 1)."""
    sums, counts = (
        torch.zeros((), device=examples.device),
        torch.zeros(num_classes, device=examples.device),
    )
    with evaluating(net), autocast(recipe.precision, examples.device):
        for batch in examples.batches(1000):
            member = one_hot(batch.labels, num_classes).float()
            embeddings = net(batch.images)[1].float()
            with torch.autocast(examples.device.type, enabled=False):
                sums = sums + (member.T @ embeddings).double()
            counts += member.sum(0)
    return sums.float() / counts.clamp(min=1).unsqueeze(1), counts > 0
