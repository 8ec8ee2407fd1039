"""Teachers, and how far a student is from them."""

from torch import Tensor, nn
from torch.nn.functional import kl_div

from duck.methods.base import clone


def frozen(model: nn.Module) -> nn.Module:
    """A copy in eval mode that no training reaches."""
    return clone(model).eval().requires_grad_(False)


def divergence(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(teacher || student) of softened logits, mean over the batch."""
    target, log_p = (teacher / temperature).log_softmax(1), (student / temperature).log_softmax(1)
    return temperature**2 * kl_div(log_p, target, reduction="batchmean", log_target=True)
