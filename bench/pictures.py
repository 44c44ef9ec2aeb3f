"""The ImageNet training pipeline: RandomResizedCrop(224), flip, normalise, batch 64, two workers, a full decode each.

`python -m bench.pictures FOLDER [--runs 3]` races Feedline against torch DataLoader with torchvision's decoder and with
Pillow, on the same pictures, warm page cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import harness

BATCH, WORKERS, WARM, COUNT = 64, 2, 1000, 3000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def feedline(folder: str) -> None:
    import feedline as fl
    from feedline import ops

    chain = [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.RandomHorizontalFlip(), ops.Normalize()]

    def build() -> Iterator[Any]:
        loader = fl.Loader(fl.folder(folder), chain, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
        while True:
            yield from loader

    harness.report(harness.measure(build, lambda batch: len(batch["index"]), WARM, COUNT))


def torch(folder: str, decoder: str) -> None:
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    paths = sorted(str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    first = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    to_tensor = [v2.PILToTensor()] if decoder == "pil" else []
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    transform = v2.Compose([*first, *to_tensor, *last])

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            if decoder == "pil":
                with open(paths[index], "rb") as file:
                    return transform(Image.open(file).convert("RGB")), index
            return transform(decode_jpeg(read_file(paths[index]), mode=ImageReadMode.RGB)), index

    def build() -> Iterator[Any]:
        loader = DataLoader(Pictures(), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
        while True:
            yield from loader

    harness.report(harness.measure(build, lambda batch: len(batch[1]), WARM, COUNT))


CONTENDERS = {
    "feedline": feedline,
    "torch-torchvision": lambda folder: torch(folder, "torchvision"),
    "torch-pil": lambda folder: torch(folder, "pil"),
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
