"""Rows on files: one pipeline on one format, with one thread and with two.

In: a `Workload`. Out: figures by threads and contender. Contents of a pipeline without random ops are compared with
those of torchvision first; a contender with others leaves the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.harness import QUIET_CORES
from bench.pictures import contenders, formats
from bench.pictures.contenders import DALI, FEEDLINE, PILLOW, TORCHVISION
from bench.pictures.setting import Results, Setting
from bench.pictures.task import COLOUR, SEGMENTATION, TRAINING, VALIDATION, Task
from bench.ratio import Ratio

THREADS = (1, 2)
TOLERANCE = {PILLOW: 1.0, FEEDLINE: 1.0, DALI: 6.0}
"""Grey levels by which means of tiles may differ from torchvision's. DALI resizes and places crops differently."""
TILES = 16
LABELS_APART = 1.0
"""By how much the mean label of a tile may differ: torchvision takes another nearest pixel than Pillow."""
LEVEL = 1 / 255 / 0.224


@dataclass(frozen=True)
class Workload:
    """A pipeline on a format, and its target: how many times less CPU time than torchvision."""

    name: str
    title: str
    pipeline: str
    target: float
    format: str | None = None
    """None for the pictures as they are."""

    def task(self, setting: Setting) -> Task:
        """The task of a contender, with the files that it needs."""
        folder = formats.made(setting.pictures, setting.work, self.format) if self.format else setting.pictures
        masks = formats.made(setting.pictures, setting.work, formats.MASKS) if self.pipeline == SEGMENTATION else ""
        return Task(self.pipeline, str(folder), masks=str(masks))


_CROP = "RandomResizedCrop(224), flip, normalise"
WORKLOADS = (
    Workload("validation", "Resize(256), CenterCrop(224), normalise", VALIDATION, 2.5),
    Workload("training", f"baseline JPEG, {_CROP}", TRAINING, 3.5),
    Workload("colour", f"the same with ColorJitter{(0.4, 0.4, 0.4, 0.1)}", COLOUR, 5.0),
    Workload("png", f"PNG, {_CROP}", TRAINING, 3.5, "png"),
    Workload("webp", f"WebP (lossy, quality 80), {_CROP}", TRAINING, 1.5, "webp"),
    Workload("progressive", f"progressive JPEG, {_CROP}", TRAINING, 1.9, "progressive"),
    Workload("tiff", f"TIFF (deflate), {_CROP}", TRAINING, 2.0, "tiff"),
    Workload("segmentation", "picture + mask, Resize(512), RandomCrop(448), flip", SEGMENTATION, 3.0),
)


def measure(workload: Workload, setting: Setting) -> Results:
    """Race all contenders on a workload, for each number of threads."""
    task = workload.task(setting)
    for path in task.paths:
        with open(path, "rb") as file:
            file.read()
    names = _with_the_same_contents(workload, replace(task, is_checked=True), setting)
    found: Results = {}
    for threads in THREADS:
        results = setting.race(workload.name, names, replace(task, threads=threads).arguments)
        found.update({f"{name}, {threads}": result for name, result in results.items()})
    return found


def _with_the_same_contents(workload: Workload, task: Task, setting: Setting) -> list[str]:
    answers = {name: setting.ask(workload.name, name, task.arguments) for name in contenders.ALL}
    contents = {name: np.asarray(answer["contents"]) for name, answer in answers.items() if answer}
    expected = contents.get(TORCHVISION)
    names = []
    for name, found in contents.items():
        why = None if expected is None else difference(found, expected, TOLERANCE.get(name, 0.0))
        if why is None:
            names.append(name)
        else:
            setting.failures[f"{workload.name}, {name}"] = why
    return names


def difference(found: Any, expected: Any, levels: float) -> str | None:
    """Say how contents differ, if more than so many grey levels."""
    if found.shape != expected.shape or not np.array_equal(found[:, 0], expected[:, 0]):
        return f"contents of shape {found.shape}, not {expected.shape}, or other files"
    apart = np.abs(found[:, 1:] - expected[:, 1:])
    pixels, labels = float(apart[:, :TILES].max()) / LEVEL, float(apart[:, TILES:].max(initial=0.0))
    if pixels > levels:
        return f"contents differ by {pixels:.2g} grey levels"
    return f"mean labels differ by {labels:.2g}" if labels > LABELS_APART else None


def is_disturbed(result: Mapping[str, Any]) -> bool:
    """Whether another program used the machine during the run that counts."""
    return bool(result["other_cores"] > QUIET_CORES)


def ratios(workload: Workload, results: Results) -> Iterator[Ratio]:
    """CPU time against the best of torchvision and Pillow; with one thread, whose figures are the steadiest."""
    ours = results.get(f"{FEEDLINE}, 1")
    peers = [results[key] for key in (f"{TORCHVISION}, 1", f"{PILLOW}, 1") if key in results]
    peer = results.get(f"{TORCHVISION}, 1") if workload.format != "tiff" else None
    if peer is None and peers:
        # torchvision does not read TIFF, so the faster way around Pillow counts.
        peer = min(peers, key=lambda result: float(result["cpu_ms_per_sample"]))
    value = peer["cpu_ms_per_sample"] / ours["cpu_ms_per_sample"] if ours and peer else None
    yield Ratio(f"{workload.name}: CPU per picture, torchvision / Feedline", value, "at least", workload.target)


def colour_ratios(results: Mapping[str, Results]) -> Iterator[Ratio]:
    """The time of ColorJitter itself: the difference of two pipelines."""
    pair = [results.get(name, {}).get(f"{FEEDLINE}, 1") for name in ("colour", "training")]
    value = pair[0]["cpu_ms_per_sample"] - pair[1]["cpu_ms_per_sample"] if pair[0] and pair[1] else None
    yield Ratio("ColorJitter alone, CPU ms per picture", value, "at most", 0.35)
