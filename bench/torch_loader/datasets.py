"""The datasets of the benchmark, as users write them. None of them knows its loader.

In: the number of samples, and a folder for files that are made once. Out: map-style datasets. Always true: the values
of a sample depend on its index only, except for pictures, whose training transforms are random.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from bench.pipeline import MEAN, SIDE, STD

TOKEN_COUNT, VOCABULARY = 512, 50_000
ROW_BYTES = 3072


def picture_folder(pictures: Path, work: Path) -> Path:
    """Return a folder with the layout of ImageFolder: links to all pictures, each in a class of its own."""
    found = sorted(path for path in pictures.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    for path in found:
        link = work / path.stem / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(path.resolve())
    return work


def training_pictures(folder: Path) -> Dataset[Any]:
    """ImageFolder with the usual transforms of a training script."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), *_to_normalised_tensor()]
    return ImageFolder(str(folder), transforms.Compose(steps))


def resized_pictures(folder: Path) -> Dataset[Any]:
    """The same pictures with a resize before the random crop, so that a cache can keep them resized."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [transforms.Resize(256), transforms.RandomCrop(SIDE), transforms.RandomHorizontalFlip()]
    return ImageFolder(str(folder), transforms.Compose([*steps, *_to_normalised_tensor()]))


def evaluation_pictures(folder: Path) -> Dataset[Any]:
    """The same pictures with transforms that are not random, so that loaders can be compared."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [transforms.Resize(256), transforms.CenterCrop(SIDE), *_to_normalised_tensor()]
    return ImageFolder(str(folder), transforms.Compose(steps))


def _to_normalised_tensor() -> list[Any]:
    from torchvision import transforms

    return [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]


class Floats(Dataset[Any]):
    """float32 [3, 224, 224], made by one addition."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.base = torch.rand(64, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.base[index % 64] + index, index % 10


class Tokens(Dataset[Any]):
    """int64 [512], read from a memory-mapped file of int32."""

    def __init__(self, samples: int, work: Path) -> None:
        path = work / f"tokens-{samples}.npy"
        if not path.exists():
            tokens = np.random.default_rng(0).integers(0, VOCABULARY, (samples, TOKEN_COUNT), dtype=np.int32)
            # Written under another name first: two processes may make the file at once.
            part = path.with_name(f"{path.stem}-{os.getpid()}.npy")
            np.save(part, tokens)
            part.rename(path)
        self.tokens = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.tokens[index].astype(np.int64))


class Rows(Dataset[Any]):
    """Rows of a NumPy array, 3 KB each."""

    def __init__(self, samples: int) -> None:
        self.rows = np.random.default_rng(0).integers(0, 255, (samples, ROW_BYTES), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class LabelledRows(Rows):
    """Rows of a NumPy array with a Python integer."""

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index % 10


class TokenLists(Dataset[Any]):
    """Python lists of 20 to 200 tokens. Zero is the padding, so it is no token."""

    def __init__(self, samples: int) -> None:
        random = np.random.default_rng(0)
        lengths = random.integers(20, 200, samples)
        self.lists = [random.integers(1, VOCABULARY, length).tolist() for length in lengths]

    def __len__(self) -> int:
        return len(self.lists)

    def __getitem__(self, index: int) -> list[int]:
        return self.lists[index]


def padded(lists: list[list[int]]) -> torch.Tensor:
    """Collate lists of tokens to one tensor, as long as the longest."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in lists], batch_first=True)


class ArrowRows(Dataset[Any]):
    """Rows of an Arrow table as dicts: two integers, a float and a string."""

    def __init__(self, samples: int) -> None:
        import pyarrow

        random = np.random.default_rng(0)
        self.table = pyarrow.table(
            {
                "id": np.arange(samples),
                "label": random.integers(0, 1000, samples),
                "score": random.random(samples),
                "text": [f"the text of row {index}, which is as long as a title" for index in range(samples)],
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: self.table.column(name)[index].as_py() for name in self.table.column_names}
