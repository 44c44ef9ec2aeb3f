"""Several consumers of one run."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from making import HANG_SECONDS

import feedline as fl
from feedline import testing

N, BATCH = 120, 4


def make(**options: Any) -> fl.Loader:
    chain = [testing.delay([0.2, 0.2, 0.2, 4.0])]
    return fl.Loader(fl.synthetic(N, (4,)), chain, batch_size=BATCH, shuffle=True, num_workers=4, **options)


def run(consumers: list[Any], pause: Callable[[int], float] = lambda number: 0.0) -> list[list[list[int]]]:
    """The batches of each consumer. Each runs in its own thread."""
    got: list[list[list[int]]] = [[] for _ in consumers]
    errors: list[BaseException] = []

    def consume(number: int) -> None:
        try:
            for batch in consumers[number]:
                got[number].append(batch["index"].tolist())
                time.sleep(pause(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=consume, args=(number,), daemon=True) for number in range(len(consumers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a consumer hangs"
    if errors:
        raise errors[0]
    return got


@pytest.mark.parametrize("assign", ["first-come", "round-robin"])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_law_2_all_consumers_together_get_every_sample_once(assign: Any, count: int) -> None:
    loader = make()
    for epoch in range(2):
        got = run(loader.consumers(count, assign=assign))
        assert sorted(sum(sum(got, []), [])) == list(range(N)), epoch
    assert loader.epoch == 2


def test_round_robin_gives_each_consumer_the_same_batches_every_time() -> None:
    expected = [batch["index"].tolist() for batch in make()]
    got = run(make().consumers(4, assign="round-robin"), lambda number: 0.003 * number)
    assert got == [expected[number::4] for number in range(4)]


def test_a_slow_consumer_blocks_nobody_in_first_come_mode() -> None:
    got = run(make().consumers(2), lambda number: 0.1 if number else 0.0)
    assert len(got[0]) > 3 * len(got[1])


def test_law_4_the_state_is_the_union_of_what_was_delivered() -> None:
    expected = [batch["index"].tolist() for batch in make()]
    loader = make()
    first, second = loader.consumers(2, assign="round-robin")
    seen = [next(iterator)["index"].tolist() for iterator in (first, second, first, second, first)]
    assert seen == expected[:5]
    again = make()
    again.load_state_dict(loader.state_dict())
    assert [batch["index"].tolist() for batch in again] == expected[5:]


def test_a_consumer_that_leaves_leaves_its_batches_to_the_others() -> None:
    first, second, third = make().consumers(3, assign="round-robin")
    next(first)
    second.close()
    got = run([first, third])
    assert len(sum(got, [])) == N // BATCH - 1
    assert abs(len(got[0]) - len(got[1])) <= 1


def test_law_7_all_leaving_frees_everything_and_an_error_reaches_every_consumer(
    wait_until: Callable[..., None], tmp_path: Path
) -> None:
    loader = make()
    consumers = loader.consumers(2, assign="round-robin")
    next(consumers[0])
    del consumers
    wait_until(lambda: loader.snapshot()["memory"]["used_bytes"] == 0, "memory is free")
    missing = fl.files({"image": [tmp_path / f"{number}" for number in range(20)]})
    bad = fl.Loader(missing, batch_size=2, ragged=["image"])
    with pytest.raises(fl.SampleError):
        run(bad.consumers(3, assign="round-robin"))


def waiting_for_its_turn(consumer: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Start a thread that requests a batch out of turn. It gets an error."""
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            next(consumer)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("end", ["close", "next epoch"])
def test_law_7_consumers_that_wait_for_their_turn_end_with_the_epoch(end: str) -> None:
    loader = make()
    first, second = loader.consumers(2, assign="round-robin")
    thread, errors = waiting_for_its_turn(second)
    loader.close() if end == "close" else iter(loader)
    thread.join(HANG_SECONDS)
    assert not thread.is_alive(), "the consumer waits for ever"
    assert isinstance(errors[0], fl.FeedlineError)
    first.close()


def test_law_7_an_interrupt_of_one_consumer_reaches_those_that_wait_for_it() -> None:
    loader = fl.Loader(fl.synthetic(8, (4,)), [testing.delay(60_000)], batch_size=1, num_workers=1)
    first, second = loader.consumers(2, assign="round-robin")
    thread, errors = waiting_for_its_turn(second)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(first)
    thread.join(HANG_SECONDS)
    assert not thread.is_alive(), "the consumer waits for ever"
    assert isinstance(errors[0], KeyboardInterrupt)
    loader.close()


@pytest.mark.parametrize("assign", ["first-come", "round-robin"])
def test_a_consumer_that_has_left_gets_nothing(assign: Any) -> None:
    first, second = make().consumers(2, assign=assign)
    first.close()
    first.close()
    assert next(first, None) is None
    assert len(run([second])[0]) == N // BATCH


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(fl.PlanError, match="n is 0"):
        make().consumers(0)
    with pytest.raises(fl.PlanError, match="assign is"):
        make().consumers(2, assign="random")  # type: ignore[arg-type]
