"""Whether a small net learns as well from data sorted by class as with a full shuffle.

In: ways to shuffle. Out: the accuracy of each, for several seeds. Classes are clouds of points that overlap; a shard
has one class, and blocks are a two-hundredth of the data, where ImageNet's would be a two-thousandth.
"""

from __future__ import annotations

import statistics
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import feedline as fl

CLASSES, PER_CLASS, SIDE, BATCH, EPOCHS = 20, 200, 48, 32, 12
SPREAD, RATE = 2.2, 0.05
BLOCKS = 200
SEEDS = 5


def _points(per_class: int, seed: int) -> tuple[Any, Any]:
    centres = np.random.default_rng(0).normal(0, 1, (CLASSES, SIDE))
    labels = np.repeat(np.arange(CLASSES), per_class)
    points = centres[labels] + np.random.default_rng(seed).normal(0, SPREAD, (len(labels), SIDE))
    return points.astype(np.float32), labels


def write_shards(folder: Path) -> int:
    """Write the points, sorted by class, a class in each shard; gives the bytes of a block."""
    folder.mkdir()
    points, labels = _points(PER_CLASS, seed=1)
    for label in range(CLASSES):
        with tarfile.open(folder / f"{label:03}.tar", "w") as tar:
            for number in np.flatnonzero(labels == label):
                for ending, data in ("bin", points[number].tobytes()), ("cls", str(label).encode()):
                    member = tarfile.TarInfo(f"{number:06}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, BytesIO(data))
    return sum(path.stat().st_size for path in folder.glob("*.tar")) // BLOCKS


def ways(block: int) -> dict[str, Any]:
    """Give the ways to shuffle that are compared."""
    return {
        "full": True,
        "reservoir-10%": fl.reservoir(0.1, readers=8, block=block),
        "reservoir-1%-one-reader": fl.reservoir(0.01, readers=1),
    }


def _train(folder: Path, shuffle: Any, seed: int) -> float:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(SIDE, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    loader = fl.Loader(fl.tar(folder), batch_size=BATCH, shuffle=shuffle, seed=seed, ragged=("bin",), num_workers=2)
    steps = EPOCHS * len(loader)
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    with loader:
        for _ in range(EPOCHS):
            seen = 0
            for batch in loader:
                points = torch.from_numpy(np.stack([np.asarray(point).view(np.float32) for point in batch["bin"]]))
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(points), torch.from_numpy(batch["label"])).backward()
                optimizer.step()
                schedule.step()
                seen += len(points)
            if seen != CLASSES * PER_CLASS:
                raise SystemExit(f"{shuffle}, seed {seed}: {seen} samples in an epoch")
    points, labels = _points(100, seed=2)
    with torch.no_grad():
        found = net(torch.from_numpy(points)).argmax(1).numpy()
    return float((found == labels).mean())


def measure(folder: Path, seeds: int = SEEDS) -> dict[str, dict[str, Any]]:
    """Train with each way and seed."""
    torch.set_num_threads(1)
    block = write_shards(folder)
    results = {}
    for name, shuffle in ways(block).items():
        found = [_train(folder, shuffle, seed) for seed in range(seeds)]
        error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
        results[name] = {"accuracy": found, "mean": statistics.mean(found), "standard_error": error}
        each = " ".join(f"{value:.3f}" for value in found)
        print(f"  {name:24} {results[name]['mean']:.4f} +- {error:.4f}   {each}", file=sys.stderr, flush=True)
    return results
