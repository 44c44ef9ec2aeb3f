"""Rows of speed: samples/s and CPU time per sample over whole epochs, in the first epoch of a process and later.

In: a workload. Out: the best epoch of each contender, and ratios against torch. Every epoch has to deliver the right
number of samples. After the last epoch of its first run, a contender delivers an epoch whose contents are compared.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench import harness
from bench.harness import QUIET_CORES, ContenderFailed
from bench.ratio import Ratio
from bench.torch_loader import fingerprint, loaders
from bench.torch_loader.datasets import picture_folder
from bench.torch_loader.setting import Setting
from bench.torch_loader.workloads import BY_NAME, Workload

LATER_EPOCHS = 2


def contend(contender: str, name: str, work: str, samples: str, run: str) -> dict[str, Any]:
    """Measure one loader in this process."""
    workload = BY_NAME[name]
    order = loaders.Order(workload.batch, collate=workload.collate)
    dataset = workload.dataset(int(samples), Path(work))
    loader = loaders.make(contender, dataset, order)
    first = _epoch(loader, len(dataset))
    later = [_epoch(loader, len(dataset)) for _ in range(LATER_EPOCHS)]
    best = max(later, key=lambda epoch: epoch["samples_per_second"])
    result = {
        **best,
        "cpu_us_per_sample": min(epoch["cpu_us_per_sample"] for epoch in later),
        "first_samples_per_second": first["samples_per_second"],
        "first_cpu_us_per_sample": first["cpu_us_per_sample"],
        "first_other_cores": first["other_cores"],
        "samples": len(dataset),
    }
    if run == "0":
        if workload.checked is not None:
            loader = loaders.make(contender, workload.checked(int(samples), Path(work)), order)
        result["contents"] = workload.contents(loader)
    return result


def _epoch(loader: Iterable[Any], samples: int) -> dict[str, float]:
    cpu, machine, start = harness.tree_cpu_seconds(), harness.machine_cpu_seconds(), time.perf_counter()
    seen = 0
    for batch in loader:
        seen += _size(batch)
    seconds = time.perf_counter() - start
    cpu, machine = harness.tree_cpu_seconds() - cpu, harness.machine_cpu_seconds() - machine
    if seen != samples:
        raise ContenderFailed(f"delivered {seen} samples of {samples}")
    return {
        "samples_per_second": samples / seconds,
        "cpu_us_per_sample": 1e6 * cpu / samples,
        "other_cores": max(0.0, machine - cpu) / seconds,
    }


def _size(batch: Any) -> int:
    while isinstance(batch, (list, tuple, Mapping)):
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch)


def measure(workload: Workload, setting: Setting) -> dict[str, Any]:
    """Race all loaders on a workload. Returns the best run of each."""
    if workload.needs is not None and importlib.util.find_spec(workload.needs) is None:
        setting.failures[workload.name] = f"{workload.needs} is not installed"
        return {}
    if workload.has_pictures:
        for path in picture_folder(setting.pictures, setting.work / "pictures").rglob("*.*"):
            path.read_bytes()
    arguments = (workload.name, str(setting.work), str(setting.samples(workload.samples)))
    found = setting.alternate(workload.name, workload.contenders, "speed", *arguments)
    _check_contents(setting, workload, found)
    return {name: best(runs) for name, runs in found.items() if runs}


def _check_contents(setting: Setting, workload: Workload, found: dict[str, list[dict[str, Any]]]) -> None:
    """Remove contenders whose contents are not those of torch."""
    contents = {}
    for name, runs in found.items():
        for run in runs:
            contents[name] = run.pop("contents", contents.get(name))
    for name in list(found):
        if name in contents and "torch" in contents:
            differs = fingerprint.difference(contents[name], contents["torch"], workload.tolerance)
            if differs is not None:
                setting.failures[f"{workload.name}, {name}"] = differs
                del found[name]


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest run, with the fastest first epoch and the least CPU time of all runs."""
    top = max(runs, key=lambda run: float(run["samples_per_second"]))
    first = max(runs, key=lambda run: float(run["first_samples_per_second"]))
    return {
        **top,
        **{key: first[key] for key in ("first_samples_per_second", "first_other_cores")},
        **{key: min(run[key] for run in runs) for key in ("cpu_us_per_sample", "first_cpu_us_per_sample")},
        "slowest_run": min(run["samples_per_second"] for run in runs),
        "runs": len(runs),
    }


def ratios(workload: Workload, results: Mapping[str, Mapping[str, Any]]) -> list[Ratio]:
    """All targets of a workload. The value is None if a side was not measured."""
    found = []
    for target in workload.targets:
        bound = "at most" if target.figure == "cpu_us_per_sample" else "at least"
        ours, torch = results.get(target.contender), results.get("torch")
        if ours is None or torch is None:
            found.append(Ratio(target.what, None, bound, target.value))
            continue
        others = "first_other_cores" if target.figure.startswith("first") else "other_cores"
        is_disturbed = bound == "at least" and max(ours[others], torch[others]) > QUIET_CORES
        found.append(Ratio(target.what, ours[target.figure] / torch[target.figure], bound, target.value, is_disturbed))
    return found
