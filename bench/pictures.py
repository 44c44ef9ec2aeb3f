"""The ImageNet training pipeline: RandomResizedCrop(224), flip, normalise, batch 64, two workers, a full decode each.

`python -m bench.pictures FOLDER [--runs 3]` races Feedline against torch DataLoader with torchvision's decoder and with
Pillow, on the same pictures, warm page cache. The race against all peers is `python -m bench.peers`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers import torch_dataloader
from bench.pipeline import BATCH, SIDE, WORKERS, Task


def feedline(*arguments: str) -> None:
    import feedline as fl
    from feedline import ops

    task = Task.of(*arguments)
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(SIDE), ops.RandomHorizontalFlip(), ops.Normalize()]

    def batches() -> Iterator[Any]:
        loader = fl.Loader(fl.folder(str(task.folder)), chain, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
        while True:
            for batch in loader:
                yield batch["image"]

    harness.report(task.measure(batches))


CONTENDERS = {
    "feedline": feedline,
    torch_dataloader.TORCHVISION.name: torch_dataloader.TORCHVISION.run,
    torch_dataloader.PILLOW.name: torch_dataloader.PILLOW.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    results = harness.race(list(CONTENDERS), [arguments.folder], arguments.runs)
    ours, torchvision, pil = (results[name] for name in CONTENDERS)
    ratios = {
        "feedline / torch with torchvision decode (at least 1.7)": ours["samples_per_second"]
        / torchvision["samples_per_second"],
        "feedline / torch with Pillow (at least 2.5)": ours["samples_per_second"] / pil["samples_per_second"],
        "peak memory, feedline / torch with torchvision (at most 0.5)": ours["peak_mb"] / torchvision["peak_mb"],
        "first batch of feedline in seconds (at most 0.3)": ours["first_batch_seconds"],
    }
    title = f"RandomResizedCrop(224), flip, normalise, batch {BATCH}, {WORKERS} workers, full decode"
    pictures = sum(1 for path in Path(arguments.folder).rglob("*") if path.is_file())
    harness.finish("pictures", title, results, ratios, pictures=pictures, data=Path(arguments.folder).name)


if __name__ == "__main__":
    main()
