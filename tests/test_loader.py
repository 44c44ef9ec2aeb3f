"""The loader's public contract: batches, epochs, and the numbers of a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from making import natural, save

import feedline as fl
from feedline import ops
from feedline.torch import to_tensor

CHAIN = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.RandomHorizontalFlip(), ops.Normalize()]


def numbers(n: int, **options: Any) -> fl.Loader:
    """A loader over ``n`` samples whose data are their ids."""
    options = {"batch_size": 4} | options
    labels = np.arange(n) % 3
    return fl.Loader(fl.array(np.arange(n, dtype=np.int64), labels=labels), **options)


def ids(batches: Any) -> list[int]:
    found: list[int] = []
    for batch in batches:
        assert batch["index"].tolist() == batch["data"].tolist(), "each id comes with its own data"
        found += batch["index"].tolist()
    return found


def threads() -> int:
    """The engine's threads, by their names."""
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir() if (task / "comm").exists()]
    return sum(name.startswith("feedline") for name in names)


def test_batches_are_dicts_of_arrays_with_the_promised_shapes(pictures: Callable[..., Path]) -> None:
    loader = fl.Loader(fl.folder(pictures(10)), CHAIN, batch_size=4)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    for batch, size in zip(batches, (4, 4, 2), strict=True):
        assert list(batch) == ["image", "label", "index"]
        described = {name: (type(array), str(array.dtype), array.shape) for name, array in batch.items()}
        assert described == {
            "image": (np.ndarray, "float32", (size, 3, 16, 16)),
            "label": (np.ndarray, "int64", (size,)),
            "index": (np.ndarray, "int64", (size,)),
        }
    assert loader.source.classes == ["cat", "dog"]


def test_fields_gives_tuples_in_the_requested_order_and_keys_are_names(pictures: Callable[..., Path]) -> None:
    root = pictures(5)
    loader = fl.Loader(fl.folder(root), CHAIN, batch_size=5, fields=("key", "label", "image"))
    ((keys, labels, images),) = list(loader)
    assert sorted(keys) == sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))
    assert [loader.source.classes[label] for label in labels] == [key.split("/")[0] for key in keys]
    assert images.shape == (5, 3, 16, 16)


def test_fields_may_leave_out_a_field_that_cannot_be_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", natural(8, 8))
    source = fl.files({"image": [path], "extra": [tmp_path / "missing.bin"]})
    ((image,),) = list(fl.Loader(source, [ops.DecodeImage()], batch_size=1, fields=("image",)))
    assert image.shape == (1, 8, 8, 3)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_arrays_are_the_users_own_and_never_change_after_delivery(
    framework: str, pictures: Callable[..., Path]
) -> None:
    loader = fl.Loader(fl.folder(pictures(24)), CHAIN, batch_size=2, framework=framework)
    kept, copies = [], []
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in loader:
            kept.append(batch)
            copies.append({name: np.asarray(array).copy() for name, array in batch.items()})
    loader.close()
    for batch, copy in zip(kept, copies, strict=True):
        for name, array in batch.items():
            assert np.array_equal(np.asarray(array), copy[name])
            array[...] = 7  # Writable, also after close.
    assert len({np.asarray(batch["image"]).ctypes.data for batch in kept}) == len(kept)


def test_list_of_loader_holds_all_batches_of_the_epoch() -> None:
    assert ids(list(numbers(1000, batch_size=7, num_workers=4))) == list(range(1000))


def test_torch_tensors_share_the_memory_of_the_array() -> None:
    array = np.arange(6, dtype=np.float32)
    assert to_tensor(array).data_ptr() == array.ctypes.data
    batch = next(iter(numbers(8, framework="torch")))
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
    batch["data"] += 1
    assert batch["data"].tolist() == [1, 2, 3, 4]


def test_arrays_go_through_dlpack_without_a_copy() -> None:
    batch = next(iter(numbers(8)))
    again, tensor = np.from_dlpack(batch["data"]), torch.from_dlpack(batch["data"])
    assert again.ctypes.data == tensor.data_ptr() == batch["data"].ctypes.data
    tensor[0] = 99
    assert batch["data"][0] == 99


