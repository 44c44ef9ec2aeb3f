"""Law 5: memory stays within ``memory_budget``, even with samples that are larger than the budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save

import feedline as fl
from feedline import ops

MB = 1_000_000

MEASURE = """
import json, sys
import feedline as fl
from feedline import ops
from making import peak_bytes

options = json.loads(sys.argv[2])
chain = [ops.DecodeImage(), ops.RandomResizedCrop(32), ops.Normalize()]
small = fl.Loader(fl.folder(sys.argv[1]).subset([0]), chain, batch_size=1, num_workers=1)
list(small)
small.close()
loader = fl.Loader(fl.folder(sys.argv[1]), chain, **options)
before = peak_bytes()
for epoch in range(2):
    for batch in loader:
        pass
snapshot = loader.snapshot()
print(json.dumps({"growth": peak_bytes() - before, "memory": snapshot["memory"], "samples": snapshot["samples"]}))
"""


SEARCH = """
import json, sys
import feedline as fl
from feedline import ops
from making import peak_bytes

chain = [ops.RandomBalancedCrop(4, oversampling=1.0)]
pair = (sys.argv[1] + "/image.npy", sys.argv[1] + "/label.npy")
loader = fl.Loader(fl.volumes([pair]), chain, batch_size=1, num_workers=1, memory_budget="1MB",
                   tuning=fl.tuning(prefetch_batches=1))
before = peak_bytes()
next(iter(loader))
print(json.dumps({"growth": peak_bytes() - before, "memory": loader.snapshot()["memory"]}))
"""

TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
"""EXIF data with orientation 6."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": ("jpg", {"quality": 80}),
    "turned": (
        "jpg",
        {"quality": 80, "exif": TURNED},
    ),
    "progressive": ("jpg", {"quality": 80, "progressive": True}),
    "png": ("png", {"compress_level": 1}),
    "webp": ("webp", {"quality": 80, "method": 0}),
}

ALONE = {"jpeg": 11 * MB, "turned": 20 * MB, "progressive": 25 * MB, "png": 18 * MB, "webp": 11 * MB}
"""Memory of one picture: 9 MB of pixels, the file, and the decoder's own memory (coefficients, planes)."""


@pytest.fixture(scope="module")
def big_pictures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of 13 pictures: the first small, the others 1500 x 2000, 9 MB each once decoded."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            root = made[kind] = tmp_path_factory.mktemp(kind)
            ending, options = KINDS[kind]
            save(root / f"0000.{ending}", natural(16, 16))
            first = save(root / f"0001.{ending}", natural(1500, 2000), **options)
            for number in range(2, 13):
                (root / f"{number:04}.{ending}").write_bytes(first.read_bytes())
        return made[kind]

    return make


def measured(run_python: Callable[..., str], root: Path, **options: Any) -> dict[str, Any]:
    return json.loads(run_python(MEASURE, root, json.dumps(options), seconds=60))


@pytest.mark.parametrize(
    ("kind", "budget", "workers"),
    [("jpeg", 20 * MB, 8), ("jpeg", 2 * MB, 4), ("turned", 20 * MB, 8), ("progressive", 20 * MB, 8),
     ("png", 20 * MB, 8), ("webp", 20 * MB, 8), ("jpeg", 60 * MB, 2)],
)  # fmt: skip
def test_the_peak_of_the_process_grows_by_little_more_than_the_budget(
    run_python: Callable[..., str], big_pictures: Callable[[str], Path], kind: str, budget: int, workers: int
) -> None:
    found = measured(run_python, big_pictures(kind), batch_size=4, num_workers=workers, memory_budget=budget)
    assert found["samples"] == 26
    # A sample that exceeds the budget runs alone. Each thread has a stack and a few rows.
    allowed = max(budget, ALONE[kind]) + workers * 2 * MB + 8 * MB
    assert found["growth"] < allowed, f"{found['growth'] / MB:.1f} MB, where {allowed / MB:.1f} MB are generous"


