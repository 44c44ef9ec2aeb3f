"""Small samples: pictures of 32 x 32 from an array, and rows of 8 bytes.

The figures are CPU time per sample for pictures, samples per second on two threads for rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bench import harness
from bench.pictures.files import is_disturbed
from bench.pictures.setting import Results, Setting
from bench.ratio import Ratio

PICTURES, ROWS = "small", "rows"
SIDE, PADDING, BATCH, ROW_BYTES, ROW_BATCH = 32, 4, 256, 8, 1024
SAMPLES, ROW_SAMPLES = 50_000, 2_000_000
EPOCHS = 3
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def pixels(samples: int) -> Any:
    """Random pictures, the same for all."""
    return np.random.default_rng(0).integers(0, 256, (samples, SIDE, SIDE, 3), np.uint8)


def _measure(loader: Iterable[Any], samples: int, shape: tuple[int, ...]) -> None:
    """Measure some epochs after a first one, and report."""

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    def check(batch: Any) -> None:
        array = np.asarray(batch)
        assert array.shape[1:] == shape, f"a batch has shape {array.shape}"
        assert array.std() > 0.5, "a batch repeats one value"

    harness.report(harness.measure(batches, len, samples, EPOCHS * samples, check))


def contend_feedline(argument: str) -> None:
    """Feedline, over an array in memory."""
    import feedline as fl
    from feedline import ops

    given = json.loads(argument)
    samples, threads = given["samples"], given["threads"]
    if given["row"] == ROWS:
        rows = np.random.default_rng(0).integers(0, 256, (samples, ROW_BYTES), np.uint8)
        loader = fl.Loader(fl.array(rows), [], batch_size=ROW_BATCH, shuffle=True, num_workers=threads)
        (field,) = (name for name, array in next(iter(loader)).items() if array.shape[1:] == (ROW_BYTES,))
        return _measure((batch[field] for batch in _again(loader)), samples, (ROW_BYTES,))
    chain = [ops.RandomCrop(SIDE, padding=PADDING), ops.RandomHorizontalFlip(), ops.Normalize(MEAN, STD)]
    loader = fl.Loader(fl.array(pixels(samples)), chain, batch_size=BATCH, shuffle=True, num_workers=threads)
    return _measure((batch["image"] for batch in _again(loader)), samples, (3, SIDE, SIDE))


def contend_torch(argument: str) -> None:
    """torch's DataLoader over a dataset of tensors, with transforms v2 for each picture."""
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    given = json.loads(argument)
    samples, threads = given["samples"], given["threads"]
    if given["row"] == ROWS:
        rows = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (samples, ROW_BYTES), np.uint8))
        options: dict[str, Any] = {"batch_size": ROW_BATCH, "shuffle": True, "num_workers": threads}
        return _measure(_again(DataLoader(rows, persistent_workers=True, **options)), samples, (ROW_BYTES,))
    crop = [v2.RandomCrop(SIDE, padding=PADDING), v2.RandomHorizontalFlip()]
    transforms = v2.Compose([*crop, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    tensors = torch.from_numpy(pixels(samples)).permute(0, 3, 1, 2).contiguous()

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return samples

        def __getitem__(self, index: int) -> Any:
            return transforms(tensors[index])

    loader = DataLoader(Pictures(), BATCH, shuffle=True, num_workers=threads if threads > 1 else 0)
    return _measure(_again(loader), samples, (3, SIDE, SIDE))


def _again(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _argument(row: str, samples: int, threads: int, **more: str) -> list[str]:
    return [json.dumps({"row": row, "samples": samples, "threads": threads, **more})]


def measure_pictures(setting: Setting) -> Results:
    """Pictures of 32 x 32, one thread and two."""
    samples = setting.samples(SAMPLES)
    work = setting.work / "small-ffcv"
    work.mkdir(parents=True, exist_ok=True)
    arguments = _argument(PICTURES, samples, 1, work=str(work))
    setting.ask(PICTURES, "small-ffcv-file", arguments)
    found: Results = {}
    for threads in (1, 2):
        names = ["small-feedline", "small-torch", "small-ffcv"]
        results = setting.race(PICTURES, names, _argument(PICTURES, samples, threads, work=str(work)))
        found.update({f"{name.removeprefix('small-')}, {threads}": result for name, result in results.items()})
    return found


def measure_rows(setting: Setting) -> Results:
    """Rows of 8 bytes, two threads. torch needs microseconds for each, so it has fewer."""
    ours = setting.race(ROWS, ["small-feedline"], _argument(ROWS, setting.samples(ROW_SAMPLES), 2))
    torch = setting.race(ROWS, ["small-torch"], _argument(ROWS, setting.samples(ROW_SAMPLES) // 10, 2))
    return {name.removeprefix("small-"): result for name, result in {**ours, **torch}.items()}


def picture_ratios(results: Results) -> Iterator[Ratio]:
    """CPU time of a sample."""
    ours, torch = results.get("feedline, 1"), results.get("torch, 1")
    micros = 1e3 * ours["cpu_ms_per_sample"] if ours else None
    yield Ratio("32x32 from an array: CPU us a sample", micros, "at most", 4.0)
    value = torch["cpu_ms_per_sample"] / ours["cpu_ms_per_sample"] if ours and torch else None
    yield Ratio("32x32 from an array: CPU per sample, torch / Feedline", value, "at least", 20.0)


def row_ratios(results: Results) -> Iterator[Ratio]:
    """Samples per second."""
    ours = results.get("feedline")
    value = ours["samples_per_second"] if ours else None
    disturbed = bool(ours and is_disturbed(ours))
    yield Ratio("rows of 8 bytes, batch 1024, samples/s on two cores", value, "at least", 1_500_000, disturbed)
