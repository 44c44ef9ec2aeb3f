"""Augment with albumentations so that batches do not depend on the number of workers, and resume is exact.

Albumentations keeps random generators of its own, which Feedline does not seed. So the dataset seeds them for each
sample, from `random`, which Feedline has seeded from (seed, epoch, index).

Run: python examples/albumentations_dataset.py FOLDER
"""

from __future__ import annotations

import random
import sys
from typing import Any

import albumentations  # type: ignore[import-untyped]
import numpy as np
from albumentations.pytorch import ToTensorV2  # type: ignore[import-untyped]
from torchvision.datasets import ImageFolder  # type: ignore[import-untyped]

import feedline.torch


class Augmented(ImageFolder):  # type: ignore[misc]
    """Pictures of a folder, augmented by albumentations."""

    def __init__(self, root: str, augment: albumentations.Compose) -> None:
        """``augment`` is a complete pipeline."""
        super().__init__(root)
        self.augment = augment

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return an augmented picture and its class."""
        picture, label = super().__getitem__(index)
        seed = random.getrandbits(64)
        # Not `set_random_seed`: it gives all transforms the same numbers, so that two flips would always agree.
        self.augment.set_random_state(np.random.default_rng(seed), random.Random(seed))
        return self.augment(image=np.asarray(picture))["image"], label


def main() -> None:
    """Check Feedline's promises on the dataset, and print a batch."""
    augment = albumentations.Compose(
        [
            albumentations.RandomResizedCrop(size=(64, 64)),
            albumentations.HorizontalFlip(),
            albumentations.RandomBrightnessContrast(),
            albumentations.GaussNoise(),
            albumentations.Normalize(),
            ToTensorV2(),
        ]
    )
    dataset = Augmented(sys.argv[1], augment)
    loader: feedline.torch.DataLoader[Any] = feedline.torch.DataLoader(
        dataset, batch_size=16, shuffle=True, num_workers=2
    )

    checked = feedline.torch.verify(loader, batches=4)
    print(checked)
    if not checked:
        sys.exit("the batches depend on more than seed, epoch and index")
    images, labels = next(iter(loader))
    print(f"{images.dtype} {tuple(images.shape)}, {len(set(labels.tolist()))} classes in the first batch")


if __name__ == "__main__":
    main()
