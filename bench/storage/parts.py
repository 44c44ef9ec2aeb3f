"""The parts of the measurement, each a function from the bench to plain data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import feedline as fl
from bench.pictures import formats as picture_formats
from bench.storage.server import serving
from bench.storage.trainer import Epochs, crops, train
from feedline import ops

POLICIES = ("none", "all", "resize", "fastflow", "sophon", "auto")
SLOW_MBPS, FAST_MBPS = 100.0, 500.0
# Epoch 1 profiles; the traffic of ten more is counted.
EPOCHS = 11
RUNS, SHORT = 5, 3
# Tensors of an epoch take half a minute on the slow link, and are as many bytes each time.
ALL_RUNS = 1
CPUS = (0.25, 0.5, 1.0, 2.0)
SWEPT = ("none", "sophon", "auto")
SWEEPS = 2
VOLUME_CROP = (128, 128, 128)


@dataclass
class Bench:
    """The inputs of the measurement."""

    pictures: dict[str, Path]
    volumes: Path | None
    work: Path

    def cache(self, name: str) -> Path:
        """Give the folder in which a server keeps its indexes."""
        return self.work / "cache" / name


def _say(what: str, epochs: Epochs) -> None:
    kept = ", ".join(f"{name} {share:.0%}" for name, share in epochs.candidates.items() if share > 0.005)
    print(
        f"{what:40} {epochs.mean('bytes') / 1e3:7.1f} KB {min(epochs.seconds[1:]):6.2f} s "
        f"{epochs.mean('storage_cpu_seconds') * 1e3:5.2f} ms  {kept}",
        flush=True,
    )


def policies(bench: Bench, mbps: float = SLOW_MBPS, runs: int = RUNS, first: int = EPOCHS) -> Any:
    """All policies on all pictures, alternated."""
    found: dict[str, Any] = {}
    for name, root in bench.pictures.items():
        files = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
        mean = sum(files) / len(files)
        smaller = sum(size > 150_528 for size in files) / len(files)
        rule = sum(min(size, 150_528) for size in files) / len(files)
        data: dict[str, Any] = {"pictures": len(files), "mean_file_bytes": mean}
        data |= {"larger_than_a_crop": smaller, "rule_bytes": rule, "policies": {}}
        for run in range(runs):
            for policy in POLICIES:
                if policy == "all" and run >= ALL_RUNS:
                    continue
                epochs = first if run == 0 and policy != "all" else SHORT
                with serving(root.parent, bench.cache(name), mbps) as server:
                    url = server.url(root.name)
                    result = train(server, lambda url=url: fl.folder(url), crops(), policy, epochs, seed=run)
                _say(f"{name} {mbps:.0f} Mbit/s {policy} {run}", result)
                kept = data["policies"].setdefault(policy, result.summary())
                kept["best_epoch_seconds"] = min(kept["best_epoch_seconds"], min(result.seconds[1:]))
        found[name] = data
    return found


def policies_on_a_faster_link(bench: Bench) -> Any:
    """For the record: client and server together are bound by their processors."""
    return policies(bench, FAST_MBPS, runs=2, first=SHORT)


def shards(bench: Bench) -> Any:
    """The same files in shards."""
    found: dict[str, Any] = {}
    for name, root in bench.pictures.items():
        packed = bench.work / "shards" / name
        command = [sys.executable, "-m", "feedline", "pack", str(root), str(packed)]
        environment = {**os.environ, "FEEDLINE_CACHE": str(bench.cache(name))}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        found[name] = {}
        for policy in ("none", "auto"):
            with serving(packed.parent, bench.cache(f"{name}-shards"), SLOW_MBPS) as server:
                url = server.url(f"{name}/*.tar")
                result = train(server, lambda url=url: fl.tar(url), crops(), policy, EPOCHS)
            _say(f"{name} shards {policy}", result)
            found[name][policy] = result.summary()
    return found


def approximate(bench: Bench) -> Any:
    """Approximate pixels: fewer coefficients are sent."""
    found: dict[str, Any] = {}
    for name, root in bench.pictures.items():
        with serving(root.parent, bench.cache(name), SLOW_MBPS) as server:
            url = server.url(root.name)
            result = train(server, lambda url=url: fl.folder(url), crops(fast=True), "auto", EPOCHS)
        _say(f"{name} approximate auto", result)
        found[name] = result.summary()
    return found


def cores(bench: Bench) -> Any:
    """Fewer cores for the server."""
    found: dict[str, Any] = {}
    for name, root in bench.pictures.items():
        for cpus in CPUS:
            for _ in range(SWEEPS):
                for policy in SWEPT:
                    with serving(root.parent, bench.cache(name), SLOW_MBPS, cpus) as server:
                        url = server.url(root.name)
                        result = train(server, lambda url=url: fl.folder(url), crops(), policy, SHORT)
                    _say(f"{name} {cpus:g} cores {policy}", result)
                    kept = found.setdefault(name, {}).setdefault(f"{cpus:g}", {}).setdefault(policy, result.summary())
                    kept["best_epoch_seconds"] = min(kept["best_epoch_seconds"], min(result.seconds[1:]))
    return found


def volumes(bench: Bench) -> Any:
    """Volumes that are cropped at the server."""
    if bench.volumes is None:
        return {}
    chain = [
        ops.RandomBalancedCrop(VOLUME_CROP, oversampling=0.4, on=("image", "label")),
        ops.RandomFlip3d(on=("image", "label")),
    ]
    files = [path.stat().st_size for path in bench.volumes.rglob("*") if path.is_file()]
    found: dict[str, Any] = {}
    for policy in ("none", "auto"):
        with serving(bench.volumes.parent, bench.cache("volumes"), 2 * FAST_MBPS) as server:
            url = server.url(bench.volumes.name)
            result = train(server, lambda url=url: fl.volumes(url), chain, policy, EPOCHS, batch=4)
        _say(f"volumes {policy}", result)
        found[policy] = result.summary()
        found["mean_file_bytes"] = sum(files) / result.samples
    return found


def formats(bench: Bench) -> Any:
    """The pictures of ImageNet in other formats: which forms the server sends, and how much they save."""
    found: dict[str, Any] = {}
    for name in picture_formats.FORMATS:
        folder = picture_formats.made(bench.pictures["imagenet"], bench.work, name)
        files = [path.stat().st_size for path in folder.iterdir()]
        found[name] = {"mean_file_bytes": sum(files) / len(files), "policies": {}}
        for policy in SWEPT:
            with serving(folder.parent, bench.cache(f"imagenet-{name}"), SLOW_MBPS) as server:
                url = server.url(folder.name)
                result = train(server, lambda url=url: fl.folder(url), crops(), policy, SHORT)
            _say(f"{name} {policy}", result)
            found[name]["policies"][policy] = result.summary()
    return found


PARTS: dict[str, Callable[[Bench], Any]] = {
    "policies": policies,
    "policies_500": policies_on_a_faster_link,
    "shards": shards,
    "approximate": approximate,
    "cores": cores,
    "volumes": volumes,
    "formats": formats,
}
