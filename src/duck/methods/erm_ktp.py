"""ERM-KTP: knowledge-level machine unlearning via knowledge transfer (Lin et al. 2023)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from duck.errors import BadInput
from duck.methods._distillation import frozen
from duck.methods.base import METHODS, Forgets, Kinds
from duck.models.head import PROBES, embedded, logits_of
from duck.runtime import device_of, evaluating, global_seed, seeded
from duck.training.batching import Batches, Mixed, Passes, Step
from duck.training.loop import fit
from duck.types import Recipe, Task


@METHODS.register("erm-ktp")
@dataclass(frozen=True)
class ErmKtp:
    """Train an original whose channels belong to classes; then teach a fresh net its features without those of the forgotten classes.

    The original that was given is not used: only one that was trained with the mask can be taken apart.
    """

    paper: ClassVar[str] = "Lin 2023, CVPR (Entanglement-Reduced Mask)"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "omission"
    prepared_from: ClassVar[tuple[str, ...]] = (
        "original_lr", "original_epochs", "original_milestones", "original_batch", "momentum", "weight_decay", "decay",
        "mask_every", "mask_weight", "mask_density", "mask_overlap",
    )  # fmt: skip
    prepared_per_request: ClassVar[bool] = False

    lr: float = 0.1
    """Of the knowledge transfer."""
    epochs: int = 50
    milestones: tuple[int, ...] = (10, 20)
    """Epochs after which the rate is multiplied by `decay`, counted from the start of the schedule."""
    schedule_start: int = 5
    """Epochs of the knowledge transfer before its schedule starts."""
    batch_size: int = 256
    original_lr: float = 0.1
    """Of the masked original."""
    original_epochs: int = 200
    original_milestones: tuple[int, ...] = (100, 150)
    original_batch: int = 256
    decay: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    mask_every: int = 3
    """In every so many-th epoch the features pass through the mask of their class."""
    mask_weight: float = 1e-3
    """Of the regulariser."""
    mask_density: float = 0.1
    """Share of the mask that costs nothing."""
    mask_overlap: float = 0.1
    """Weight, in the regulariser, of channels that classes share."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        gone = task.forget.labels.unique()
        if torch.isin(gone, task.retain.labels).any():
            raise BadInput(
                "erm-ktp can only forget whole classes, and some forget samples have retain samples of their class."
            )
        where, generator = find(model, task), seeded(task.seed, "erm-ktp")
        prepared = task.prepared or self.prepare(model, task)
        teacher, student = (
            frozen(_fresh(model, task, seeded(0, "erm-ktp"))),
            _fresh(model, task, generator),
        )
        teacher.load_state_dict(
            {name.removeprefix("net."): value for name, value in prepared.items() if name != "mask"}
        )
        removed = class_channels(prepared["mask"], gone)
        if removed.all():
            task.note(
                "Every channel of the mask serves a forgotten class, so all were removed and the result is useless. "
                "Train the masked original for more epochs or raise mask_weight."
            )
        head = take_head(student, teacher, where.head, gone, removed)
        milestones = tuple(self.schedule_start + milestone for milestone in self.milestones)
        recipe = replace(
            self._recipe(task.recipe),
            lr=self.lr,
            milestones=milestones,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        with Mapped(student, where.map) as learner, Mapped(teacher, where.map) as original:

            def loss(net: nn.Module, step: Step) -> Tensor:
                images = step["retain"].images
                with torch.no_grad():
                    wanted = original(images)[1].float()
                return transfer_loss(net(images)[1].float(), wanted, removed, where.pool)

            # The loss does not reach the head; a DistributedDataParallel wants to be told.
            head.requires_grad_(False)
            retain = Passes("retain", task.retain, self.batch_size, recipe.augment)
            fit(
                learner,
                retain,
                loss,
                recipe,
                generator,
                phase="transfer",
                report=task.report,
                steady=True,
            )
            head.requires_grad_(True)
        return student.train(model.training)

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """The masked original (`net.*`) and its `mask`, of all samples. Not task.seed: it serves requests of every seed."""
        where, generator = find(model, task), seeded(0, "erm-ktp", "original")
        net = _fresh(model, task, generator)
        recipe = replace(
            self._recipe(task.recipe), lr=self.original_lr, milestones=self.original_milestones,
            epochs=self.original_epochs, batch_size=self.original_batch,
        )  # fmt: skip

        def loss(masked: nn.Module, step: Step) -> Tensor:
            ((name, batch),) = step.items()
            logits, mask = masked(batch.images, batch.labels if name == "masked" else None)
            fitted = cross_entropy(logits.float(), batch.labels)
            return fitted + self.regulariser(mask) if name == "masked" else fitted

        with Masked(net, where, task.num_classes) as masked:
            batches = Gated(
                Mixed(task.forget, task.retain, self.original_batch, recipe.augment),
                self.mask_every,
            )
            fit(
                masked,
                batches,
                loss,
                recipe,
                generator,
                phase="masked original",
                report=task.report,
                steady=True,
            )
            mask = normalised(masked.mask.detach())
        return {
            "mask": mask,
            **{f"net.{name}": value.clone() for name, value in net.state_dict().items()},
        }

    def regulariser(self, mask: Tensor) -> Tensor:
        """Few entries, and few channels that two classes share: the sum over pairs of classes i < j of M_i . M_j."""
        dense = (mask.abs().sum() - self.mask_density * mask.numel()).relu()
        shared = (mask.sum(1).square() - mask.square().sum(1)).sum() / 2
        return self.mask_weight * (dense + self.mask_overlap * shared)

    def _recipe(self, recipe: Recipe) -> Recipe:
        return replace(
            recipe, optimizer="sgd", momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay, schedule="step",
            gamma=self.decay,
        )  # fmt: skip


def normalised(mask: Tensor) -> Tensor:
    """Each channel's largest entry 1, none below 0."""
    return (mask / mask.amax(1, keepdim=True).clamp(min=1e-12)).clamp(0, 1)


def class_channels(mask: Tensor, classes: Tensor) -> Tensor:
    """Return which channels serve any of the classes: those with a mask above 0."""
    return mask[:, classes].amax(1) > 0


def take_head(
    student: nn.Module, teacher: nn.Module, name: str, gone: Tensor, removed: Tensor
) -> nn.Module:
    """Give the student the teacher's head, without the rows of the forgotten classes and without their channels."""
    head = student.get_submodule(name)
    head.load_state_dict(teacher.get_submodule(name).state_dict())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter[gone] = 0
            if parameter.dim() > 1:
                parameter[:, removed] = 0
    return head


def transfer_loss(maps: Tensor, wanted: Tensor, removed: Tensor, pool: str) -> Tensor:
    """The teacher's map, and its pooled features without the removed channels."""
    return mse_loss(maps, wanted) + mse_loss(SPACE[pool](maps), SPACE[pool](wanted) * ~removed)


@dataclass
class Gated:
    """The batches of every `every`-th epoch are named `masked`, the others `plain`."""

    batches: Batches
    every: int
    begun: int = 0

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        self.begun += 1
        name = "plain" if self.begun % self.every else "masked"
        for step in self.batches.epoch(generator):
            yield {name: step["mixed"]}


# A gate on the channels of a map is the same gate on their mean or maximum: what is masked before the pooling is masked after.
SPACE: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda maps: maps.mean((2, 3)),
    "maximum": lambda maps: maps.amax((2, 3)),
}