@pytest.mark.parametrize("kind", ["jpeg", "png"])
@pytest.mark.parametrize("budget", [20 * MB, 40 * MB, 200 * MB])
def test_the_snapshot_never_shows_more_than_the_budget(
    run_python: Callable[..., str], big_pictures: Callable[[str], Path], kind: str, budget: int
) -> None:
    memory = measured(run_python, big_pictures(kind), batch_size=4, num_workers=6, memory_budget=budget)["memory"]
    assert memory["budget_bytes"] == budget
    assert 9 * MB < memory["peak_bytes"] <= budget, f"peak {memory['peak_bytes'] / MB:.1f} MB"
    assert memory["used_bytes"] <= memory["peak_bytes"]


def test_a_sample_larger_than_the_budget_runs_alone(big_pictures: Callable[[str], Path]) -> None:
    chain = [ops.DecodeImage(), ops.Resize((16, 16))]
    loader = fl.Loader(fl.folder(big_pictures("jpeg")), chain, batch_size=3, num_workers=4, memory_budget="1MB")
    assert [len(batch["index"]) for batch in loader] == [3] * 4 + [1]
    # One picture with its file and the memory for resizing, never two.
    assert loader.snapshot()["memory"]["peak_bytes"] < 17 * MB


def test_the_search_for_a_foreground_takes_what_it_books(run_python: Callable[..., str], tmp_path: Path) -> None:
    # No two neighbours are equal, so each element is a component.
    label = (np.indices((4, 800, 800)).sum(axis=0) % 2 + 1).astype(np.uint8)
    np.save(tmp_path / "label.npy", label)
    np.save(tmp_path / "image.npy", np.zeros(label.shape, np.float32))
    found = json.loads(run_python(SEARCH, tmp_path, seconds=60))
    booked = found["memory"]["peak_bytes"]
    assert found["growth"] < booked + 8 * MB, f"{found['growth'] / MB:.1f} MB, where {booked / MB:.1f} MB are booked"


def test_a_batch_larger_than_the_budget_is_delivered() -> None:
    loader = fl.Loader(fl.synthetic(12, (512, 512, 3)), batch_size=4, memory_budget="100kB", num_workers=4)
    assert [batch["data"].shape[0] for batch in loader] == [4, 4, 4]
    assert loader.snapshot()["queue"]["limit_batches"] == 1


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_results_of_functions_count_and_do_not_block(workers: int) -> None:
    def enlarge(data: np.ndarray) -> np.ndarray:
        return np.repeat(data, 1000).astype(np.float32)

    source = fl.array(np.arange(60, dtype=np.uint8).reshape(60, 1).repeat(64, axis=1))
    chain = [ops.Map(enlarge, on="data")]
    loader = fl.Loader(source, chain, batch_size=5, num_workers=workers, memory_budget="2MB")
    for number, batch in enumerate(loader):
        assert batch["data"].shape == (5, 64_000)
        assert batch["data"][:, 0].tolist() == [number * 5 + place for place in range(5)]


def test_a_slow_consumer_does_not_let_the_queue_grow(wait_until: Callable[..., None]) -> None:
    loader = fl.Loader(
        fl.synthetic(10_000, (128, 128, 3)),
        batch_size=4,
        num_workers=4,
        memory_budget="10MB",
        tuning=fl.tuning(prefetch_batches=3),
    )
    next(iter_ := iter(loader))
    wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] == 3, "three batches are ready")
    snapshot = loader.snapshot()
    assert snapshot["queue"]["open_batches"] == 3
    assert snapshot["memory"]["used_bytes"] <= 10 * MB
    assert snapshot["samples"] == 4
    del iter_


def test_memory_that_is_free_again_is_used_again(run_python: Callable[..., str]) -> None:
    code = """
import feedline as fl
from making import peak_bytes
loader = fl.Loader(fl.synthetic(400, (256, 256, 3)), batch_size=16, num_workers=2, memory_budget="40MB")
def epoch():
    for batch in loader: pass
    return peak_bytes()
# The most that is open at once differs from epoch to epoch, by a few batches of 3 MB. A batch that leaks in each epoch
# would take 25 MB.
for _ in range(4): first = epoch()
for _ in range(8): last = epoch()
print(last - first)
"""
    assert int(run_python(code)) < 15 * MB
