"""Arrival order: samples come as they get ready, each once, within a bound, resumable and replayable."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import testing

N, BATCH = 240, 6
COSTS = [60.0 if number % 30 == 3 else 0.3 for number in range(N)]


def make(**options: Any) -> fl.Loader:
    options = {"order": fl.arrival(), "num_workers": 4, "seed": 5, "shuffle": True, **options}
    return fl.Loader(fl.synthetic(N, (4,)), [testing.delay(COSTS)], batch_size=BATCH, **options)


def ids(loader: fl.Loader, epochs: int = 1) -> list[list[int]]:
    return [batch["index"].tolist() for _ in range(epochs) for batch in loader]


def first(loader: fl.Loader, batches: int) -> list[list[int]]:
    iterator = iter(loader)
    return [next(iterator)["index"].tolist() for _ in range(batches)]


def places(stream: list[list[int]]) -> dict[int, int]:
    return {sample: place for place, sample in enumerate(sum(stream, []))}


def saved(loader: fl.Loader) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


@pytest.mark.parametrize("bound", [0, 7, 60])
def test_slow_samples_are_passed_within_the_bound_and_each_comes_once(bound: int) -> None:
    in_order = make(order="strict")
    loader = make(order=fl.arrival(max_displacement=bound))
    for epoch in range(3):
        strict, arrived = places(ids(in_order)), places(ids(loader))
        assert sorted(arrived) == list(range(N))
        late = {sample: arrived[sample] - strict[sample] for sample in arrived}
        assert max(map(abs, late.values())) <= bound
        report: Any = loader.order_report()
        assert report["largest_displacement"] == max(map(abs, late.values()))
        assert report["mean_displacement"] == pytest.approx(np.mean([abs(places) for places in late.values()]))
        assert (report["samples"], report["max_displacement"]) == (N, bound)
        assert loader.order_report(epoch) == report
        assert loader.order_report(epoch + 1) is None
        if bound:
            slow = [late[sample] for sample in range(N) if COSTS[sample] == 60]
            assert np.mean(slow) > 2, "slow samples come later"
            assert report["slow_samples"] >= len(slow)


def test_the_report_counts_no_sample_twice_after_a_jump_back() -> None:
    loader = make()
    iterator = iter(loader)
    for batches in range(10):
        if batches == 5:
            state = saved(loader)
        next(iterator)
    loader.load_state_dict(state)
    ids(loader)
    report: Any = loader.order_report()
    assert report["samples"] == N - 5 * BATCH


def test_law_1_values_are_those_of_strict_order() -> None:
    def values(order: Any) -> dict[int, bytes]:
        loader = make(order=order)
        pairs = (pair for batch in loader for pair in zip(batch["index"], batch["data"], strict=True))
        return {int(index): data.tobytes() for index, data in pairs}

    assert values(fl.arrival()) == values("strict")


@pytest.mark.parametrize("rest", [fl.arrival(), "strict"])
def test_law_4_resume_gives_precisely_what_was_not_delivered(rest: Any) -> None:
    for received in range(1, N // BATCH, 7):
        loader = make()
        before = first(loader, received)
        again = make(order=rest, num_workers=2)
        again.load_state_dict(saved(loader))
        after = ids(again)
        assert len(after) == N // BATCH - received
        assert sorted(sum(before + after, [])) == list(range(N)), f"after {received} batches"
        assert sorted(sum(ids(again), [])) == list(range(N)), "the next epoch is whole"


def test_law_4_a_chain_of_resumes_in_changing_orders_loses_nothing() -> None:
    loader, seen = make(), list[list[int]]()
    bounded = fl.arrival(max_displacement=20)
    for order in (bounded, "strict", bounded, bounded, "strict"):
        state = saved(loader)
        loader = make(order=order)
        loader.load_state_dict(state)
        seen += first(loader, 6)
    again = make()
    again.load_state_dict(saved(loader))
    seen += ids(again)
    assert sorted(sum(seen, [])) == list(range(N))


def test_a_state_is_small_and_one_that_would_lose_samples_is_refused() -> None:
    loader = make()
    first(loader, 9)
    state = saved(loader)
    assert len(state["pending"]) <= 16 * BATCH
    for pending in ([1, 0], [10_000], list(range(N))):
        with pytest.raises(fl.StateError, match="damaged"):
            make().load_state_dict({**state, "pending": pending})
    with pytest.raises(fl.StateError, match=r"arrival order with rank 0 of 1 and batch size 6"):
        make(rank=0, world_size=2).load_state_dict(state)
    with pytest.raises(fl.StateError, match="cannot continue from there"):
        make(order=fl.planned()).load_state_dict(state)


def test_ranks_cover_the_epoch_and_each_resumes_from_its_own_state() -> None:
    ranks = [make(rank=rank, world_size=3) for rank in range(3)]
    before = [first(loader, 5) for loader in ranks]
    states = [saved(loader) for loader in ranks]
    again = [make(rank=rank, world_size=3) for rank in range(3)]
    with pytest.raises(fl.StateError, match="rank 0 of 3"):
        again[1].load_state_dict(states[0])
    for loader, state in zip(again, states, strict=True):
        loader.load_state_dict(state)
    after = [ids(loader) for loader in again]
    assert sorted(sum(sum(before + after, []), [])) == list(range(N))


def test_a_log_replays_the_stream_whatever_the_threads(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    stream = ids(make(order=fl.arrival(log=log)), 2)
    for workers in (1, 8):
        assert ids(make(order=fl.arrival(replay=log), num_workers=workers), 2) == stream
    replay = make(order=fl.arrival(replay=log))
    first(replay, 11)
    again = make(order=fl.arrival(replay=log))
    again.load_state_dict(saved(replay))
    assert ids(again) == stream[11:40], "a replay can be resumed"
    rest = make(order="strict")
    rest.load_state_dict(saved(replay))
    assert sorted(sum(stream[:11] + ids(rest), [])) == list(range(N))


def test_a_log_goes_on_after_a_resume_and_what_was_lost_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    loader = make(order=fl.arrival(log=log))
    iterator = iter(loader)
    kept = [next(iterator)["index"].tolist() for _ in range(12)]
    state = saved(loader)
    for _ in range(5):
        next(iterator)
    loader.close()
    with log.open("a") as file:
        file.write('{"epoch":0,"offset":0,"batch":17,"num')
    again = make(order=fl.arrival(log=log))
    again.load_state_dict(state)
    stream = kept + ids(again)
    assert ids(make(order=fl.arrival(replay=log))) == stream


def test_a_replay_goes_on_in_the_samplers_order_where_the_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    begun = first(make(order=fl.arrival(log=log)), 8)
    stream = ids(make(order=fl.arrival(replay=log)), 2)
    assert stream[:8] == begun
    assert sorted(sum(stream[:40], [])) == list(range(N))
    left = [sample for sample in sum(ids(make(order="strict")), []) if sample not in sum(begun, [])]
    assert sum(stream[8:40], []) == left


def test_epochs_are_replayed_whatever_the_order_they_were_run_in(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"

    def stream(loader: fl.Loader) -> list[list[int]]:
        batches = []
        for epoch in (3, 1, 2):
            loader.set_epoch(epoch)
            batches += ids(loader)
        return batches

    logged = stream(make(order=fl.arrival(log=log)))
    assert stream(make(order=fl.arrival(replay=log))) == logged


def test_ranks_have_logs_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    streams = [ids(make(order=fl.arrival(log=log), rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.arrivals.rank0", "run.arrivals.rank1"]
    assert [ids(make(order=fl.arrival(replay=log), rank=rank, world_size=2)) for rank in range(2)] == streams


def test_a_log_that_does_not_fit_is_named(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    first(make(order=fl.arrival(log=log)), 3)
    with pytest.raises(fl.PlanError, match=r"no-such-log.*cannot be read"):
        make(order=fl.arrival(replay=tmp_path / "no-such-log"))
    with pytest.raises(fl.PlanError, match="other samples, ops or seed"):
        make(order=fl.arrival(replay=log), seed=6)
    (tmp_path / "notes").write_text("hello\n")
    with pytest.raises(fl.PlanError, match="not a log of arrivals"):
        make(order=fl.arrival(replay=tmp_path / "notes"))
    with pytest.raises(fl.FeedlineError, match="not a log of this plan"):
        first(make(order=fl.arrival(log=log), seed=6), 1)
    with pytest.raises(fl.PlanError, match="a replayed run already has a log"):
        make(order=fl.arrival(replay=log, log=log))


def test_law_6_a_batch_that_cannot_be_logged_is_not_delivered_and_not_lost(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    loader = make(order=fl.arrival(log=folder / "run.arrivals"))
    iterator = iter(loader)
    with pytest.raises(fl.FeedlineError, match=r"later/run.arrivals"):
        next(iterator)
    folder.mkdir()
    assert sorted(sample for batch in iterator for sample in batch["index"].tolist()) == list(range(N))


def test_a_record_that_did_not_fit_on_the_disk_damages_no_other(tmp_path: Path) -> None:
    log = tmp_path / "run.arrivals"
    iterator = iter(make(order=fl.arrival(log=log)))
    stream = [next(iterator)["index"].tolist() for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(fl.FeedlineError, match=r"run.arrivals"):
            next(iterator)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    stream += [batch["index"].tolist() for batch in iterator]
    assert ids(make(order=fl.arrival(replay=log))) == stream


def test_a_bad_sample_is_named_and_replaced_as_in_strict_order(tmp_path: Path) -> None:
    paths = []
    for number in range(40):
        paths.append(tmp_path / f"{number:02}.png")
        paths[-1].write_bytes(b"no picture")
    from PIL import Image

    for number in range(40):
        if number != 17:
            Image.new("RGB", (8, 8), (number, 0, 0)).save(paths[number])

    def loader(**options: Any) -> fl.Loader:
        return fl.Loader(fl.files({"image": paths}), [fl.ops.DecodeImage()], batch_size=4, seed=1, **options)

    with pytest.raises(fl.SampleError, match=r"17\.png"):
        ids(loader(order=fl.arrival()))
    skipping = [
        sorted(
            image.tobytes() for batch in loader(order=order, on_error=fl.substitute(0.1)) for image in batch["image"]
        )
        for order in ("strict", fl.arrival())
    ]
    assert skipping[0] == skipping[1]


def test_consumers_share_an_arrival_stream() -> None:
    loader = make()
    consumers = loader.consumers(3)
    seen = list[int]()
    while consumers:
        for consumer in list(consumers):
            batch = next(consumer, None)
            if batch is None:
                consumers.remove(consumer)
            else:
                seen += batch["index"].tolist()
    assert sorted(seen) == list(range(N))


def test_law_5_memory_stays_within_the_budget_and_nothing_is_left(tmp_path: Path) -> None:
    budget = 60_000
    loader = fl.Loader(
        fl.synthetic(N, (32, 32)), [testing.delay(COSTS)], batch_size=BATCH, num_workers=8, memory_budget=budget,
        order=fl.arrival(max_displacement=40),
    )  # fmt: skip
    for _ in range(2):
        assert sorted(sum(ids(loader), [])) == list(range(N))
    iterator = iter(loader)
    next(iterator)
    memory = loader.snapshot()["memory"]
    assert memory["peak_bytes"] <= budget
    loader.set_epoch(7)
    loader.close()
    assert loader.snapshot()["memory"]["used_bytes"] == 0
