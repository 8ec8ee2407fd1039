"""Knowledge distillation: teachers, and the divergence between a teacher and a student."""

from torch import Tensor, nn
from torch.nn.functional import kl_div

from duck.methods.base import clone


def frozen_copy(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode without gradients."""
    return clone(model).eval().requires_grad_(False)


def divergence(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T^2 KL(teacher || student) of softened logits, mean over the batch."""
    target = (teacher / temperature).log_softmax(1)
    log_p = (student / temperature).log_softmax(1)
    return temperature**2 * kl_div(log_p, target, reduction="batchmean", log_target=True)


def divergences_from(target: Tensor, student: Tensor) -> Tensor:
    """Return KL(target || student) of each sample.

    target    probabilities, which may be 0
    student   logits
    """
    return kl_div(student.log_softmax(1), target, reduction="none").sum(1)
