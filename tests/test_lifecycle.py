"""Law 7: nothing hangs and nothing is left behind, whatever is ended and when."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import HANG_SECONDS

import feedline as fl
from feedline import ops

Start = Callable[..., "subprocess.Popen[str]"]

SETUP = """
import os, signal, sys, threading, time
import numpy as np
import feedline as fl
from feedline import ops

def slow(data, seconds=5.0):
    time.sleep(seconds)
    return data

def threads():
    return len(os.listdir("/proc/self/task"))
"""


def threads() -> int:
    """The engine's threads, by their names. Threads of torch and of tests do not count."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:
            continue  # The thread ended meanwhile.
    return sum(name.startswith("feedline") for name in names)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def check_ends(process: subprocess.Popen[str], within: float) -> tuple[int, str]:
    """Check that the process ends within ``within`` seconds. Gives its exit code and its error output."""
    began = time.monotonic()
    try:
        _, err = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail("the process hangs")
    took = time.monotonic() - began
    assert took < within, f"it took {took:.2f} s\n{err}"
    return process.returncode, err


@pytest.mark.parametrize(
    "body",
    [
        "for _ in iter(int, 1):\n    for batch in loader: pass",
        "for batch in loader: time.sleep(0.01)",
        "next(iter(blocked))",
    ],
    ids=["while iterating", "while training", "while a batch is awaited"],
)
def test_ctrl_c_ends_with_keyboard_interrupt(start_python: Start, body: str) -> None:
    code = f"""{SETUP}
gate = threading.Event()
def wait(data):
    while not gate.wait(0.02): pass
    return data
loader = fl.Loader(fl.synthetic(10**6, (64, 64, 3)), batch_size=8)
blocked = fl.Loader(fl.synthetic(8, (4, 4, 3)), [ops.Map(wait, on="data")], batch_size=8)
print("ready")
try:
{chr(10).join("    " + line for line in body.splitlines())}
except KeyboardInterrupt:
    print("interrupted")
    gate.set()
    raise
"""
    process = start_python(code)
    assert read_line(process) == "ready"
    time.sleep(0.3)  # Not a wait for a condition: the signal should arrive in the middle of the work.
    process.send_signal(signal.SIGINT)
    code, err = check_ends(process, within=1.5)
    assert code in (-signal.SIGINT, 130)
    assert err.strip().endswith("KeyboardInterrupt")


def check_nothing_lost(
    loader: fl.Loader, caught: Callable[[], None] = lambda: None, arrived: Callable[[], None] = lambda: None
) -> None:
    """Check that four batches of 100 all arrive, although Ctrl-C comes in between and the state is read then."""
    found: list[list[int]] = []
    interrupts = 0
    iterator = iter(loader)
    while len(found) < 4:
        try:
            found.append(next(iterator)["index"].tolist())
            arrived()
        except KeyboardInterrupt:
            interrupts += 1
            assert loader.state_dict()["batches"] == len(found), "the state says what was received"
            caught()
    assert interrupts == 1
    assert sum(found, []) == list(range(400))


