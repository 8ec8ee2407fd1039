import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from duck.models import build


def test_size() -> None:
    assert sum(p.numel() for p in build("convnet", 10, (1, 8, 8)).parameters()) == 56_554


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 20), (1, 1, 1)])
def test_logits_for_any_shape(shape: tuple[int, int, int]) -> None:
    assert build("convnet", 7, shape)(torch.randn(3, *shape)).shape == (3, 7)


def test_learns_digits() -> None:
    digits = load_digits()
    images, labels = (
        torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16 - 0.3,
        torch.tensor(digits.target),
    )
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randperm(len(images), generator=generator).split([1437, 360])
    model = build("convnet", 10, (1, 8, 8), seed=0)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=8 * 23)
    for _ in range(8):
        for rows in train[torch.randperm(len(train), generator=generator)].split(64):
            optimizer.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    assert float((model.eval()(images[test]).argmax(1) == labels[test]).float().mean()) >= 0.98
