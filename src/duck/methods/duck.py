"""DUCK: Distance-based Unlearning via Centroid Kinematics (Cotogni et al. 2023)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, one_hot

from duck.errors import BadInput
from duck.methods._relabelling import check_other_class
from duck.methods._stopping import RankStopRule, Stop, StopRule, make_stop_rule, snapshot
from duck.methods._training import fit_task, method_recipe
from duck.methods.base import METHODS, BaseMethod, clone
from duck.models.head import PROBE_IMAGES, WithEmbedding, with_embeddings
from duck.runtime import autocast, evaluating, seeded
from duck.training.batching import Batches, JoinedBatches, NestedBatches, Step
from duck.training.loop import Loss
from duck.types import Augment, Batch, Examples, Recipe, Task

MAX_ROUNDS = 8
"""Rounds of training on few samples, at most. Each has another learning rate."""
FIRST_RATE_FACTOR = 1 / 100
"""Factor on the learning rate for few samples in the first round."""
RATE_FACTOR = 3.0
"""Factor by which the learning rate rises or falls from one round to the next."""


@METHODS.register("duck")
@dataclass(frozen=True)
class Duck(BaseMethod):
    """Pull the embedding of each forget sample to the nearest centroid of a wrong class (eq. 1-5).

    A loss on retain samples preserves the accuracy.
    """

    paper: ClassVar[str] = "Cotogni 2023, arXiv:2312.02052"

    lambda_forget: float = 1.5
    """Weight of the forget loss."""
    lambda_retain: float = 1.5
    """Weight of the retain loss."""
    batch_ratio: int = 5
    """Steps with each forget batch, each with a fresh retain batch."""
    many_classes: int = 50
    """If at least this many classes are forgotten, one step with each forget batch."""
    lr: float = 1e-3
    weight_decay: float = 5e-4
    batch_size: int = 1024
    temperature: float = 2.0
    """Temperature of the softmax in the retain loss."""
    max_epochs: int = 10
    """Epochs of the high-forget phase if the stop rule is never met."""
    stop: Stop = "auto"
    """accuracy: the forget accuracy falls below its target; loss: the forget loss reaches that of
    unseen samples of the same classes, sample by sample below 200 samples; distribution: the losses
    of single forget samples are no longer lower than those of unseen samples of the same classes
    (AUC 0.5), sample by sample below 20 samples; auto: loss for fewer than 200 forget samples of
    classes that remain, else accuracy."""
    tolerance: float = 0.01
    """Target of the forget accuracy if whole classes are forgotten."""
    check_every: int = 0
    """Steps between two checks of the stop rule; 0: once an epoch."""
    low_epochs: int = 2
    """Epochs of the low-forget phase."""
    low_forget: float = 0.1
    """Factor on the forget weight in the low-forget phase."""
    low_lr: float = 0.1
    """Factor on the learning rate in the low-forget phase."""
    low_batch: int = 512
    """Forget samples in a step of the low-forget phase, at most."""
    target_class: int | None = None
    """Pull every forget sample to the centroid of this class instead of the nearest."""
    augment: Augment = "none"
    joint_forward: bool = True
    """One forward pass for forget and retain samples. False: two passes in the high-forget phase,
    as in the authors' code."""
    label_smoothing: float = 0.0
    """Label smoothing of the retain loss; the authors' code uses 0.2 on Tiny-ImageNet."""
    forget_loss: bool = True
    """Ablation: False removes the forget loss."""
    retain_loss: bool = True
    """Ablation: False removes the retain loss."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned = clone(model)
        probe = next(task.retain.batches(PROBE_IMAGES)).images
        with with_embeddings(unlearned, task.head, probe) as net:
            training = _Training(self, net, self._targets(net, task), task)
            mislabelled = self.target_class is not None
            stop = make_stop_rule(unlearned, task, self.stop, self.tolerance, mislabelled)
            if isinstance(stop, RankStopRule):
                training.forget_few(stop)
            else:
                training.high_forget(stop)
                if self.low_epochs:
                    training.low_forget(stop)
        return unlearned

    def steps_per_forget_batch(self, task: Task) -> int:
        """Return `batch_ratio`, or 1 if many classes are forgotten."""
        labels = task.forget.labels.unique()
        forgotten_classes = int((~torch.isin(labels, task.retain.labels)).sum())
        return 1 if forgotten_classes >= self.many_classes else self.batch_ratio

    def loss(
        self, targets: Tensor, scale: float = 1.0, active: Tensor | None = None, joint: bool = True
    ) -> Loss:
        """Return the loss of eq. 3 to 5.

        targets  by row, the centroid that a forget sample is pulled to
        scale    factor on the weight of the forget loss
        active   by row, 1 for forget samples that are pulled and 0 for others; None: all are
        joint    one forward pass: BatchNorm normalises forget and retain samples together
        """
        forget_weight = self.lambda_forget * scale * self.forget_loss
        retain_weight = self.lambda_retain * self.retain_loss

        def compute(net: nn.Module, step: Step) -> Tensor:
            forget, retain = step["forget"], step["retain"]
            outputs = _outputs(net, forget.images, retain.images, joint)
            losses = self.forget_losses(outputs, targets[forget.rows])
            softened = outputs.retain_logits.float() / self.temperature
            smoothing = self.label_smoothing
            retain_loss = cross_entropy(softened, retain.labels, label_smoothing=smoothing)
            if active is None:
                return forget_weight * losses.mean() + retain_weight * retain_loss
            chosen = active[forget.rows]
            # In this order: dividing before weighting would round differently.
            forget_term = forget_weight * (losses * chosen).sum() / chosen.sum().clamp(min=1)
            return forget_term + retain_weight * retain_loss

        return compute

    def forget_losses(self, outputs: "StepOutputs", targets: Tensor) -> Tensor:
        """Return the cosine distance of each forget sample to its target (eq. 3)."""
        return 1 - cosine_similarity(outputs.embeddings.float(), targets)

    def _targets(self, net: WithEmbedding, task: Task) -> Tensor:
        """Return the centroid that each forget sample is pulled to, by row (eq. 1 and 2)."""
        centroids, present = class_centroids(net, task.retain, task.num_classes, task.recipe)
        if self.target_class is not None:
            if not 0 <= self.target_class < task.num_classes or not present[self.target_class]:
                raise BadInput(
                    f"target_class {self.target_class} has no retain samples, so no centroid."
                )
            return centroids[self.target_class].expand(len(task.forget), -1)
        labels = task.forget.labels.unique().to(present.device)
        check_other_class(present.sum() - present[labels].long() >= 1)
        nearest = torch.empty(len(task.forget), dtype=torch.int64, device=centroids.device)
        for batch, closeness in closeness_to(net, centroids, task.forget, task.recipe):
            closeness[:, ~present] = -torch.inf
            closeness[torch.arange(len(batch.rows)), batch.labels] = -torch.inf
            nearest[batch.rows] = closeness.argmax(1)
        return centroids[nearest]


@dataclass(eq=False)
class _Training:
    """The phases of DUCK on one task."""

    method: Duck
    net: WithEmbedding
    targets: Tensor
    task: Task

    def __post_init__(self) -> None:
        epochs = self.method.max_epochs
        self.generator = seeded(self.task.seed, "duck")
        self.recipe = method_recipe(self.task, self.method, "adam", epochs=epochs)

    def high_forget(self, stop: StopRule) -> None:
        """Train until the stop rule is met."""
        loss = self.method.loss(self.targets, joint=self.method.joint_forward)
        options = {"stop": stop, "check_every": self.method.check_every}
        self._fit(self._high_batches(), loss, self.recipe, "high-forget", **options)
        stop.note_if_unmet(self.task, self.method.max_epochs)

    def forget_few(self, stop: RankStopRule) -> None:
        """Train on few samples until their losses have the target ranks.

        Several rounds look for a learning rate that does not overshoot. No low-forget phase
        follows.
        """
        # Adam moves each weight by about the learning rate in every step, however small the
        # gradient of a few samples is.
        rates = FewSampleRates(self.method.lr * FIRST_RATE_FACTOR)
        loss = self.method.loss(self.targets, active=stop.active, joint=self.method.joint_forward)
        batches = self._high_batches()
        for _ in range(MAX_ROUNDS):
            recipe = replace(self.recipe, lr=rates.lr)
            self._fit(batches, loss, recipe, "high-forget", stop=stop, check_every=1)
            if stop.is_met:
                return
            rates.update(stop.overshot)
        self.task.unmet(
            "Some forget samples are not as hard as the stop rule requires: it was not met after "
            f"{MAX_ROUNDS} rounds of at most {self.method.max_epochs} epochs."
        )

    def low_forget(self, stop: StopRule) -> None:
        """Restore the retain accuracy.

        If this reverses the forgetting, it is repeated with a larger forget weight, and in the end
        omitted.
        """
        method = self.method
        task = self.task
        batches = JoinedBatches(
            task.forget, task.retain, method.low_batch, method.batch_size, method.augment
        )
        low_lr = method.lr * method.low_lr
        recipe = replace(self.recipe, epochs=method.low_epochs, lr=low_lr, schedule="cosine")
        weights_before = snapshot(self.net)
        was_met = stop.is_met
        for scale in dict.fromkeys((method.low_forget, 3 * method.low_forget, 1.0)):
            self._fit(batches, method.loss(self.targets, scale), recipe, "low-forget")
            if not was_met or stop():
                return
            self.net.load_state_dict(weights_before)
        stop.is_met = True
        self.task.note(
            "The low-forget phase was omitted: it reversed the forgetting of the high-forget phase."
        )

    def _fit(
        self, batches: Batches, loss: Loss, recipe: Recipe, phase: str, **options: Any
    ) -> None:
        fit_task(self.task, self.net, batches, loss, recipe, self.generator, phase, **options)

    def _high_batches(self) -> NestedBatches:
        method, task = self.method, self.task
        ratio = method.steps_per_forget_batch(task)
        return NestedBatches(task.forget, task.retain, method.batch_size, ratio, method.augment)


class StepOutputs(NamedTuple):
    """What the model returns for the batches of a step."""

    embeddings: Tensor
    """Of the forget samples, as `forget_logits`."""
    forget_logits: Tensor
    retain_logits: Tensor


def _outputs(net: nn.Module, forget: Tensor, retain: Tensor, joint: bool) -> StepOutputs:
    if joint:
        count = len(forget)
        logits, embeddings = net(torch.cat([forget, retain]))
        return StepOutputs(embeddings[:count], logits[:count], logits[count:])
    forget_logits, embeddings = net(forget)
    return StepOutputs(embeddings, forget_logits, net(retain)[0])


@dataclass
class FewSampleRates:
    """The learning rates of the rounds on few samples.

    Which one is suitable depends on the data and the model.
    """

    lr: float
    rising: bool = True

    def update(self, overshot: bool) -> float:
        """Lower the rate after a round that overshot, or raise it if none has overshot so far."""
        self.rising = self.rising and not overshot
        if overshot:
            self.lr /= RATE_FACTOR
        elif self.rising:
            self.lr *= RATE_FACTOR
        return self.lr


def closeness_to(
    net: WithEmbedding, centroids: Tensor, examples: Examples, recipe: Recipe
) -> Iterator[tuple[Batch, Tensor]]:
    """Iterate over batches and the cosine of each embedding with each centroid."""
    directions = normalize(centroids)
    with evaluating(net), autocast(recipe.precision, examples.device):
        for batch in examples.batches(1000):
            embeddings = net(batch.images)[1].float()
            with torch.autocast(examples.device.type, enabled=False):
                closeness = normalize(embeddings) @ directions.T
            yield batch, closeness


def class_centroids(
    net: WithEmbedding, examples: Examples, num_classes: int, recipe: Recipe
) -> tuple[Tensor, Tensor]:
    """Return the mean embedding of each class and which classes have one (eq. 1)."""
    sums = torch.zeros((), device=examples.device)
    counts = torch.zeros(num_classes, device=examples.device)
    with evaluating(net), autocast(recipe.precision, examples.device):
        for batch in examples.batches(1000):
            member = one_hot(batch.labels, num_classes).float()
            embeddings = net(batch.images)[1].float()
            with torch.autocast(examples.device.type, enabled=False):
                sums = sums + (member.T @ embeddings).double()
            counts += member.sum(0)
    return sums.float() / counts.clamp(min=1).unsqueeze(1), counts > 0