@pytest.mark.parametrize("n", [1, 3, 4, 5, 12, 13])
@pytest.mark.parametrize("drop_last", [False, True])
def test_len_is_the_number_of_batches_and_drop_last_drops_the_rest(n: int, drop_last: bool) -> None:
    loader = numbers(n, drop_last=drop_last)
    batches = list(loader)
    assert len(loader) == len(batches) == (n // 4 if drop_last else -(-n // 4))
    assert ids(batches) == list(range(n // 4 * 4 if drop_last else n))


def test_shuffle_is_a_new_permutation_each_epoch_and_depends_on_the_seed() -> None:
    loader = numbers(200, shuffle=True, seed=3)
    epochs = [ids(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(200)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert ids(numbers(200, shuffle=True, seed=3)) == epochs[0] == loader.plan.indices(0)
    assert ids(numbers(200, shuffle=True, seed=4)) != epochs[0]
    assert loader.plan.indices(2) == epochs[2]


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_law_1_and_3_bytes_and_order_do_not_depend_on_the_number_of_workers(
    workers: int, pictures: Callable[..., Path]
) -> None:
    root = pictures(30)

    def stream(**options: Any) -> list[bytes]:
        chain = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.Normalize()]
        loader = fl.Loader(fl.folder(root), chain, batch_size=4, shuffle=True, **options)
        return [array.tobytes() for _ in range(2) for batch in loader for array in batch.values()]

    assert stream(num_workers=workers) == stream(
        num_workers=1, tuning=fl.tuning(prefetch_batches=1), memory_budget="300kB"
    )


def test_making_a_loader_and_its_iterator_starts_no_thread() -> None:
    before = threads()
    loader = numbers(100)
    iterator = iter(loader)
    len(loader), loader.snapshot(), loader.state_dict(), loader.plan.indices()
    assert threads() <= before
    next(iterator)
    assert threads() > 0


def test_iterating_again_is_the_next_epoch_also_after_a_break() -> None:
    reference = numbers(40, shuffle=True)
    expected = [ids(reference) for _ in range(4)]
    loader = numbers(40, shuffle=True)
    assert loader.epoch == 0
    assert ids(loader) == expected[0]
    for _ in loader:
        break
    assert loader.epoch == 2
    assert ids(loader) == expected[2]
    assert ids(loader) == expected[3]


def test_an_iterator_that_was_never_used_is_no_epoch() -> None:
    loader = numbers(8)
    iter(loader)
    assert loader.epoch == 0
    assert ids(loader) == loader.plan.indices(0)


def test_set_epoch_of_the_coming_epoch_changes_nothing() -> None:
    loader = numbers(40, shuffle=True)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(3)]
    state = loader.state_dict()
    del iterator
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert ids(first) + ids(loader) == loader.plan.indices(0)
    loader.set_epoch(1)
    assert ids(loader) == loader.plan.indices(1)


def test_set_epoch_of_another_epoch_starts_it_at_its_beginning() -> None:
    loader = numbers(40, shuffle=True)
    next(iter(loader))
    for epoch in (7, 0, 0, 3):
        loader.set_epoch(epoch)
        assert loader.epoch == epoch
        assert ids(loader) == loader.plan.indices(epoch)
    for _ in loader:
        break
    loader.set_epoch(4)
    assert ids(loader) == loader.plan.indices(4), "an epoch that was broken off can be run again"


def test_reopen_sees_new_files_and_goes_on_with_the_epoch(pictures: Callable[..., Path]) -> None:
    root = pictures(6)
    loader = fl.Loader(fl.folder(root), CHAIN, batch_size=4, framework="torch", shuffle=True)
    list(loader)
    save(root / "eel" / "new.png", natural(24, 32, 77))
    assert sum(len(batch["index"]) for batch in loader) == 6, "the listing is fixed for the life of the loader"
    fresh = loader.reopen()
    assert (len(fresh.source), fresh.source.classes, fresh.epoch) == (7, ["cat", "dog", "eel"], 2)
    batches = list(fresh)
    assert sorted(int(index) for batch in batches for index in batch["index"]) == list(range(7))
    assert isinstance(batches[0]["image"], torch.Tensor)


def test_a_plan_read_back_gives_the_same_stream(pictures: Callable[..., Path]) -> None:
    sampler = fl.weighted([1.0, 2.0, 3.0, 4.0] * 3, num_samples=20)
    for options in (
        {"shuffle": True, "seed": 5},
        {"sampler": sampler},
        {"fields": ("image", "key"), "drop_last": True},
    ):
        loader = fl.Loader(
            fl.folder(pictures(12)), CHAIN, batch_size=5, on_error=fl.substitute(0.1), num_workers=2, **options
        )
        text = loader.plan.to_toml()
        read = fl.Loader.from_plan(fl.Plan.from_toml(text))
        assert read.plan.to_toml() == text
        assert read.plan.fingerprints == loader.plan.fingerprints
        for one, other in zip(loader, read, strict=True):
            pairs = zip(one, other, strict=True) if isinstance(one, tuple) else ((one[k], other[k]) for k in one)
            assert all(np.array_equal(a, b) for a, b in pairs)


def test_the_snapshot_is_plain_data_and_its_numbers_add_up(
    pictures: Callable[..., Path], wait_until: Callable[..., None]
) -> None:
    root = pictures(12)
    loader = fl.Loader(fl.folder(root), CHAIN, batch_size=4, num_workers=2, tuning=fl.tuning(prefetch_batches=2))
    start = loader.snapshot()
    assert (start["batches"], start["samples"], start["store"]["bytes"]) == (0, 0, 0)
    batches = list(loader)
    wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] == 2, "two batches of the next epoch are ready")
    snapshot = loader.snapshot()
    assert json.loads(json.dumps(snapshot)) == snapshot
    assert set(snapshot) == {
        "batches", "samples", "content_bytes", "num_workers", "idle_seconds", "memory_wait_seconds",
        "core_seconds", "core_wait_seconds", "loading", "ops", "store", "seek_index", "cache",
        "reservoir", "queue", "memory", "costs", "stall_seconds", "substituted", "substitutes",
    }  # fmt: skip
    assert (snapshot["batches"], snapshot["samples"], snapshot["num_workers"]) == (3, 12, 2)
    assert snapshot["content_bytes"] == sum(array.nbytes for batch in batches for array in batch.values())
    assert [op["name"] for op in snapshot["ops"]] == [type(op).__name__ for op in CHAIN]
    # Two batches of the next epoch are prepared, not delivered.
    assert [op["samples"] for op in snapshot["ops"]] == [20] * 4
    assert snapshot["loading"]["samples"] == 20
    assert snapshot["loading"]["busy_seconds"] >= snapshot["store"]["busy_seconds"] > 0
    per_sample = [24 * 32 * 3, 16 * 16 * 3, 16 * 16 * 3, 16 * 16 * 3 * 4]
    assert [op["bytes_out"] for op in snapshot["ops"]] == [20 * size for size in per_sample]
    files = sorted(root.rglob("*.png"))
    sizes = [path.stat().st_size for path in files]
    assert snapshot["store"]["bytes"] == sum(sizes) + sum(sizes[:8])
    assert snapshot["queue"]["limit_batches"] == snapshot["queue"]["open_batches"] == 2
    assert (
        0 < snapshot["memory"]["used_bytes"] <= snapshot["memory"]["peak_bytes"] <= snapshot["memory"]["budget_bytes"]
    )
    assert set(snapshot["stall_seconds"]) == {"start", "read", "prepare", "memory"}
    assert all(op["busy_seconds"] > 0 for op in snapshot["ops"])
    assert (snapshot["substituted"], snapshot["substitutes"]) == (0, [])
