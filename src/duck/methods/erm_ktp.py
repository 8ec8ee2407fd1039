"""ERM-KTP: knowledge-level machine unlearning via knowledge transfer (Lin et al. 2023)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from duck.errors import BadInput
from duck.methods._distillation import frozen_copy
from duck.methods._training import fit_task, method_recipe, new_model
from duck.methods.base import METHODS, BaseMethod, ForgetsBy, Kinds
from duck.models.head import PROBE_IMAGES, logits_of, with_embeddings
from duck.runtime import device_of, evaluating, seeded
from duck.training.batching import Batches, MixedBatches, ShuffledPass, Step
from duck.types import Task

# A gate on the channels of a map is the same gate on their mean or maximum: a mask before the
# pooling acts like a mask after it.
POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda maps: maps.mean((2, 3)),
    "maximum": lambda maps: maps.amax((2, 3)),
}


class FeatureMap(NamedTuple):
    """The last feature map of a model: its module, pooling and channels, and the head's name."""

    module: str
    pool: str
    channels: int
    head: str


@METHODS.register("erm-ktp")
@dataclass(frozen=True)
class ErmKtp(BaseMethod):
    """Train a masked original, then transfer its features to a fresh model, except forgotten ones.

    The mask assigns channels to classes. The given original is not used: channels of forgotten
    classes can only be removed from a model that was trained with the mask.
    """

    paper: ClassVar[str] = "Lin 2023, CVPR (Entanglement-Reduced Mask)"
    scenarios: ClassVar[Kinds] = ("class",)
    forgets_by: ClassVar[ForgetsBy] = "omission"
    prepared_from: ClassVar[tuple[str, ...]] = (
        "original_lr",
        "original_epochs",
        "original_milestones",
        "original_batch",
        "momentum",
        "weight_decay",
        "decay",
        "mask_every",
        "mask_weight",
        "mask_density",
        "mask_overlap",
    )
    prepared_per_request: ClassVar[bool] = False

    lr: float = 0.1
    """Learning rate of the knowledge transfer."""
    epochs: int = 50
    milestones: tuple[int, ...] = (10, 20)
    """Epochs after which the learning rate is multiplied by `decay`, counted from the start of the
    schedule."""
    schedule_start: int = 5
    """Epochs of the knowledge transfer before its schedule starts."""
    batch_size: int = 256
    original_lr: float = 0.1
    """Learning rate of the masked original."""
    original_epochs: int = 200
    original_milestones: tuple[int, ...] = (100, 150)
    original_batch: int = 256
    decay: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    mask_every: int = 3
    """Every n-th epoch of the masked original uses the mask."""
    mask_weight: float = 1e-3
    """Weight of the regulariser."""
    mask_density: float = 0.1
    """Share of the mask that costs nothing."""
    mask_overlap: float = 0.1
    """Weight of channels that several classes share, in the regulariser."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        forgotten = task.forget.labels.unique()
        if torch.isin(forgotten, task.retain.labels).any():
            raise BadInput("erm-ktp can only forget whole classes, and some have retain samples.")
        location = find_feature_map(model, task)
        prepared = task.prepared or self.prepare(model, task)
        teacher = frozen_copy(new_model("erm-ktp", model, task, seeded(0, "erm-ktp")))
        weights = {
            name.removeprefix("net."): value for name, value in prepared.items() if name != "mask"
        }
        teacher.load_state_dict(weights)
        generator = seeded(task.seed, "erm-ktp")
        student = new_model("erm-ktp", model, task, generator)
        removed = class_channels(prepared["mask"], forgotten)
        if removed.all():
            task.note(
                "Every channel of the mask serves a forgotten class, so all were removed and the "
                "result is useless. Train the masked original for more epochs or raise mask_weight."
            )
        head = copy_head(student, teacher, location.head, forgotten, removed)
        # The loss does not depend on the head, and DistributedDataParallel would wait for its
        # gradients.
        head.requires_grad_(False)
        self._transfer(student, teacher, location, removed, task, generator)
        head.requires_grad_(True)
        return student.train(model.training)

    def _transfer(
        self,
        student: nn.Module,
        teacher: nn.Module,
        location: FeatureMap,
        removed: Tensor,
        task: Task,
        generator: torch.Generator,
    ) -> None:
        """Train the student to reproduce the teacher's features except for removed channels."""
        milestones = tuple(self.schedule_start + milestone for milestone in self.milestones)
        recipe = method_recipe(task, self, milestones=milestones, gamma=self.decay)
        retain = ShuffledPass("retain", task.retain, self.batch_size, recipe.augment)
        with (
            WithFeatureMap(student, location.module) as student_map,
            WithFeatureMap(teacher, location.module) as teacher_map,
        ):

            def loss(net: nn.Module, step: Step) -> Tensor:
                images = step["retain"].images
                with torch.no_grad():
                    target = teacher_map(images)[1].float()
                return transfer_loss(net(images)[1].float(), target, removed, location.pool)

            fit_task(task, student_map, retain, loss, recipe, generator, "transfer")

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Return the weights of the masked original (`net.*`) and its `mask`.

        It is trained on all samples and serves requests with any seed, so that the seed of the task
        is not used.
        """
        location = find_feature_map(model, task)
        generator = seeded(0, "erm-ktp", "original")
        net = new_model("erm-ktp", model, task, generator)
        recipe = method_recipe(
            task,
            self,
            lr=self.original_lr,
            epochs=self.original_epochs,
            milestones=self.original_milestones,
            gamma=self.decay,
            batch_size=self.original_batch,
        )
        mixed = MixedBatches(task.forget, task.retain, self.original_batch, recipe.augment)
        with MaskedModel(net, location, task.num_classes) as masked:
            batches = AlternatingBatches(mixed, self.mask_every)
            loss = self._masked_loss
            fit_task(task, masked, batches, loss, recipe, generator, "masked original")
            mask = normalised(masked.mask.detach())
        weights = {f"net.{name}": value.clone() for name, value in net.state_dict().items()}
        return {"mask": mask, **weights}

    def _masked_loss(self, masked: nn.Module, step: Step) -> Tensor:
        ((name, batch),) = step.items()
        logits, mask = masked(batch.images, batch.labels if name == "masked" else None)
        loss = cross_entropy(logits.float(), batch.labels)
        return loss + self.regulariser(mask) if name == "masked" else loss

    def regulariser(self, mask: Tensor) -> Tensor:
        """Return the penalty for many entries and for channels that classes share.

        The second term is the sum over pairs of classes i < j of M_i . M_j.
        """
        dense = (mask.abs().sum() - self.mask_density * mask.numel()).relu()
        shared = (mask.sum(1).square() - mask.square().sum(1)).sum() / 2
        return self.mask_weight * (dense + self.mask_overlap * shared)


def normalised(mask: Tensor) -> Tensor:
    """Return the mask scaled so that the largest entry of each channel is 1 and none is below 0."""
    return (mask / mask.amax(1, keepdim=True).clamp(min=1e-12)).clamp(0, 1)


def class_channels(mask: Tensor, classes: Tensor) -> Tensor:
    """Return which channels serve any of the classes: those with a mask above 0."""
    return mask[:, classes].amax(1) > 0


def copy_head(
    student: nn.Module, teacher: nn.Module, name: str, forgotten: Tensor, removed: Tensor
) -> nn.Module:
    """Copy the teacher's head without the rows of forgotten classes and without their channels."""
    head = student.get_submodule(name)
    head.load_state_dict(teacher.get_submodule(name).state_dict())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter[forgotten] = 0
            if parameter.dim() > 1:
                parameter[:, removed] = 0
    return head


