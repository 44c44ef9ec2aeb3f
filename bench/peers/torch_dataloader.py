"""torch DataLoader with two worker processes, decoding with torchvision or with Pillow.

The same pipeline in full: every picture is decoded whole, the crop resized with antialias. `in_order=False` hands over
whichever batch is ready first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.pipeline import BATCH, WORKERS, Task


def _contend(task: Task, sample: str, in_order: bool) -> Window:
    from torch.utils.data import DataLoader, Dataset

    from bench.peers import torchvision_sample

    prepare: Callable[[str], Any] = getattr(torchvision_sample, sample)

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return len(task.paths)

        def __getitem__(self, index: int) -> Any:
            return prepare(task.paths[index]), index

    loader = DataLoader(Pictures(), BATCH, sampler=task.order(), num_workers=WORKERS, in_order=in_order)
    return task.measure(lambda: (pixels for pixels, _ in loader))


def _peer(name: str, title: str, sample: str, in_order: bool) -> Peer:
    differs = "" if in_order else "`in_order=False`: batches as they arrive"
    contend = partial(_contend, sample=sample, in_order=in_order)
    return Peer(name, f"torch DataLoader, {title}", differs, contend, packages=("torch", "torchvision"))


TORCHVISION = _peer("torch-torchvision", "torchvision", "from_path", in_order=True)
TORCHVISION_UNORDERED = _peer("torch-torchvision-unordered", "torchvision, any order", "from_path", in_order=False)
PILLOW = _peer("torch-pil", "Pillow", "from_path_with_pillow", in_order=True)
PILLOW_UNORDERED = _peer("torch-pil-unordered", "Pillow, any order", "from_path_with_pillow", in_order=False)
