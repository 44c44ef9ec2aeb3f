"""All orders of delivery: killed and resumed, and with a sample that takes very long."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feedline as fl
from feedline import testing

ORDERS: dict[str, Any] = {"strict": "strict", "planned": fl.planned(), "arrival": fl.arrival()}
N, BATCH = 180, 5

TRAIN = """
import json, os, sys, feedline as fl
from feedline import testing

order, checkpoint = sys.argv[1:]
costs = [25.0 if number % 20 == 3 else 0.5 for number in range(180)]
loader = fl.Loader(
    fl.synthetic(180, (4,)), [testing.delay(costs)], batch_size=5, shuffle=True, seed=4, num_workers=4,
    order={"strict": "strict", "planned": fl.planned(), "arrival": fl.arrival()}[order],
)
seen = []
if os.path.exists(checkpoint):
    state, seen = json.load(open(checkpoint))
    loader.load_state_dict(state)
while loader.epoch < 2:
    for batch in loader:
        seen.append([loader.state_dict()["epoch"], batch["index"].tolist()])
        if len(seen) % 3 == 0:
            with open(checkpoint + ".new", "w") as file:
                json.dump([loader.state_dict(), seen], file)
            os.replace(checkpoint + ".new", checkpoint)
        print(len(seen), flush=True)
json.dump([None, seen], open(checkpoint, "w"))
"""


@pytest.mark.parametrize("order", ORDERS)
def test_law_4_killed_with_kill_9_again_and_again_each_sample_comes_once_an_epoch(
    order: str, start_python: Callable[..., Any], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for kill_after in (4, 11, 16, 29, 36, 44, 61, None):
        process = start_python(TRAIN, order, checkpoint)
        for line in process.stdout:
            if int(line) == kill_after:
                process.kill()
                break
        process.wait(60)
        assert process.returncode == (0 if kill_after is None else -9), process.stderr.read()
    stream = [batch for _, batch in json.loads(checkpoint.read_text())[1]]
    assert [sorted(sum(stream[first : first + 36], [])) for first in (0, 36)] == [list(range(N))] * 2
    if order != "arrival":
        whole = tmp_path / "whole"
        process = start_python(TRAIN, order, whole)
        process.communicate(timeout=60)
        assert [batch for _, batch in json.loads(whole.read_text())[1]] == stream


def test_law_5_and_7_a_sample_of_30_seconds_with_little_memory_neither_hangs_nor_overruns() -> None:
    budget, results = 60_000, dict[str, Any]()
    costs = [30_000.0 if number == 20 else 1.0 for number in range(120)]

    def run(order: str) -> None:
        loader = fl.Loader(
            fl.synthetic(120, (32, 32)), [testing.delay(costs)], batch_size=4, num_workers=3, memory_budget=budget,
            order=ORDERS[order],
        )  # fmt: skip
        seen = sorted(sample for batch in loader for sample in batch["index"].tolist())
        results[order] = (seen, loader.snapshot()["memory"])
        loader.close()

    threads = [threading.Thread(target=run, args=(order,)) for order in ORDERS]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert time.monotonic() - began > 29, "the sample takes its time"
    for order in ORDERS:
        seen, memory = results[order]
        assert seen == list(range(120)), order
        assert memory["peak_bytes"] <= budget, order
