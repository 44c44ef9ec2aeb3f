"""Whether a net learns the same in every order of delivery: `python -m bench.accuracy [--seeds 5] [--epochs 32]`.

A small 3D U-Net is trained on small volumes, whose preparation takes very different time, in the sampler's order and
in those in which slow samples come later. A seed gives weights, order of the sampler and draws, so trainings of one
seed differ by the order of delivery only. The mean Dice on volumes that were held out must be within a point of that of
strict order, or within the standard error of its own seeds if that is larger. How many batches differ from
those of strict order tells whether there was anything to compare. Written to bench/results/accuracy.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import feedline as fl
from bench import harness
from bench.accuracy import data, net
from feedline import ops, testing

ORDERS: dict[str, Any] = {"strict": "strict", "planned": fl.planned(), "arrival": fl.arrival()}
CASES, HELD_OUT, BATCH, CROP, WORKERS = 48, 24, 4, 32, 4
# Milliseconds of every fourth sample and of the others, and of an op that a third of them get.
SLOW_MS, FAST_MS, DRAWN_MS, DRAWN_P = 240.0, 8.0, 160.0, 1 / 3
POINT = 0.01

Batches = list[frozenset[int]]


@dataclass(frozen=True)
class Trained:
    """One training: its Dice, and the samples of each batch."""

    dice: float
    batches: Batches


def _loader(folder: Path, order: str, seed: int) -> fl.Loader:
    chain = [
        ops.RandomBalancedCrop(CROP),
        ops.RandomFlip3d(),
        ops.Cast(),
        ops.RandomBrightness(),
        ops.GaussianNoise(),
        testing.delay([SLOW_MS, FAST_MS, FAST_MS, FAST_MS]),
        testing.delay(DRAWN_MS, p=DRAWN_P),
    ]
    return fl.Loader(
        fl.volumes(folder),
        chain,
        batch_size=BATCH,
        shuffle=True,
        seed=seed,
        num_workers=WORKERS,
        order=ORDERS[order],
        framework="torch",
    )


def _train(folder: Path, order: str, seed: int, epochs: int, images: torch.Tensor, labels: torch.Tensor) -> Trained:
    seen: Batches = []
    with _loader(folder, order, seed) as loader:

        def batches() -> Iterator[Any]:
            for _ in range(epochs):
                began = len(seen)
                for batch in loader:
                    seen.append(frozenset(batch["index"].tolist()))
                    yield batch
                if sorted(sample for samples in seen[began:] for sample in samples) != list(range(CASES)):
                    raise SystemExit(f"{order}, seed {seed}: the samples of an epoch are not all samples, each once")

        trained = net.train(batches(), epochs * len(loader), seed)
    return Trained(net.dice(trained, images, labels), seen)


def _orders(folder: Path) -> list[str]:
    """Give those that the installed package has."""
    found = []
    for order in ORDERS:
        try:
            _loader(folder, order, 0).close()
        except fl.PlanError as problem:
            print(f"order={order!r} is skipped: {problem}", file=sys.stderr)
        else:
            found.append(order)
    return found


def _summary(trained: dict[str, list[Trained]]) -> dict[str, dict[str, Any]]:
    """Compare each order with strict."""
    strict = [run.dice for run in trained["strict"]]
    error = statistics.stdev(strict) / len(strict) ** 0.5 if len(strict) > 1 else 0.0
    results = {}
    for order, runs in trained.items():
        mean = statistics.mean(run.dice for run in runs)
        differing = [
            sum(ours != theirs for ours, theirs in zip(run.batches, other.batches, strict=True)) / len(run.batches)
            for run, other in zip(runs, trained["strict"], strict=True)
        ]
        difference = mean - statistics.mean(strict)
        results[order] = {
            "dice": [run.dice for run in runs],
            "mean_dice": mean,
            "difference": difference,
            "allowed": max(POINT, error),
            "is_same": abs(difference) <= max(POINT, error),
            "differing_batches": statistics.mean(differing),
        }
    return results


def _show(results: dict[str, dict[str, Any]]) -> None:
    print(f"{'':10}{'mean Dice':>10}{'difference':>12}{'allowed':>9}{'same':>6}{'other batches':>15}   each seed")
    for order, result in results.items():
        each = " ".join(f"{value:.3f}" for value in result["dice"])
        same, share = "yes" if result["is_same"] else "no", f"{100 * result['differing_batches']:.0f} %"
        figures = f"{result['mean_dice']:10.4f}{result['difference']:+12.4f}{result['allowed']:9.4f}"
        print(f"{order:10}{figures}{same:>6}{share:>15}   {each}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=32)
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    images, labels = (torch.from_numpy(np.ascontiguousarray(array)) for array in data.held_out(HELD_OUT, seed=1))
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as work:
        os.environ["FEEDLINE_CACHE"] = str(Path(work) / "cache")
        folder = Path(work) / "volumes"
        data.write(folder, CASES, seed=0)
        trained: dict[str, list[Trained]] = {order: [] for order in _orders(folder)}
        for seed in range(given.seeds):
            for order, runs in trained.items():
                runs.append(_train(folder, order, seed, given.epochs, images, labels))
                print(f"  seed {seed} {order:8} Dice {runs[-1].dice:.4f}", file=sys.stderr, flush=True)
    results = _summary(trained)
    _show(results)
    if not given.dry:
        setup = {**harness.setup(), "torch": torch.__version__, "cases": CASES, "held_out": HELD_OUT}
        setup |= {"batch": BATCH, "crop": CROP, "workers": WORKERS, "epochs": given.epochs, "seeds": given.seeds}
        setup |= {"delays_ms": [SLOW_MS, FAST_MS, DRAWN_MS], "orders": list(trained)}
        path = harness.RESULTS / "accuracy.json"
        path.write_text(json.dumps({"setup": setup, "results": results}, indent=1) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
