"""Law 5: memory stays within ``memory_budget``, with samples larger than it too."""

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
import json, resource, sys, time
import numpy as np
import feedline as fl
from feedline import ops
from making import natural

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

options = json.loads(sys.argv[2])
chain = [ops.DecodeImage(), ops.RandomResizedCrop(32), ops.Normalize()]
small = fl.Loader(fl.folder(sys.argv[1]).subset([0]), [ops.DecodeImage(), ops.CenterCrop(8)], batch_size=1, num_workers=1)
list(small)
small.close()
loader = fl.Loader(fl.folder(sys.argv[1]), chain, **options)
before = peak()
for epoch in range(2):
    for batch in loader:
        time.sleep(0.002)
snapshot = loader.snapshot()
print(json.dumps({"growth": peak() - before, "memory": snapshot["memory"], "samples": snapshot["samples"]}))
"""


@pytest.fixture(scope="module")
def big_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 JPEG pictures of 1500 x 2000: 9 MB each once decoded. The first is small."""
    root = tmp_path_factory.mktemp("big")
    save(root / "0000.jpg", natural(16, 16))
    save(root / "0001.jpg", natural(1500, 2000), quality=80)
    for number in range(2, 25):
        (root / f"{number:04}.jpg").write_bytes((root / "0001.jpg").read_bytes())
    return root


def measured(run_python: Callable[..., str], root: Path, **options: Any) -> dict[str, Any]:
    return json.loads(run_python(MEASURE, root, json.dumps(options), seconds=60))


@pytest.mark.parametrize(("budget", "workers"), [(20 * MB, 8), (40 * MB, 8), (2 * MB, 4)])
def test_the_peak_of_the_process_grows_by_little_more_than_the_budget(
    run_python: Callable[..., str], big_pictures: Path, budget: int, workers: int
) -> None:
    found = measured(run_python, big_pictures, batch_size=4, num_workers=workers, memory_budget=budget)
    assert found["samples"] == 50
    # A sample that exceeds the budget runs alone: 9 MB of pixels and the file. Each thread has a stack and the codec's rows.
    allowed = max(budget, 11 * MB) + workers * 2 * MB + 8 * MB
    assert found["growth"] < allowed, f"{found['growth'] / MB:.1f} MB"


@pytest.mark.parametrize("budget", [20 * MB, 40 * MB, 200 * MB])
def test_the_snapshot_never_shows_more_than_the_budget(
    run_python: Callable[..., str], big_pictures: Path, budget: int
) -> None:
    memory = measured(run_python, big_pictures, batch_size=4, num_workers=6, memory_budget=budget)["memory"]
    assert memory["budget_bytes"] == budget
    assert 9 * MB < memory["peak_bytes"] <= budget
    assert memory["used_bytes"] <= memory["peak_bytes"]


def test_a_sample_larger_than_the_budget_runs_alone(big_pictures: Path) -> None:
    chain = [ops.DecodeImage(), ops.Resize((16, 16))]
    loader = fl.Loader(fl.folder(big_pictures), chain, batch_size=3, num_workers=4, memory_budget="1MB")
    assert [len(batch["index"]) for batch in loader] == [3] * 8 + [1]
    # One picture with its file and what resizing needs, never two.
    assert loader.snapshot()["memory"]["peak_bytes"] < 17 * MB


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
    loader = fl.Loader(fl.synthetic(10_000, (128, 128, 3)), batch_size=4, num_workers=4, memory_budget="10MB", prefetch_batches=3)
    next(iter_ := iter(loader))
    wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] == 3, "three batches are ready")
    snapshot = loader.snapshot()
    assert snapshot["queue"]["open_batches"] == 3
    assert snapshot["memory"]["used_bytes"] <= 10 * MB
    assert snapshot["samples"] == 4
    del iter_


def test_memory_that_is_free_again_is_used_again(run_python: Callable[..., str]) -> None:
    code = """
import resource
import feedline as fl
loader = fl.Loader(fl.synthetic(400, (256, 256, 3)), batch_size=16, num_workers=2, memory_budget="40MB")
def epoch():
    for batch in loader: pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
first = epoch()
for _ in range(5): last = epoch()
print(last - first)
"""
    assert int(run_python(code)) < 5 * MB
