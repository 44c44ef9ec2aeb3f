"""Stop in the middle of an epoch and go on exactly where it stopped, as after a crash.

Run: python examples/resume.py FOLDER
"""

from __future__ import annotations

import json
import sys

import numpy as np

import feedline as fl
from feedline import ops


def open_loader(folder: str, num_workers: int) -> fl.Loader:
    """Make the same stream, with any number of threads."""
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(64), ops.ColorJitter(brightness=0.4), ops.Normalize()]
    return fl.Loader(fl.folder(folder), chain, batch_size=16, shuffle=True, seed=7, num_workers=num_workers)


def main() -> None:
    """Compare an epoch without a stop with one that was resumed by another loader."""
    folder = sys.argv[1]
    with open_loader(folder, num_workers=2) as loader:
        whole = list(loader)

    with open_loader(folder, num_workers=2) as loader:
        for _batch, _step in zip(loader, range(3), strict=False):
            saved = json.dumps(loader.state_dict())

    with open_loader(folder, num_workers=1) as loader:
        loader.load_state_dict(json.loads(saved))
        rest = list(loader)

    same = all(np.array_equal(a["image"], b["image"]) for a, b in zip(whole[3:], rest, strict=True))
    if not same:
        sys.exit("the resumed stream differs")
    print(f"resumed after 3 of {len(whole)} batches with another number of threads: the rest is the same")


if __name__ == "__main__":
    main()