class Where(NamedTuple):
    """The last feature map of a model: its module, how it is pooled, its channels; and the head."""

    map: str
    pool: str
    channels: int
    head: str


def find(model: nn.Module, task: Task) -> Where:
    """The last module whose output (N, C, H, W), pooled over space, is the embedding; a single pixel only where there is no larger one."""
    images = next(iter(task.retain.batches(PROBES))).images
    maps: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            maps.pop(name, None)
            if isinstance(output, Tensor) and output.dim() == 4:
                maps[name] = output.clone()

        return hook

    with embedded(model, task.head, images) as net, ExitStack() as hooks, evaluating(net):
        for name, module in net.model.named_modules():
            hooks.callback(module.register_forward_hook(keep(name)).remove)
        embedding, head = net(images)[1], net.head.name
    latest_first = list(reversed(maps))
    for name in sorted(latest_first, key=lambda name: maps[name][0, 0].numel() == 1):
        for pool, reduce in SPACE.items():
            if _same(reduce(maps[name]), embedding):
                return Where(name, pool, embedding.shape[1], head)
    raise BadInput(
        "erm-ktp needs a net whose embedding is the mean or maximum over space of a last feature map; this one has no such map."
    )


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(
        one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max())
    )


class Mapped(nn.Module):
    """A net that returns (logits, last feature map) within a `with`."""

    def __init__(self, net: nn.Module, place: str) -> None:
        super().__init__()
        self.net, self.place = net, place
        self.gate: Tensor | None = None
        self.caught: Tensor | None = None

    def __enter__(self) -> Any:
        self.hook = self.net.get_submodule(self.place).register_forward_hook(self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def _catch(self, module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        self.caught = output
        return None if self.gate is None else output * self.gate[:, :, None, None]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = logits_of(self.net(images))
        maps, self.caught = self.caught, None
        return logits, maps


class Masked(Mapped):
    """A net with a mask (channels, classes) on its last feature map; returns (logits, mask)."""

    def __init__(self, net: nn.Module, where: Where, classes: int) -> None:
        super().__init__(net, where.map)
        self.mask = nn.Parameter(torch.full((where.channels, classes), 0.5, device=device_of(net)))

    def forward(self, images: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            # Here instead of after each step.
            self.mask.copy_(normalised(self.mask))
        self.gate = None if labels is None else self.mask.T[labels]
        logits = super().forward(images)[0]
        self.gate = None
        return logits, self.mask.clone()


def _fresh(model: nn.Module, task: Task, generator: torch.Generator) -> nn.Module:
    if task.new_model is None:
        raise BadInput(
            "erm-ktp trains an original of its own and a fresh student: pass new_model=, a function that builds one."
        )
    with global_seed(generator, device_of(model)):
        return task.new_model().to(device_of(model))
