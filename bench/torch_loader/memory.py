"""Memory: total PSS of a loader with four workers after one epoch, against one process that holds the dataset.

In: datasets of 1 GB, as arrays, tensors, bytes and Python objects. Out: megabytes by kind of dataset and contender. PSS
counts a page that several processes share once. Pages of files, such as torch's libraries, are counted as on a machine
where no other program has them open. All workers are forked here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from bench import harness
from bench.ratio import Ratio
from bench.torch_loader import loaders
from bench.torch_loader.setting import Setting

DATASET_MB, WORKERS, BATCH = 1000, 4, 32
SAMPLE_BYTES, BYTES_OBJECT = 10_000, 100_000
LIST_LENGTH = 100
INT_BYTES = 32 + 8
"""Bytes of an integer in a list: the object and the pointer."""
LIMIT = 1.15
RUNS = 2
"""The least of these runs counts: loaders prepare more batches ahead while other programs delay them."""
ALONE = "alone"
"""The contender that holds the dataset in one process and reads it without a loader."""
AGAINST_TORCH = "lists"
"""The kind that is compared with torch's workers: reading Python objects copies their pages in both."""


def contenders(kind: str) -> list[str]:
    """The loaders that are measured on a kind of dataset. SPDL's processes are forked, too, so they share it."""
    return [ALONE, *(["torch"] if kind == AGAINST_TORCH else []), "feedline", loaders.SPDL]


class Held(Dataset[Any]):
    """A dataset in memory. `read` makes the sample of an index from it."""

    def __init__(self, data: Any, count: int, read: Callable[[Any, int], Any]) -> None:
        self.data, self.count, self.read = data, count, read

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.read(self.data, index)


def _item(data: Any, index: int) -> Any:
    return data[index]


def _part(data: bytes, index: int) -> Any:
    return np.frombuffer(data, np.uint8, SAMPLE_BYTES, index * SAMPLE_BYTES)


def _frombuffer(data: list[bytes], index: int) -> Any:
    return np.frombuffer(data[index], np.uint8)


def _tensor(data: Any, index: int) -> Any:
    return torch.tensor(data[index])


def _array(size: int) -> np.ndarray[Any, Any]:
    return np.ones((size // SAMPLE_BYTES, SAMPLE_BYTES), np.uint8)


def _lists(size: int) -> list[list[int]]:
    length = size // (LIST_LENGTH * INT_BYTES)
    # Integers above 256 are objects of their own.
    return [list(range(1000 + index, 1000 + index + LIST_LENGTH)) for index in range(length)]


def _shared_list(size: int) -> Any:
    from feedline.torch import SharedList

    # Pickled, an integer takes three bytes.
    length = size // (LIST_LENGTH * 3)
    return SharedList(list(range(1000, 1000 + LIST_LENGTH)) for _ in range(length))


KINDS: dict[str, tuple[str, Callable[[int], Any], Callable[[Any, int], Any]]] = {
    "array": ("a NumPy array", _array, _item),
    "tensor": ("a torch tensor", lambda size: torch.from_numpy(_array(size)), _item),
    "bytes": ("one bytes object", lambda size: b"\1" * size, _part),
    "bytes-list": (
        "a list of bytes objects of 100 KB",
        lambda size: [bytes([1]) * BYTES_OBJECT for _ in range(size // BYTES_OBJECT)],
        _frombuffer,
    ),
    "arrays": ("a list of NumPy arrays of 10 KB", lambda size: [row.copy() for row in _array(size)], _item),
    "lists": ("Python lists of integers", _lists, _tensor),
    "shared-list": ("feedline.torch.SharedList of lists", _shared_list, _tensor),
}


def contend(contender: str, kind: str, megabytes: str, run: str) -> dict[str, Any]:
    """Hold the dataset, read all of it once, and return the memory of this process and its workers."""
    _, make, read = KINDS[kind]
    size = int(megabytes) * 1_000_000
    data = make(size)
    # Building leaves freed memory in the heap. It is not the dataset, and would hide copies of it in the comparison.
    ctypes.CDLL(None).malloc_trim(0)
    dataset = Held(data, size // SAMPLE_BYTES if kind == "bytes" else len(data), read)
    seen = 0
    if contender == ALONE:
        for index in range(len(dataset)):
            seen += len(dataset[index][None])
        batches = None
    else:
        loader = loaders.make(contender, dataset, loaders.Order(BATCH, WORKERS))
        batches = iter(loader)
        for batch in batches:
            seen += len(batch)
    assert seen == len(dataset), "each sample is delivered once"
    processes = [process for process, _ in harness._tree(os.getpid())]
    assert len(processes) == (1 if contender == ALONE else 1 + WORKERS), "persistent workers still run"
    return {"pss_mb": _pss_bytes(processes) / 1e6, "plain_pss_mb": harness.tree_pss_bytes(os.getpid()) / 1e6}


def _pss_bytes(processes: list[int]) -> int:
    """PSS of a process tree. Of the pages of files, those of the process with the most count."""
    parts = [_kilobytes(Path(f"/proc/{process}/smaps_rollup")) for process in processes]
    files = [_kilobytes(Path(f"/proc/{process}/status"))["RssFile"] for process in processes]
    return 1024 * (sum(part["Pss_Anon"] + part["Pss_Shmem"] for part in parts) + max(files))


def _kilobytes(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].removesuffix(":"): int(words[1]) for words in lines if words[-1] == "kB"}


def measure(setting: Setting) -> dict[str, Any]:
    """Return the least memory of each contender by kind of dataset."""
    megabytes = DATASET_MB // 20 if setting.is_quick else DATASET_MB
    found = {}
    for kind in KINDS:
        results = replace(setting, runs=min(setting.runs, RUNS), wait_seconds=0.0).alternate(
            f"memory, {kind}", contenders(kind), "memory", kind, str(megabytes)
        )
        found[kind] = {name: min(runs, key=lambda run: float(run["pss_mb"])) for name, runs in results.items() if runs}
    return found


def ratios(results: Mapping[str, Mapping[str, Any]]) -> list[Ratio]:
    """Memory against one process that holds the dataset; of Python lists, against torch with fork."""
    found = []
    for kind, (title, _, _) in KINDS.items():
        against, limit = ("torch", 1.0) if kind == AGAINST_TORCH else (ALONE, LIMIT)
        both = results.get(kind, {})
        value = both["feedline"]["pss_mb"] / both[against]["pss_mb"] if {"feedline", against} <= set(both) else None
        what = "torch's with fork" if against == "torch" else "one process"
        found.append(Ratio(f"memory of 1 GB as {title}, 4 workers: PSS / {what}", value, "at most", limit))
    return found
