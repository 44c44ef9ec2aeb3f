"""A trainer that reads epochs from a storage server and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import feedline as fl
from bench.storage.server import Server
from feedline import ops, testing
from feedline.source import Source

BATCH = 64
STEP_MS = 1.0


def crops(fast: bool = False) -> Sequence[ops.Op]:
    """Give the ops of the paper's pipeline."""
    return [
        ops.DecodeImage(fast=fast),
        ops.RandomResizedCrop(224),
        ops.RandomHorizontalFlip(),
        ops.ToTensor(),
        ops.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]


@dataclass
class Epochs:
    """What epochs took, each; the first one profiles."""

    samples: int
    bytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    storage_cpu_seconds: list[float] = field(default_factory=list)
    candidates: dict[str, float] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """Give the mean of all epochs but the first, per sample."""
        values = getattr(self, name)[1:]
        return float(sum(values) / len(values) / self.samples)

    def summary(self) -> dict[str, Any]:
        """Give it as plain data."""
        found = asdict(self)
        found["bytes_per_sample"] = self.mean("bytes")
        found["storage_cpu_ms_per_sample"] = self.mean("storage_cpu_seconds") * 1e3
        found["best_epoch_seconds"] = min(self.seconds[1:])
        return found


def train(
    server: Server,
    source: Callable[[], Source],
    chain: Sequence[ops.Op],
    policy: str,
    epochs: int,
    seed: int = 0,
    batch: int = BATCH,
) -> Epochs:
    """Read epochs under a policy."""
    loader = fl.Loader(source(), chain, batch_size=batch, shuffle=True, seed=seed, tuning=fl.tuning(offload=policy))  # type: ignore[arg-type]
    found = Epochs(samples=len(loader.source))
    before: dict[str, int] = {}
    for epoch in range(epochs):
        cpu, began = server.cpu_seconds(), time.perf_counter()
        for _ in loader:
            testing.step(STEP_MS)
        found.seconds.append(time.perf_counter() - began)
        found.storage_cpu_seconds.append(server.cpu_seconds() - cpu)
        store = loader.snapshot()["store"]
        found.bytes.append(store["bytes_received_epoch"])
        if epoch == 0:
            before = store["candidates"]
    loader.close()
    later = {name: count - before.get(name, 0) for name, count in store["candidates"].items()}
    total = sum(later.values())
    found.candidates = {name: count / total for name, count in later.items() if count}
    return found
