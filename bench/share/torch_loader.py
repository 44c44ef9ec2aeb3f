"""The same job with a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.pipeline import WORKERS


def loader(folder: Path, batch: int) -> tuple[int, Iterable[Any]]:
    """Give the number of samples and a DataLoader."""
    from torch.utils.data import DataLoader, Dataset

    from bench.peers.torchvision_sample import from_path

    paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> Any:
            return from_path(paths[number]), number

    return len(paths), DataLoader(
        Pictures(), batch_size=batch, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
