"""Train a small convolutional net with PyTorch; tensors share the engine's memory.

Run: python examples/train_torch.py FOLDER [--epochs 1]
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import feedline as fl
from feedline import ops


def main() -> None:
    """Train for some epochs and print the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()

    loader = fl.Loader(
        fl.folder(arguments.folder),
        [ops.DecodeImage(), ops.RandomResizedCrop(64), ops.RandomHorizontalFlip(), ops.Normalize()],
        batch_size=32,
        shuffle=True,
        drop_last=True,
        framework="torch",
        fields=("image", "label"),
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.LazyLinear(max(len(loader.source.classes), 1)),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(arguments.epochs):
        loader.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f} after {len(loader)} batches")
    loader.close()


if __name__ == "__main__":
    main()
