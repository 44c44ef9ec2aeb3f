"""A small 3D U-Net and its score.

In: batches of volumes with labels of three classes. Out: a trained net, its mean Dice. Always true: two trainings that
get the same batches from the same seed end with the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES, CHANNELS = 3, (8, 16, 32)
PEAK_RATE = 0.02


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv3d(channels, outputs, 3, padding=1), nn.InstanceNorm3d(outputs, affine=True), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Halves the volume three times and doubles it again. The first and last step have a single layer, for speed."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = CHANNELS
        self.enter = nn.Conv3d(1, first, 2, stride=2)
        self.down = nn.ModuleList([_block(first, first), _block(first, second)])
        self.deepest = _block(second, third)
        self.widen = nn.ModuleList(
            [nn.ConvTranspose3d(third, second, 2, stride=2), nn.ConvTranspose3d(second, first, 2, stride=2)]
        )
        self.up = nn.ModuleList([_block(2 * second, second), _block(2 * first, first)])
        self.leave = nn.ConvTranspose3d(first, CLASSES, 2, stride=2)

    def forward(self, volume: Tensor) -> Tensor:
        """Give a score for each class and element."""
        kept: list[Tensor] = []
        volume = self.enter(volume)
        for block in self.down:
            volume = block(volume)
            kept.append(volume)
            volume = functional.max_pool3d(volume, 2)
        volume = self.deepest(volume)
        for widen, block in zip(self.widen, self.up, strict=True):
            volume = block(torch.cat([kept.pop(), widen(volume)], 1))
        scores: Tensor = self.leave(volume)
        return scores


def _loss(scores: Tensor, label: Tensor) -> Tensor:
    """Cross entropy and one minus Dice, as MLPerf's 3D U-Net is trained."""
    shares = scores.softmax(1)[:, 1:]
    truth = functional.one_hot(label, CLASSES).movedim(-1, 1)[:, 1:].to(shares.dtype)
    both, all_of_them = (shares * truth).sum((2, 3, 4)), (shares + truth).sum((2, 3, 4))
    dice = (2 * both + 1) / (all_of_them + 1)
    return functional.cross_entropy(scores, label) + 1 - dice.mean()


def train(batches: Iterable[Any], steps: int, seed: int) -> UNet:
    """Train a new net on `steps` batches."""
    torch.manual_seed(seed)
    net = UNet()
    optimizer = torch.optim.AdamW(net.parameters(), PEAK_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps)
    for batch in batches:
        optimizer.zero_grad()
        _loss(net(batch["image"]), batch["label"][:, 0].long()).backward()
        optimizer.step()
        schedule.step()
    return net


@torch.no_grad()
def dice(net: UNet, images: Tensor, labels: Tensor) -> float:
    """Give the mean over volumes and over organ and lesion."""
    found = torch.cat([net(image[None]).argmax(1) for image in images])
    scores = []
    for number in range(1, CLASSES):
        ours, truth = found == number, labels == number
        both, all_of_them = (ours & truth).sum((1, 2, 3)), ours.sum((1, 2, 3)) + truth.sum((1, 2, 3))
        scores.append(2 * both / all_of_them)
    return float(torch.stack(scores).mean())
