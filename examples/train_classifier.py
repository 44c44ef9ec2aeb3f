"""Train a small classifier on a folder of pictures, with NumPy alone.

A softmax layer over 32x32 pixels learns by stochastic gradient descent; Feedline decodes, crops, flips and normalises.
Run: python examples/train_classifier.py FOLDER [--epochs 2]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

import feedline as fl
from feedline import ops

Floats = npt.NDArray[np.float32]
SIDE = 32


def probabilities(weights: Floats, images: Floats) -> Floats:
    """Give the classes' probabilities; a constant input is the bias."""
    flat = images.reshape(len(images), -1)
    scores = np.hstack([flat, np.ones((len(flat), 1), np.float32)]) @ weights
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)


def train_step(weights: Floats, images: Floats, labels: npt.NDArray[np.int64], rate: float) -> float:
    """Change the weights by one step of gradient descent; give the loss."""
    guesses = probabilities(weights, images)
    loss = -np.log(guesses[np.arange(len(labels)), labels] + 1e-9).mean()
    guesses[np.arange(len(labels)), labels] -= 1
    flat = np.hstack([images.reshape(len(images), -1), np.ones((len(images), 1), np.float32)])
    weights -= np.float32(rate / len(labels)) * (flat.T @ guesses)
    return float(loss)


def main() -> None:
    """Train, then say how it went and how long the training waited for data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()

    parts = fl.folder(arguments.folder).split({"train": 0.9, "val": 0.1}, seed=0)
    augment = [ops.DecodeImage(), ops.RandomResizedCrop(SIDE, scale=(0.5, 1.0)), ops.RandomHorizontalFlip()]
    train = fl.Loader(parts["train"], [*augment, ops.Normalize()], batch_size=32, shuffle=True, seed=0)
    val = fl.Loader(parts["val"], [ops.DecodeImage(), ops.Resize((SIDE, SIDE)), ops.Normalize()], batch_size=64)
    classes = train.source.classes
    weights = np.zeros((3 * SIDE * SIDE + 1, len(classes)), np.float32)
    print(f"{len(parts['train'])} pictures to train on, {len(parts['val'])} held out, {len(classes)} classes")

    started = time.perf_counter()
    for epoch in range(arguments.epochs):
        train.set_epoch(epoch)
        losses = [train_step(weights, batch["image"], batch["label"], rate=0.01) for batch in train]
        right = [(probabilities(weights, batch["image"]).argmax(axis=1) == batch["label"]) for batch in val]
        accuracy = np.concatenate(right).mean()
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}, accuracy on held-out pictures {accuracy:.0%}")
    seconds = time.perf_counter() - started

    snapshot = train.snapshot()
    stalled = sum(snapshot["stall_seconds"].values())
    print(f"{snapshot['samples'] / seconds:.0f} pictures/s, waited for data {stalled / seconds:.0%} of the time")
    print("read on: docs/get-started/quickstart.md, or feedline run --help")
    train.close()
    val.close()


if __name__ == "__main__":
    main()
