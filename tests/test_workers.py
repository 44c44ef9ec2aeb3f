"""num_workers="auto": as many threads as necessary, whatever they wait for."""

from __future__ import annotations

import time
from typing import Any

import feedline as fl
from feedline import testing


def test_threads_that_wait_become_more_and_the_stream_is_the_same() -> None:
    def make(**options: Any) -> fl.Loader:
        return fl.Loader(fl.synthetic(600, (8,)), [testing.delay(10)], batch_size=4, shuffle=True, **options)

    loader = make()
    assert loader.snapshot()["num_workers"] >= 1
    stream = [batch["data"].tobytes() for batch in loader]
    grown = loader.snapshot()["num_workers"]
    cores = make(num_workers="auto").snapshot()["num_workers"]
    assert cores < grown <= 8 * cores
    assert stream == [batch["data"].tobytes() for batch in make(num_workers=16)]


def test_threads_that_nobody_needs_end() -> None:
    loader = fl.Loader(fl.synthetic(400, (8,)), [testing.delay(1)], batch_size=2)
    deadline = time.monotonic() + 60
    while loader.snapshot()["num_workers"] > 1 or loader.epoch == 0:
        for _ in loader:
            testing.step(40)
            if loader.snapshot()["num_workers"] == 1:
                return
        assert time.monotonic() < deadline, "idle threads are still there"


def test_a_requested_number_of_threads_stays() -> None:
    loader = fl.Loader(fl.synthetic(300, (8,)), [testing.delay(10)], batch_size=4, num_workers=3)
    for _ in loader:
        assert loader.snapshot()["num_workers"] == 3