def transfer_loss(maps: Tensor, target: Tensor, removed: Tensor, pool: str) -> Tensor:
    """Return the error of the map plus that of the pooled features without removed channels."""
    pool_maps = POOLINGS[pool]
    return mse_loss(maps, target) + mse_loss(pool_maps(maps), pool_maps(target) * ~removed)


@dataclass
class AlternatingBatches:
    """Batches that are named `masked` in every `every`-th epoch and `plain` in the others."""

    batches: Batches
    every: int
    epoch_count: int = 0

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        self.epoch_count += 1
        name = "plain" if self.epoch_count % self.every else "masked"
        for step in self.batches.epoch(generator):
            yield {name: step["mixed"]}


def find_feature_map(model: nn.Module, task: Task) -> FeatureMap:
    """Return the last module whose output (N, C, H, W), pooled over space, is the embedding.

    A map of a single pixel is only chosen if there is no larger one.
    """
    images = next(iter(task.retain.batches(PROBE_IMAGES))).images
    maps: dict[str, Tensor] = {}

    def store_as(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            maps.pop(name, None)
            if isinstance(output, Tensor) and output.dim() == 4:
                maps[name] = output.clone()

        return hook

    with with_embeddings(model, task.head, images) as net, ExitStack() as hooks, evaluating(net):
        for name, module in net.model.named_modules():
            hooks.callback(module.register_forward_hook(store_as(name)).remove)
        embedding = net(images)[1]
        head = net.head.name
    latest_first = list(reversed(maps))
    for name in sorted(latest_first, key=lambda name: maps[name][0, 0].numel() == 1):
        for pool, pool_maps in POOLINGS.items():
            if _is_close(pool_maps(maps[name]), embedding):
                return FeatureMap(name, pool, embedding.shape[1], head)
    raise BadInput("erm-ktp needs a model whose embedding is the mean or maximum of a feature map.")


def _is_close(pooled: Tensor, embedding: Tensor) -> bool:
    return pooled.shape == embedding.shape and torch.allclose(
        pooled, embedding, rtol=1e-4, atol=1e-5 * float(embedding.abs().max())
    )


class WithFeatureMap(nn.Module):
    """A model that returns (logits, last feature map) while it is used as a context manager."""

    def __init__(self, net: nn.Module, module: str) -> None:
        super().__init__()
        self.net = net
        self.module = module
        self.gate: Tensor | None = None
        self.feature_map: Tensor | None = None

    def __enter__(self) -> Any:
        self.hook = self.net.get_submodule(self.module).register_forward_hook(self._store)
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def _store(self, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        self.feature_map = output
        return None if self.gate is None else output * self.gate[:, :, None, None]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = logits_of(self.net(images))
        feature_map = self.feature_map
        self.feature_map = None
        return logits, feature_map


class MaskedModel(WithFeatureMap):
    """A model with a mask (channels, classes) on its last feature map; returns (logits, mask)."""

    def __init__(self, net: nn.Module, location: FeatureMap, classes: int) -> None:
        super().__init__(net, location.module)
        shape = (location.channels, classes)
        self.mask = nn.Parameter(torch.full(shape, 0.5, device=device_of(net)))

    def forward(self, images: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            # Here, because the training loop has no hook after a step.
            self.mask.copy_(normalised(self.mask))
        self.gate = None if labels is None else self.mask.T[labels]
        logits = super().forward(images)[0]
        self.gate = None
        return logits, self.mask.clone()
