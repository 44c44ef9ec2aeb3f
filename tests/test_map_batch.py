"""``ops.MapBatch``: a Python function on whole batches, ahead of the trainer."""

from __future__ import annotations

import pickle
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import HANG_SECONDS

import feedline as fl
from feedline import ops

N = 50


def make(fn: Any, on: Any = "data", **options: Any) -> fl.Loader:
    function = {name: options.pop(name) for name in ("out", "worker_type") if name in options}
    source = fl.synthetic(N, (4, 4, 3))
    chain = [ops.CenterCrop(3, on="data"), ops.MapBatch(fn, on=on, **function)]
    return fl.Loader(source, chain, **({"batch_size": 8, "shuffle": True, "num_workers": 2} | options))


def plain(**options: Any) -> fl.Loader:
    source = fl.synthetic(N, (4, 4, 3))
    chain = [ops.CenterCrop(3, on="data")]
    return fl.Loader(source, chain, **({"batch_size": 8, "shuffle": True, "num_workers": 2} | options))


def same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_a_function_gets_whole_batches_in_order(worker_type: Any) -> None:
    def invert(data: np.ndarray) -> np.ndarray:
        return 255 - data

    with make(invert, worker_type=worker_type) as loader:
        for _ in range(2):
            found = list(loader)
            expected = list(plain(seed=0)) if loader.epoch == 1 else None
            if expected is not None:
                for one, other in zip(found, expected, strict=True):
                    assert np.array_equal(one["index"], other["index"])
                    assert np.array_equal(one["data"], 255 - other["data"])
            check = sorted(index for batch in found for index in batch["index"].tolist())
            assert check == list(range(N))


def test_fields_can_be_added_and_dropped() -> None:
    with make(
        lambda data, index: (data.mean((1, 2, 3)), index * 2), ("data", "index"), out=("mean", "twice")
    ) as loader:
        batch = next(iter(loader))
    assert set(batch) == {"mean", "twice"}
    assert batch["mean"].shape == batch["twice"].shape == (8,)
    with make(lambda data: None, out=()) as loader:
        assert set(next(iter(loader))) == {"index"}


def noise(data: np.ndarray, rng: np.random.Generator, epoch: int) -> np.ndarray:
    return data + rng.random(data.shape) + epoch


@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_law_1_random_numbers_depend_on_seed_epoch_and_place(worker_type: Any) -> None:
    reference = list(make(noise, seed=3))
    assert same(list(make(noise, seed=3, num_workers=1, worker_type=worker_type)), reference)
    draws = {(batch["data"] % 1).tobytes() for batch in reference}
    assert len(draws) == len(reference), "each batch has its own"
    assert not same(list(make(noise, seed=4)), reference)


@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_law_4_a_state_continues_with_the_next_batch(taken: int) -> None:
    reference = [*make(noise, seed=3)]
    first = make(noise, seed=3)
    batches = iter(first)
    for _ in range(taken):
        next(batches)
    state = first.state_dict()
    first.close()
    second = make(noise, seed=3, num_workers=1)
    second.load_state_dict(state)
    assert same(list(second), reference[taken:])