def test_a_loader_goes_on_after_ctrl_c_while_a_batch_was_awaited() -> None:
    arrived, gate = threading.Event(), threading.Event()

    def wait(data: np.ndarray) -> np.ndarray:
        if data == 150:
            gate.wait(3 * HANG_SECONDS)
        return data

    def interrupt() -> None:
        arrived.wait(HANG_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    loader = fl.Loader(fl.array(np.arange(400)), [ops.Map(wait, on="data")], batch_size=100)
    threading.Thread(target=interrupt).start()
    check_nothing_lost(loader, gate.set, arrived.set)


def test_ctrl_c_just_before_a_batch_is_ready_does_not_lose_it() -> None:
    is_sent, arrived = threading.Event(), threading.Event()

    def interrupt(data: np.ndarray) -> np.ndarray:
        if data == 199 and not is_sent.is_set():
            is_sent.set()
            arrived.wait(HANG_SECONDS)
            os.kill(os.getpid(), signal.SIGINT)
        return data

    chain = [ops.Map(interrupt, on="data")]
    loader = fl.Loader(
        fl.array(np.arange(400)), chain, batch_size=100, num_workers=1, tuning=fl.tuning(prefetch_batches=1)
    )
    check_nothing_lost(loader, arrived=arrived.set)


def test_a_log_handler_that_raises_loses_no_batch(pictures: Callable[..., Path]) -> None:
    root = pictures(12, classes=())
    (root / "0000.png").write_bytes(b"bad")
    chain = [ops.DecodeImage(), ops.CenterCrop(8)]
    loader = fl.Loader(fl.folder(root), chain, batch_size=4, on_error=fl.substitute(0.2))

    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the user's")

    logger = logging.getLogger("feedline")
    logger.addFilter(refuse)
    found, refusals = [], 0
    try:
        iterator = iter(loader)
        while len(found) < 3:
            try:
                found.append(next(iterator)["index"].tolist())
            except StopIteration:
                break
            except RuntimeError:
                refusals += 1
    finally:
        logger.removeFilter(refuse)
    assert refusals > 0
    assert [batch[-1] for batch in found] == [3, 7, 11]


def test_a_waiting_consumer_does_not_block_other_threads() -> None:
    entered, gate = threading.Event(), threading.Event()

    def block(data: np.ndarray) -> np.ndarray:
        entered.set()
        gate.wait(3 * HANG_SECONDS)
        return data

    loader = fl.Loader(fl.synthetic(8, (8,)), [ops.Map(block, on="data")], batch_size=4)
    found: list[Any] = []
    consumer = threading.Thread(target=lambda: found.extend(loader))
    consumer.start()
    assert entered.wait(HANG_SECONDS)
    began = time.monotonic()
    loader.state_dict(), loader.snapshot(), loader.epoch, len(loader)
    assert time.monotonic() - began < HANG_SECONDS
    gate.set()
    consumer.join(HANG_SECONDS)
    assert len(found) == 2


def test_dropping_an_iterator_mid_epoch_frees_threads_and_memory(wait_until: Callable[..., None]) -> None:
    before = threads()
    loader = fl.Loader(fl.synthetic(1000, (256, 256, 3)), batch_size=8, num_workers=4)
    for _ in range(3):
        for _ in loader:
            break
        wait_until(lambda: threads() <= before, "threads are gone")
        memory = loader.snapshot()["memory"]
        assert memory["used_bytes"] == 0
        assert memory["peak_bytes"] > 0


def test_a_loader_that_nobody_holds_frees_its_threads(wait_until: Callable[..., None]) -> None:
    before = threads()
    loader = fl.Loader(fl.synthetic(1000, (64, 64, 3)), batch_size=8, num_workers=4)
    iterator = iter(loader)
    next(iterator)
    # A thread has its name once it runs.
    wait_until(lambda: threads() >= before + 4, "threads have started")
    del loader, iterator
    gc.collect()
    wait_until(lambda: threads() <= before, "threads are gone")


@pytest.mark.parametrize("ending", ["close", "with", "del"])
def test_200_loaders_leave_no_thread_no_descriptor_and_no_memory(
    ending: str, pictures: Callable[..., Path], wait_until: Callable[..., None]
) -> None:
    source = fl.folder(pictures(8, size=(64, 64)))
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(64), ops.Normalize()]

    def use() -> None:
        loader = fl.Loader(source, chain, batch_size=4, num_workers=2)
        if ending == "with":
            with loader:
                next(iter(loader))
            return
        iterator = iter(loader)
        next(iterator)
        if ending == "close":
            loader.close()

    for _ in range(30):
        use()
    gc.collect()
    before = (threads(), descriptors(), resident_bytes())
    for _ in range(200):
        use()
    gc.collect()
    wait_until(lambda: threads() <= before[0], "threads are gone")
    assert descriptors() <= before[1]
    assert resident_bytes() - before[2] < 5_000_000


def test_close_is_quick_and_a_closed_loader_raises() -> None:
    loader = fl.Loader(fl.synthetic(1000, (8,)), batch_size=4)
    iterator = iter(loader)
    next(iterator)
    before = threads()
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < HANG_SECONDS
    assert threads() < before
    loader.close()
    for use in (lambda: next(iterator), lambda: iter(loader), lambda: list(loader)):
        with pytest.raises(fl.ClosedError, match="the loader is closed"):
            use()


def test_a_closed_loader_that_never_ran_raises_too() -> None:
    loader = fl.Loader(fl.synthetic(10, (8,)), batch_size=4)
    loader.close()
    with pytest.raises(fl.ClosedError):
        iter(loader)


