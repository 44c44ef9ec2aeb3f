"""What jobs do: the data they read and the ops they ask for.

In: the name of a work, a folder, how samples come (shared, of an own loader). Out: a loader. Always true: jobs of one
work have the same source and ops, whatever else they are, so those that share are served by one run of a node.
"""

from __future__ import annotations

from typing import Any

import feedline as fl
from bench.pipeline import MEAN, SIDE, STD, WORKERS
from feedline import ops

SHORT_SIDE, CROP = 256, 128


def imagenet() -> list[ops.Op]:
    """Give the ops of ImageNet training."""
    return [ops.DecodeImage(), ops.RandomResizedCrop(SIDE), ops.RandomHorizontalFlip(), ops.Normalize(MEAN, STD)]


def resized() -> list[ops.Op]:
    """Give ops of which the first two are the same in each epoch, so that their work can be kept."""
    return [ops.DecodeImage(), ops.Resize(SHORT_SIDE), ops.RandomCrop(SIDE), ops.Normalize(MEAN, STD)]


def volumes() -> list[ops.Op]:
    """Give the random ops of MLPerf's 3D U-Net."""
    random = [ops.RandomBrightness(), ops.GaussianNoise()]
    return [ops.RandomBalancedCrop(CROP), ops.RandomFlip3d(), ops.Cast(), *random]


CHAINS = {"imagenet": imagenet, "resized": resized, "volumes": volumes}
KEPT = {"resized": fl.cache(disk="16GB", form="resized")}


def source(work: str, folder: str) -> fl.Source:
    """Give the samples of a work."""
    return fl.volumes(folder) if work == "volumes" else fl.folder(folder)


def loader(work: str, over: fl.Source, kind: str, socket: str, batch: int, weight: float = 1.0) -> fl.Loader:
    """Give a loader: `shared` from the node at the socket, or of its `own`."""
    more: dict[str, Any] = {"num_workers": WORKERS}
    if kind == "shared":
        more = {"share": fl.share(socket, weight=weight), "cache": KEPT.get(work)}
    return fl.Loader(over, CHAINS[work](), batch_size=batch, shuffle=True, **more)