def test_law_4_batches_of_ranks_have_places_of_their_own() -> None:
    def draw(index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.full(len(index), rng.random())

    shares = [list(make(draw, "index", out="draw", rank=rank, world_size=2)) for rank in range(2)]
    draws = [batch["draw"][0] for share in shares for batch in share]
    assert len(set(draws)) == len(draws)


def test_jumps_and_early_ends_lose_nothing() -> None:
    with make(noise, seed=3) as loader:
        reference = {epoch: list(make_at(epoch)) for epoch in range(3)}
        for batch in loader:
            assert np.array_equal(batch["data"], reference[0][0]["data"])
            break
        assert same(list(loader), reference[1])
        loader.set_epoch(0)
        assert same(list(loader), reference[0])
        loader.set_epoch(2)
        assert same(list(loader), reference[2])


def make_at(epoch: int) -> fl.Loader:
    loader = make(noise, seed=3)
    loader.set_epoch(epoch)
    return loader


def test_functions_run_beside_each_other_and_ahead_of_the_trainer() -> None:
    together = threading.Barrier(2)

    def meet(data: np.ndarray) -> np.ndarray:
        together.wait(HANG_SECONDS)
        return data

    # Six batches of two: each call ends only when another one is under way.
    with make(meet, batch_size=10, drop_last=True, num_workers=2) as loader:
        batches = iter(loader)
        assert [len(next(batches)["index"]) for _ in range(4)] == [10] * 4


def test_an_exception_names_the_batch_and_keeps_its_cause() -> None:
    def fail(index: np.ndarray) -> np.ndarray:
        if 13 in index:
            raise LookupError("thirteen")
        return index

    with make(fail, "index", shuffle=False) as loader:
        batches = iter(loader)
        assert next(batches)["index"].tolist() == list(range(8))
        words = r"batch 1 of epoch 0 could not be mapped.*LookupError: thirteen"
        with pytest.raises(fl.FeedlineError, match=words) as it:
            next(batches)
        assert isinstance(it.value.__cause__, LookupError)


def fails_once(index: np.ndarray, folder: Path) -> np.ndarray:
    marker = folder / "failed"
    if 13 in index and not marker.exists():
        marker.touch()
        raise LookupError("thirteen")
    return index


def test_every_consumer_learns_of_a_failure(tmp_path: Path) -> None:
    def fail(index: np.ndarray) -> np.ndarray:
        raise LookupError("always")

    with make(fail, "index") as loader:
        for consumer in [*loader.consumers(2)] * 2:
            with pytest.raises(fl.FeedlineError, match="always"):
                next(consumer)


def read(loader: fl.Loader, found: list[int]) -> None:
    for batch in loader:
        found += batch["index"].tolist()


@pytest.mark.parametrize("is_shared", [False, True])
def test_law_2_a_batch_whose_function_failed_is_not_lost(
    is_shared: bool, tmp_path: Path, socket: Path, node: subprocess.Popen[str]
) -> None:
    share: Any = socket if is_shared else False
    with make(partial(fails_once, folder=tmp_path), "index", share=share) as loader:
        found: list[int] = []
        with pytest.raises(fl.FeedlineError, match="thirteen"):
            read(loader, found)
        state = loader.state_dict()
        again = make(partial(fails_once, folder=tmp_path), "index", share=share)
        again.load_state_dict(state)
        found += [index for batch in again for index in batch["index"].tolist()]
        again.close()
    assert sorted(found) == list(range(N))


@pytest.mark.parametrize(
    ("fn", "on", "words"),
    [
        (lambda data: data[:3], "data", "of shape .3, 3, 3, 3. for .*, but the batch has 8 samples"),
        (lambda data: "text", "data", "bytes or text"),
        (lambda data: data, "image", 'no field .*"image".*they have'),
    ],
)
def test_results_that_are_no_batch_are_named(fn: Any, on: str, words: str) -> None:
    with make(fn, on) as loader, pytest.raises(fl.FeedlineError, match=words):
        next(iter(loader))


def test_what_cannot_work_is_refused_at_once() -> None:
    source = fl.synthetic(N, (4, 4, 3))
    with pytest.raises(fl.PlanError, match="must come after all other ops"):
        fl.Loader(source, [ops.MapBatch(noise, on="data"), ops.CenterCrop(3, on="data")], batch_size=4)
    with pytest.raises(fl.PlanError, match="asks for 'key'"):
        make(lambda data, key: data)
    with pytest.raises(fl.PlanError, match="cannot be written into a plan"):
        make(noise).plan.to_toml()
    assert make(noise).plan.ops == ["CenterCrop", "MapBatch"]


def test_a_loader_with_a_function_can_be_pickled() -> None:
    loader = pickle.loads(pickle.dumps(make(noise, seed=3)))
    assert same(list(loader), list(make(noise, seed=3)))


def check_closed(consumer: Any) -> None:
    with pytest.raises(fl.FeedlineError):
        next(consumer)


def test_law_7_a_loader_with_a_stuck_function_closes() -> None:
    for worker_type in ("thread", "process"):
        loader = make(lambda data: time.sleep(5) or data, worker_type=worker_type)
        consumer = loader.consumers(1)[0]
        thread = threading.Thread(target=check_closed, args=(consumer,))
        thread.start()
        start = time.monotonic()
        loader.close()
        thread.join(HANG_SECONDS)
        assert time.monotonic() - start < HANG_SECONDS
        assert not thread.is_alive()


def test_law_2_jobs_that_share_samples_have_their_own_functions(socket: Path, node: subprocess.Popen[str]) -> None:
    for number in (1, 2):
        with make(lambda data, by=number: data + np.uint8(by), share=socket) as loader:
            found = list(loader)
        order = [index for batch in found for index in batch["index"].tolist()]
        assert sorted(order) == list(range(N))
        rows = np.concatenate([batch["data"] for batch in plain(shuffle=False)])
        for batch in found:
            assert np.array_equal(batch["data"], rows[batch["index"]] + np.uint8(number))