def test_law_7_close_does_not_wait_for_a_function_that_is_busy(wait_until: Callable[..., None]) -> None:
    entered, gate = threading.Event(), threading.Event()

    def busy(data: np.ndarray) -> np.ndarray:
        entered.set()
        gate.wait(3 * HANG_SECONDS)
        return data

    before = threads()
    loader = fl.Loader(fl.synthetic(100, (8,)), [ops.Map(busy, on="data")], batch_size=4, num_workers=2)

    def consume() -> None:
        with pytest.raises(fl.ClosedError):
            next(iter(loader))

    waiting = threading.Thread(target=consume)
    waiting.start()
    assert entered.wait(HANG_SECONDS)
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < HANG_SECONDS
    waiting.join(HANG_SECONDS)
    assert not waiting.is_alive(), "a consumer that waits is woken"
    gate.set()
    wait_until(lambda: threads() <= before, "the thread of the function ends by itself")


def test_close_from_another_thread_wakes_the_consumer() -> None:
    gate = threading.Event()
    loader = fl.Loader(
        fl.synthetic(8, (8,)), [ops.Map(lambda data: (gate.wait(3 * HANG_SECONDS), data)[1], on="data")], batch_size=4
    )
    threading.Timer(0.2, loader.close).start()
    began = time.monotonic()
    with pytest.raises(fl.ClosedError):
        next(iter(loader))
    assert time.monotonic() - began < HANG_SECONDS
    gate.set()


def test_a_loader_can_be_used_from_another_thread() -> None:
    loader = fl.Loader(fl.array(np.arange(100)), batch_size=7)
    found: list[int] = []

    def use() -> None:
        found.extend(value for batch in loader for value in batch["data"].tolist())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(HANG_SECONDS)
    assert found == list(range(100))


def test_threads_that_share_an_iterator_get_each_batch_once() -> None:
    iterator = iter(fl.Loader(fl.array(np.arange(4000)), batch_size=4, num_workers=2))
    parts: list[list[int]] = [[] for _ in range(4)]

    def use(part: list[int]) -> None:
        for batch in iterator:
            part.extend(batch["data"].tolist())

    users = [threading.Thread(target=use, args=(part,)) for part in parts]
    for user in users:
        user.start()
    for user in users:
        user.join(20)
    assert sorted(sum(parts, [])) == list(range(4000))


def test_of_two_iterators_the_newer_has_the_stream_and_the_older_says_so() -> None:
    loader = fl.Loader(fl.array(np.arange(40)), batch_size=4, shuffle=True)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    with pytest.raises(fl.FeedlineError, match="newer iterator"):
        next(older)
    assert [value for batch in newer for value in batch["data"].tolist()] == loader.plan.indices(1)
    del older
    assert [value for batch in loader for value in batch["data"].tolist()] == loader.plan.indices(2)


def test_dropping_an_older_iterator_does_not_disturb_the_newer() -> None:
    loader = fl.Loader(fl.array(np.arange(40)), batch_size=4)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    first = next(newer)
    del older
    gc.collect()
    assert first["data"].tolist() + [value for batch in newer for value in batch["data"].tolist()] == list(range(40))


def test_a_function_left_behind_by_a_break_does_not_disturb_the_next_epoch() -> None:
    gate = threading.Event()

    def linger(data: np.ndarray) -> np.ndarray:
        if data[0] == 9 and not gate.is_set():
            gate.wait(3 * HANG_SECONDS)
        return data

    source = fl.array(np.arange(40).reshape(40, 1))
    loader = fl.Loader(source, [ops.Map(linger, on="data")], batch_size=4, num_workers=2)
    for _batch in loader:
        break
    gate.set()
    assert sorted(index for batch in loader for index in batch["index"]) == list(range(40))
    loader.close()
    assert loader.snapshot()["memory"]["used_bytes"] == 0


def test_closing_twice_is_quick_and_frees_the_memory(wait_until: Callable[..., None]) -> None:
    loader = fl.Loader(fl.synthetic(400, (512, 512, 3)), batch_size=16)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    began = time.monotonic()
    loader.close()
    del iterator
    assert time.monotonic() - began < HANG_SECONDS
    wait_until(lambda: loader.snapshot()["memory"]["used_bytes"] == 0, "all memory is returned")
