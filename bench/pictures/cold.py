"""Files that are not in the page cache: it is dropped before each epoch, which needs root.

Each epoch begins with a loader that has read nothing. Seek indexes exist, but are not in the page cache either. Also
measured: how fast the disk delivers these files, read by eight threads at once. No loader can be faster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import harness
from bench.pictures.contenders import DALI
from bench.pictures.files import is_disturbed
from bench.pictures.setting import Results, Setting
from bench.pictures.task import TRAINING, Task
from bench.ratio import Ratio

ROW = "cold"
DROP = Path("/proc/sys/vm/drop_caches")
EPOCHS, READERS = 3, 8


def drop_caches() -> None:
    """Empty the page cache of the machine."""
    os.sync()
    DROP.write_text("3\n")


def _epochs(task: Task, build: Callable[[Task], Any], is_cold: bool) -> harness.Window:
    """The fastest of some epochs. Pages are dropped before a loader is built or begins an epoch."""
    best: harness.Window | None = None
    loader = None
    for _ in range(EPOCHS):
        if is_cold:
            drop_caches()
        cpu, machine, start, first, seen = harness.tree_cpu_seconds(), harness.machine_cpu_seconds(), 0.0, None, 0
        start = time.perf_counter()
        loader = build(task) if loader is None or not hasattr(loader, "persistent_workers") else loader
        for batch in loader:
            first = first or time.perf_counter() - start
            seen += len(batch[0])
        seconds = time.perf_counter() - start
        cpu, machine = harness.tree_cpu_seconds() - cpu, harness.machine_cpu_seconds() - machine
        assert seen >= len(task.paths), f"an epoch had {seen} samples of {len(task.paths)}"
        window = harness.Window(seen / seconds, 1e3 * cpu / seen, first or 0.0, seen, max(0.0, machine - cpu) / seconds)
        if best is None or window.samples_per_second > best.samples_per_second:
            best = window
    assert best is not None
    return best


def _contend(build: Callable[[Task], Any], argument: str, is_cold: str) -> None:
    harness.report(_epochs(Task.of(argument), build, is_cold == "cold"))


def contend_feedline(argument: str, is_cold: str) -> None:
    """Feedline. A first epoch builds the seek indexes."""
    from bench.pictures.loaders import feedline

    def build(task: Task) -> Iterator[Any]:
        with feedline.loader(task) as loader:
            for batch in loader:
                yield batch["image"], batch["index"]

    for _ in build(Task.of(argument)):
        pass
    _contend(build, argument, is_cold)


def contend_torch(argument: str, is_cold: str) -> None:
    """torch with torchvision. Its workers stay between epochs."""
    from bench.pictures.loaders import torch_loader

    loader = torch_loader.build_torchvision(Task.of(argument))
    next(iter(loader))
    _contend(lambda _: loader, argument, is_cold)


def contend_dali(argument: str, is_cold: str) -> None:
    """DALI. Its reader reads ahead, so each epoch has a new pipeline."""
    from bench.pictures.loaders import dali

    _contend(dali.build, argument, is_cold)


def disk_rate(task: Task) -> dict[str, float]:
    """How many of the files the disk delivers in a second."""
    drop_caches()
    start = time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        size = sum(pool.map(lambda path: len(Path(path).read_bytes()), task.paths))
    seconds = time.perf_counter() - start
    return {"samples_per_second": len(task.paths) / seconds, "mb_per_second": size / seconds / 1e6}


def measure(setting: Setting) -> Results:
    """Warm and cold, with two threads and as many as Feedline chooses."""
    if os.geteuid() != 0 or not os.access(DROP, os.W_OK):
        setting.failures[ROW] = "only root can drop the page cache"
        return {}
    task = Task(TRAINING, str(setting.pictures), threads=2)
    found: Results = {}
    for state in ("warm", "cold"):
        found[f"disk, {state}"] = disk_rate(task) if state == "cold" else {}
        names = ["cold-feedline", "cold-torch", "cold-dali"]
        results = setting.race(ROW, names, [*task.arguments, state])
        chosen = setting.race(ROW, ["cold-feedline"], [*replace(task, threads="auto").arguments, state])
        found.update({f"{name.removeprefix('cold-')}, {state}": result for name, result in results.items()})
        found.update({f"feedline auto, {state}": result for result in chosen.values()})
    return {name: result for name, result in found.items() if result}


def ratios(results: Results) -> Iterator[Ratio]:
    """Cold against warm, as far as the disk delivers as much; and against torch."""

    def rate(name: str) -> float | None:
        return float(results[name]["samples_per_second"]) if name in results else None

    def disturbed(*names: str) -> bool:
        return any(is_disturbed(results[name]) for name in names if name in results)

    disk = rate("disk, cold")
    for name in ("feedline", "feedline auto"):
        cold, warm = rate(f"{name}, cold"), rate(f"{name}, warm")
        value = cold / min(warm, disk) if cold and warm and disk else None
        what = f"cold page cache, {name}: images/s / the lower of warm and what the disk delivers"
        yield Ratio(what, value, "at least", 0.9, disturbed(f"{name}, cold", f"{name}, warm"))
    for peer, target in (("torch", 2.5), (DALI, 1.0)):
        ours, other = rate("feedline, cold"), rate(f"{peer}, cold")
        value = ours / other if ours and other else None
        what = f"cold page cache: images/s, Feedline / {peer}"
        yield Ratio(what, value, "at least", target, disturbed("feedline, cold", f"{peer}, cold"))
