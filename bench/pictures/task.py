"""What a contender is told: which pipeline, on which files, with how many threads.

In: a line of JSON. Out: a `Task`, and its measurement. A loader is something that gives one epoch each time it is
iterated: batches of arrays, of which the first are pixels and the last are the numbers of the files. Importing this
imports no contender.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

BATCH = 64
SHORT_SIDE, SIDE = 256, 224
MASK_SHORT_SIDE, MASK_SIDE = 512, 448
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
VALIDATION, TRAINING, COLOUR, SEGMENTATION = "validation", "training", "colour", "segmentation"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff")
COUNTED_SAMPLES = 2000
LEAST_EPOCHS = 3

Loader = Iterable[tuple[Any, ...]]


@dataclass(frozen=True)
class Task:
    """The input of a contender. Contents are compared on pipelines without random ops."""

    pipeline: str
    folder: str
    threads: int | str = 1
    masks: str = ""
    work: str = ""
    is_checked: bool = False

    @property
    def arguments(self) -> list[str]:
        """This task as a command line."""
        return [json.dumps(asdict(self))]

    @classmethod
    def of(cls, argument: str) -> Task:
        """Parse the command line of a contender."""
        return cls(**json.loads(argument))

    @cached_property
    def paths(self) -> list[str]:
        """All pictures, sorted."""
        return [str(path) for path in sorted(Path(self.folder).rglob("*")) if path.suffix.lower() in SUFFIXES]

    @cached_property
    def mask_paths(self) -> list[str]:
        """The mask of each picture."""
        return [str(Path(self.masks) / f"{Path(path).stem}.png") for path in self.paths]

    @property
    def workers(self) -> int:
        """Worker processes of loaders that have them. With one thread the main process prepares the samples itself."""
        assert isinstance(self.threads, int)
        return self.threads if self.threads > 1 else 0

    def measure(self, loader: Loader) -> harness.Window:
        """Measure whole epochs after a first one."""
        epochs = max(LEAST_EPOCHS, round(COUNTED_SAMPLES / len(self.paths)))
        count = epochs * len(self.paths)
        return harness.measure(lambda: endless(loader), len, len(self.paths), count, self.check)

    def check(self, pixels: Any) -> None:
        """Raise unless a batch has normalised pixels of different pictures."""
        side = MASK_SIDE if self.pipeline == SEGMENTATION else SIDE
        array = np.asarray(pixels)
        assert array.shape[1:] in ((3, side, side), (side, side, 3)), f"a batch has shape {array.shape}"
        assert array.dtype == np.float32, f"a batch is of {array.dtype}"
        assert abs(float(array.mean())) < 1.5, f"a batch has mean {array.mean():.2f}"
        assert 0.3 < float(array.std()) < 2, f"a batch has standard deviation {array.std():.2f}"


def endless(loader: Loader) -> Iterator[Any]:
    """Pixels of batches, epoch after epoch."""
    while True:
        for batch in loader:
            yield batch[0]


def run(build: Callable[[Task], Loader], argument: str) -> None:
    """Run in the process of a contender: measure its loader, or describe the contents of an epoch."""
    task = Task.of(argument)
    loader = build(task)
    if task.is_checked:
        print("RESULT " + json.dumps({"contents": contents(loader)}), flush=True)
    else:
        harness.report(task.measure(loader))


def contents(loader: Loader) -> list[list[float]]:
    """For each file: its number, and the means of 16 tiles of its pixels and of its mask."""
    rows: list[list[float]] = []
    for batch in loader:
        *fields, numbers = (np.asarray(field) for field in batch)
        means = np.concatenate([_tiles(field) for field in fields], axis=1)
        rows += [[float(number), *tiles] for number, tiles in zip(numbers.reshape(-1), means.tolist(), strict=True)]
    return sorted(rows)


def _tiles(field: Any, count: int = 4) -> Any:
    # Channels come last or first. Those that are last are moved.
    if field.ndim == 4 and field.shape[-1] in (1, 3):
        field = np.moveaxis(field, -1, 1)
    samples, height, width = len(field), field.shape[-2] // count, field.shape[-1] // count
    cut = field[..., : height * count, : width * count].reshape(samples, -1, count, height, count, width)
    return cut.astype(np.float64).mean(axis=(1, 3, 5)).reshape(samples, -1)
