"""What-ifs against what then really happens: `feedline doctor --try all` on jobs for which a remedy is to be found.

Threads: ops that wait, with too few threads. Cache: decode and resize of pictures, with a random crop behind them.
Pack: pictures as files on a simulated hard disk (8 ms a seek, 150 MB/s).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import feedline as fl
from bench.ratio import Ratio
from feedline import ops, testing


def _plans(root: Path) -> dict[str, tuple[fl.Loader, float]]:
    pictures = root / "pictures"
    if not pictures.exists():
        command = [sys.executable, "-m", "feedline", "synth", str(pictures), "--images", "600", "--size", "300-600"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    waits = fl.Loader(fl.synthetic(4096, (1000,)), [testing.delay(20.0)], batch_size=8, num_workers=2)
    resized = [ops.DecodeImage(), ops.Resize(256), ops.RandomCrop(224), ops.Normalize()]
    kept = fl.Loader(fl.folder(pictures), resized, batch_size=32, num_workers=2, shuffle=True)
    disk = testing.slow_disk(pictures, seek_ms=8.0, mb_per_second=150.0)
    crops = [ops.DecodeImage(), ops.RandomResizedCrop(64)]
    sought = fl.Loader(
        fl.folder(disk), crops, batch_size=32, num_workers=4, shuffle=True, tuning=fl.tuning(seek_index="never")
    )
    return {"workers": (waits, 20.0), "cache": (kept, 1.0), "pack": (sought, 1.0)}


def measure(root: Path, seconds: float) -> dict[str, Any]:
    """Let the doctor try its own proposals."""
    found = {}
    for name, (loader, step_ms) in _plans(root).items():
        plan = root / f"{name}.toml"
        plan.write_text(loader.plan.to_toml())
        command = [sys.executable, "-m", "feedline", "--json", "doctor", str(plan), "--step-ms", str(step_ms)]
        command += ["--seconds", str(4 * seconds), "--quick", "--try", name]
        environment = {**os.environ, "FEEDLINE_CACHE": str(root / "cache")}
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        tried = json.loads(told)["tried"][0]
        found[name] = {
            "predicted": tried["predicted_samples_per_second"],
            "measured": tried["measured_samples_per_second"],
        }
        print(f"{name}: predicted {found[name]['predicted']:.1f}, measured {found[name]['measured']:.1f}")
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """The error of the predictions."""
    for name, rates in found.items():
        off = abs(rates["predicted"] / rates["measured"] - 1)
        yield Ratio(f"what-if {name}: predicted against measured, off by", off, "at most", 0.10)
