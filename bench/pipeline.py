"""The ImageNet training pipeline that contenders run, and their input.

RandomResizedCrop(224), flip, normalised float32, batch 64, two threads or workers. In: a folder of JPEG files. Out: a
`Task` for a contender, the window of its batches. Always true: every contender is measured here, over whole epochs, and
its last batch is looked at.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

BATCH, WORKERS, SIDE = 64, 2, 224
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MEAN_255, STD_255 = [255 * value for value in MEAN], [255 * value for value in STD]
WARM_SAMPLES, COUNTED_SAMPLES = 1000, 3000


@dataclass(frozen=True)
class Task:
    """The input of a contender: the pictures, a folder for its own files, the number of measured epochs."""

    folder: Path
    work: Path = Path()
    epochs_asked: int = 0

    @classmethod
    def of(cls, folder: str, work: str = "", epochs: str = "0") -> Task:
        """Parses the command line of a contender."""
        return cls(Path(folder), Path(work), int(epochs))

    def within(self, name: str) -> Task:
        """The same task with a folder of this name for its files."""
        return replace(self, work=self.work / name)

    @property
    def arguments(self) -> list[str]:
        """This task as a command line."""
        return [str(self.folder), str(self.work), str(self.epochs_asked)]

    @property
    def fingerprint(self) -> str:
        """A key that changes with the pictures and with the length of a run."""
        facts = [(path, Path(path).stat().st_size, Path(path).stat().st_mtime_ns) for path in self.paths]
        return f"{hashlib.sha256(repr(facts).encode()).hexdigest()} {self.all_epochs}"

    @cached_property
    def paths(self) -> list[str]:
        """All pictures, sorted."""
        found = (path for path in self.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        return sorted(str(path) for path in found)

    @cached_property
    def bytes(self) -> int:
        """Bytes of all pictures."""
        return sum(Path(path).stat().st_size for path in self.paths)

    @property
    def epochs(self) -> int:
        """Measured epochs: the requested number, or enough for a steady figure."""
        return self.epochs_asked or max(1, round(COUNTED_SAMPLES / len(self.paths)))

    @property
    def warm_epochs(self) -> int:
        """Epochs before the measurement starts."""
        return math.ceil(WARM_SAMPLES / len(self.paths))

    @property
    def all_epochs(self) -> int:
        """Epochs of a whole run, with one more for read-ahead."""
        return self.warm_epochs + self.epochs + 1

    def order(self) -> list[int]:
        """Several shuffled epochs as one sequence, so that no contender pays for epoch starts. Real epochs are long."""
        generator = random.Random(0)
        return [
            index for _ in range(self.all_epochs) for index in generator.sample(range(len(self.paths)), len(self.paths))
        ]

    def measure(self, batches: Callable[[], Iterable[Any]]) -> harness.Window:
        """Measures an iteration over arrays of pixels, after a warm-up."""
        warm, count = (epochs * len(self.paths) for epochs in (self.warm_epochs, self.epochs))
        return harness.measure(batches, len, warm, count, check)

    def measure_from_the_start(self, batches: Callable[[], Iterable[Any]]) -> harness.Window:
        """Measures an iteration over a few whole epochs, including their start."""
        return harness.measure(batches, len, 0, self.epochs * len(self.paths), check)


def check(batch: Any) -> None:
    """Raises unless a batch has normalised pixels of different pictures, as the pipeline requires."""
    pixels = np.asarray(batch)
    assert pixels.shape[1:] in ((3, SIDE, SIDE), (SIDE, SIDE, 3)), f"a batch has shape {pixels.shape}"
    assert len(pixels) <= BATCH, f"a batch has {len(pixels)} samples, {BATCH} were asked for"
    assert pixels.dtype == np.float32, f"a batch is of {pixels.dtype}"
    mean, deviation = float(pixels.mean()), float(pixels.std())
    assert abs(mean) < 1, f"a batch has mean {mean:.2f}"
    assert 0.5 < deviation < 2, f"a batch has standard deviation {deviation:.2f}"
    assert len({float(sample.mean()) for sample in pixels}) > len(pixels) // 2, "a batch repeats its pictures"
