"""The datasets that rows of speed are about: how each is built, batched, checked, and what is to be reached.

To add a row is to add a workload here. Targets are those of the issue; `ratios` of `speed.py` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.torch_loader import datasets, fingerprint
from bench.torch_loader.fingerprint import Fingerprint
from bench.torch_loader.loaders import SPDL, SPDL_THREADS

Figure = Literal["samples_per_second", "first_samples_per_second", "cpu_us_per_sample"]


@dataclass(frozen=True)
class Target:
    """A figure of a contender, divided by torch's. Samples/s are to be at least, CPU at most so much."""

    what: str
    contender: str
    figure: Figure
    value: float


@dataclass(frozen=True)
class Workload:
    """One dataset and the loaders that are raced on it."""

    name: str
    title: str
    samples: int
    batch: int
    dataset: Callable[[int, Path], Any]
    targets: tuple[Target, ...]
    collate: Callable[[Any], Any] | None = None
    contents: Callable[[Iterable[Any]], Fingerprint] = fingerprint.of_tensors
    checked: Callable[[int, Path], Any] | None = None
    """The dataset whose contents are compared, if those of `dataset` are random."""
    tolerance: float = 0.0
    needs: str | None = None
    """A package without which the row is skipped."""

    @property
    def has_pictures(self) -> bool:
        """Whether the dataset consists of the pictures that the user gave, and has as many samples."""
        return self.samples == 0

    @property
    def contenders(self) -> list[str]:
        """All loaders of the row, in the order in which they run."""
        ours = dict.fromkeys(target.contender for target in self.targets)
        return ["torch", *ours, SPDL, SPDL_THREADS]


def _speed(what: str, contender: str, value: float) -> Target:
    return Target(what, contender, "samples_per_second", value)


def _both(name: str, seeded: float, unseeded: float) -> tuple[Target, ...]:
    return (
        _speed(f'{name}, seeding="sample"', "feedline", seeded),
        _speed(f"{name}, seeding=None", "feedline-unseeded", unseeded),
    )


_PICTURES = "ImageFolder + torchvision transforms"

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "pictures",
        f"{_PICTURES}, batch 64",
        samples=0,
        batch=64,
        dataset=lambda _, work: datasets.training_pictures(work / "pictures"),
        targets=(
            Target(f'{_PICTURES}, native="auto", first epoch', "feedline", "first_samples_per_second", 2.5),
            _speed(f'{_PICTURES}, native="auto", later epochs', "feedline", 4.0),
            _speed(f"{_PICTURES}, native=False", "feedline-python", 1.0),
            Target(f"{_PICTURES}, native=False, CPU per sample", "feedline-python", "cpu_us_per_sample", 1.0),
        ),
        contents=fingerprint.of_pictures,
        checked=lambda _, work: datasets.evaluation_pictures(work / "pictures"),
        tolerance=fingerprint.PICTURE_TOLERANCE,
    ),
    Workload(
        "cached",
        "ImageFolder, Resize(256) before the random crop, cache=fl.cache(ram=...), batch 64",
        samples=0,
        batch=64,
        dataset=lambda _, work: datasets.resized_pictures(work / "pictures"),
        targets=(
            _speed("pictures resized before the crop, later epochs", "feedline", 1.5),
            _speed("pictures resized before the crop, cached, later epochs", "feedline-cached", 10.0),
        ),
        contents=fingerprint.of_pictures,
        checked=lambda _, work: datasets.evaluation_pictures(work / "pictures"),
        tolerance=fingerprint.PICTURE_TOLERANCE,
    ),
    Workload(
        "floats",
        "float32 [3, 224, 224] made in __getitem__, batch 64",
        samples=2048,
        batch=64,
        dataset=lambda samples, _: datasets.Floats(samples),
        targets=(_speed("float32 [3, 224, 224]", "feedline", 3.0),),
    ),
    Workload(
        "tokens",
        "int64 [512] tokens from a memmap, batch 64",
        samples=40_960,
        batch=64,
        dataset=datasets.Tokens,
        targets=_both("int64 [512] tokens", 1.5, 2.0),
    ),
    Workload(
        "rows",
        "NumPy rows of 3 KB, batch 256",
        samples=122_880,
        batch=256,
        dataset=lambda samples, _: datasets.Rows(samples),
        targets=_both("NumPy rows of 3 KB", 1.3, 2.5),
    ),
    Workload(
        "labelled-rows",
        "NumPy rows of 3 KB with an integer label, batch 256",
        samples=122_880,
        batch=256,
        dataset=lambda samples, _: datasets.LabelledRows(samples),
        targets=_both("NumPy rows of 3 KB with a label", 1.3, 2.5),
    ),
    Workload(
        "lists",
        "variable-length token lists with a padding collate, batch 64",
        samples=40_960,
        batch=64,
        dataset=lambda samples, _: datasets.TokenLists(samples),
        targets=(_speed("variable-length token lists, padding collate", "feedline", 1.1),),
        collate=datasets.padded,
        contents=fingerprint.of_padded,
    ),
    Workload(
        "arrow",
        "rows of an Arrow table, batch 64",
        samples=40_960,
        batch=64,
        dataset=lambda samples, _: datasets.ArrowRows(samples),
        targets=(_speed("rows of an Arrow table", "feedline", 1.2),),
        contents=fingerprint.of_dicts,
        needs="pyarrow",
    ),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
