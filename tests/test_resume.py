"""Law 4: resuming gives the rest of the stream unchanged, whatever else changed, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import ops

CHAIN = [ops.DecodeImage(), ops.RandomResizedCrop(12), ops.ColorJitter(0.3, 0.3, 0.3), ops.Normalize()]


@pytest.fixture
def root(pictures: Callable[..., Path]) -> Path:
    return pictures(22)


def loader_over(root: Path, **options: Any) -> fl.Loader:
    return fl.Loader(fl.folder(root), CHAIN, **({"batch_size": 4, "shuffle": True, "seed": 2} | options))


def contents(batches: Any) -> list[tuple[bytes, ...]]:
    return [tuple(array.tobytes() for array in batch.values()) for batch in batches]


def samples(batches: Any) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for batch in batches:
        padded = batch.get("padded", np.zeros(len(batch["index"]), bool))
        for index, image, is_padding in zip(batch["index"], batch["image"], padded, strict=True):
            if not is_padding:
                assert int(index) not in found, f"sample {index} came twice"
                found[int(index)] = image.tobytes()
    return found


def taken(loader: fl.Loader, count: int) -> list[Any]:
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


def saved(loader: fl.Loader) -> dict[str, Any]:
    return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("workers", [1, 3])
def test_resuming_at_every_batch_gives_the_rest_unchanged(root: Path, workers: int) -> None:
    reference = loader_over(root, num_workers=2)
    whole = contents(batch for _ in range(3) for batch in reference)
    for received in range(0, 13):
        loader = loader_over(root, num_workers=2)
        batches = []
        while len(batches) < received:
            batches += taken(loader, min(6, received - len(batches)))
        state = saved(loader)
        resumed = loader_over(root, num_workers=workers)
        resumed.load_state_dict(state)
        rest = []
        while len(rest) < 18 - received:
            rest += contents(resumed)
        assert contents(batches) + rest == whole, f"after {received} batches"


def test_the_state_says_what_was_received_not_what_was_prepared(root: Path, wait_until: Callable[..., None]) -> None:
    loader = loader_over(root, tuning=fl.tuning(prefetch_batches=4))
    iterator = iter(loader)
    first = next(iterator)
    wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] == 4, "four batches are prepared")
    resumed = loader_over(root)
    resumed.load_state_dict(saved(loader))
    assert contents([first]) + contents(resumed) == contents(loader_over(root))


def test_a_state_taken_after_the_last_batch_is_the_beginning_of_the_next_epoch(root: Path) -> None:
    loader = loader_over(root)
    list(loader)
    resumed = loader_over(root)
    resumed.load_state_dict(saved(loader))
    assert resumed.epoch == 1
    assert contents(resumed) == contents(loader)


def test_a_state_is_small_and_taking_it_changes_nothing(root: Path) -> None:
    loader = loader_over(root)
    found = []
    for batch in loader:
        assert len(json.dumps(loader.state_dict())) < 1000
        found.append(batch)
    assert contents(found) == contents(loader_over(root))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (1, 4)])
def test_resuming_with_another_world_size_gives_each_remaining_sample_once(
    root: Path, before: int, after: int, drop_last: bool
) -> None:
    whole = samples(loader_over(root))
    per_rank = 22 // before // 3 if drop_last else -(-22 // before // 3)
    for received in range(0, min(3, per_rank)):
        found: dict[int, bytes] = {}
        states = []
        for rank in range(before):
            loader = loader_over(root, rank=rank, world_size=before, batch_size=3, drop_last=drop_last)
            part = samples(taken(loader, received))
            assert not part.keys() & found.keys()
            found |= part
            states.append(saved(loader))
        assert all(state == states[0] for state in states), "the state is the same on every rank"
        counts = set()
        for rank in range(after):
            resumed = loader_over(root, rank=rank, world_size=after, batch_size=3, drop_last=drop_last)
            resumed.load_state_dict(states[0])
            batches = list(resumed)
            counts.add(len(batches))
            part = samples(batches)
            assert not part.keys() & found.keys(), "nothing comes again"
            found |= part
        assert len(counts) == 1
        assert found.items() <= whole.items(), "values do not depend on rank or resume"
        assert len(whole) - len(found) < (3 * after if drop_last else 1)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_resuming_with_another_batch_size_goes_on_at_the_same_sample(root: Path, batch_size: int) -> None:
    loader = loader_over(root)
    first = samples(taken(loader, 2))
    resumed = loader_over(root, batch_size=batch_size)
    resumed.load_state_dict(saved(loader))
    rest = samples(resumed)
    assert list(first) + list(rest) == resumed.plan.indices(0)
    # The next epoch is whole again.
    assert list(samples(resumed)) == resumed.plan.indices(1)


def test_resuming_twice_with_other_world_sizes_loses_nothing(root: Path) -> None:
    found = samples(taken(loader_over(root, rank=0, world_size=2, batch_size=2), 2))
    found |= samples(taken(loader_over(root, rank=1, world_size=2, batch_size=2), 2))
    first = loader_over(root, rank=0, world_size=2, batch_size=2)
    taken(first, 2)
    middle = loader_over(root, batch_size=3)
    middle.load_state_dict(saved(first))
    found |= samples(taken(middle, 2))
    last = [loader_over(root, rank=rank, world_size=3, batch_size=2) for rank in range(3)]
    for loader in last:
        loader.load_state_dict(saved(middle))
        part = samples(loader)
        assert not part.keys() & found.keys()
        found |= part
    assert found == samples(loader_over(root))


def test_a_sampler_with_repeats_resumes_exactly() -> None:
    wanted = [3, 3, 1, 3, 0, 1, 2, 2, 3]
    pictures = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)

    def make() -> fl.Loader:
        return fl.Loader(fl.array(pictures), [ops.RandomCrop(6)], batch_size=2, sampler=wanted)

    whole = contents(make())
    for received in range(5):
        loader = make()
        batches = taken(loader, received)
        resumed = make()
        resumed.load_state_dict(saved(loader))
        assert contents(batches) + contents(resumed) == whole


def test_loading_a_state_replaces_a_running_iteration(root: Path) -> None:
    loader = loader_over(root)
    begin = saved(loader)
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(begin)
    with pytest.raises(fl.FeedlineError, match="newer iterator"):
        next(iterator)
    assert contents(loader) == contents(loader_over(root))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state | {"seed": 3}, "seed 3"),
        (lambda state: state | {"feedline": 99}, "format 99"),
        (lambda state: state | {"batches": 10**6}, "1000000"),
        (lambda state: state | {"listing": "0" * len(state["listing"])}, "other data"),
        (lambda state: state | {"order": "0" * len(state["order"])}, "another shuffle, sampler or library version"),
        (lambda state: state | {"ops": []}, "op 0, DecodeImage, is new"),
        (lambda state: state | {"surprise": 1}, "surprise"),
        (lambda state: {name: value for name, value in state.items() if name != "epoch"}, "epoch"),
        (lambda state: state | {"epoch": -1}, "not a state"),
        (lambda state: {}, "not a state"),
        (lambda state: None, "not a state"),
        (lambda state: "state", "not a state"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(root: Path, change: Any, words: str) -> None:
    loader = loader_over(root)
    with pytest.raises(fl.StateError, match=words):
        loader.load_state_dict(change(saved(loader)))
    assert contents(loader) == contents(loader_over(root))


def test_a_state_of_other_data_or_other_ops_is_refused(root: Path, pictures: Callable[..., Path]) -> None:
    state = saved(loader_over(root))
    with pytest.raises(fl.StateError, match="22 samples then, 21 now"):
        loader_over(pictures(21, name="others")).load_state_dict(state)
    other = fl.Loader(fl.folder(root), [ops.DecodeImage()], batch_size=4, shuffle=True, seed=2)
    with pytest.raises(fl.StateError, match="other ops"):
        other.load_state_dict(state)


def test_a_state_moves_with_its_folder(root: Path) -> None:
    loader = loader_over(root)
    first = contents(taken(loader, 2))
    state = saved(loader)
    whole = contents(loader_over(root))
    resumed = loader_over(root.rename(root.with_name("moved")))
    resumed.load_state_dict(state)
    assert first + contents(resumed) == whole


@pytest.mark.parametrize("share", [False, True])
def test_a_state_of_another_plan_names_the_ops_that_differ(share: bool, tmp_path: Path) -> None:
    def make(*chain: ops.Op) -> fl.Loader:
        where = str(tmp_path / "run" / "node.sock") if share else False
        return fl.Loader(fl.synthetic(64, (16, 16, 3)), chain, batch_size=4, shuffle=True, share=where)

    flip = ops.RandomHorizontalFlip(on="data")
    state = make(ops.RandomCrop(8, on="data"), flip).state_dict()
    for chain, words in [
        ((ops.CenterCrop(8, on="data"), flip), "op 0 was RandomCrop and is CenterCrop"),
        ((ops.RandomCrop(6, on="data"), flip), "op 0, RandomCrop, has other parameters"),
        ((ops.RandomCrop(8, on="data"),), "op 1, RandomHorizontalFlip, is missing"),
    ]:
        with pytest.raises(fl.StateError, match=words):
            make(*chain).load_state_dict(state)
