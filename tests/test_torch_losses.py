"""Lost and stuck workers: what feedline.torch.DataLoader raises, how it goes on, and that nothing is left."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from making import HANG_SECONDS
from torch.utils.data import IterDataPipe
from torch_making import LOADERS, Calls, Yields, drain, make, ours, shard_of

import feedline

both = pytest.mark.parametrize("kind", list(LOADERS))
LOST = r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"


def kill(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def quietly(function: Callable[[], Any]) -> Callable[[int], None]:
    """Call a function that ends the process, without a report of pytest's fault handler."""

    def lose(_: int) -> None:
        faulthandler.disable()
        function()

    return lose


LOSSES = {
    "kill -9": (kill, "is killed by signal: Killed"),
    "segfault": (quietly(lambda: ctypes.string_at(0)), "is killed by signal: Segmentation fault"),
    "os._exit": (lambda _: os._exit(7), "exit code 7"),
    "sys.exit": (lambda _: sys.exit(8), "exit code 8"),
    "abort": (quietly(os.abort), "is killed by signal: Aborted"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_lost_worker_is_named_with_its_signal_and_sample(name: str) -> None:
    lose, text = LOSSES[name]
    loader = ours(Calls(lambda index: index if index != 5 else lose(index)), 2, batch_size=2)
    batches = iter(loader)
    with pytest.raises(RuntimeError, match=LOST) as caught:
        list(batches)
    assert text in str(caught.value)
    assert re.search(r"while worker [01] made sample 5 of Calls", str(caught.value))
    # The loss must not look like the end of the epoch.
    with pytest.raises(RuntimeError, match=LOST):
        next(batches)


@both
@pytest.mark.parametrize("where", ["collate_fn", "worker_init_fn", "iterable"])
def test_a_worker_that_is_lost_anywhere_is_an_error(kind: str, where: str) -> None:
    dataset: Any = Yields(lambda: map(kill, range(3))) if where == "iterable" else Calls(int)
    options = {} if where == "iterable" else {where: kill}
    with pytest.raises(RuntimeError, match=LOST):
        drain(make(kind, dataset, 1, batch_size=2, **options))


@pytest.mark.parametrize("is_iterable", [False, True])
def test_persistent_workers_that_were_killed_between_epochs_are_an_error_once(is_iterable: bool) -> None:
    dataset: Any = Yields(lambda: shard_of(8)) if is_iterable else Calls(int)
    loader = ours(dataset, 2, batch_size=2, persistent_workers=True)
    expected = sorted(sum((batch.tolist() for batch in loader), []))
    for process in loader._iterator._workers:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=LOST):
        list(loader)
    assert sorted(sum((batch.tolist() for batch in loader), [])) == expected


def kill_once(path: Path) -> Callable[[int], int]:
    """Give a function that kills its process at sample 5, the first time."""

    def sample(index: int) -> int:
        if index == 5 and not path.exists():
            path.touch()
            kill(index)
        return index

    return sample


@pytest.mark.parametrize("mode", ["sample", "unit", "iterable"])
def test_a_killed_worker_is_replaced_and_every_sample_arrives_once(mode: str, tmp_path: Path) -> None:
    sample = kill_once(tmp_path / "killed")
    options: dict[str, Any] = {"collate_fn": torch.tensor} if mode == "unit" else {}
    dataset: Any = Yields(lambda: map(sample, shard_of(20))) if mode == "iterable" else Calls(sample, 20)
    loader = ours(dataset, 2, batch_size=2, on_error="restart", **options)
    found = [batch.tolist() for batch in loader]
    assert sorted(sum(found, [])) == list(range(20))
    if mode != "iterable":
        assert sum(found, []) == list(range(20))
    assert (tmp_path / "killed").exists()


def test_a_sample_that_kills_every_worker_ends_the_run_after_three_replacements(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = ours(Calls(lambda index: kill(index) if index == 1 else index), 1, on_error="restart")
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=LOST):
            list(batches)
    replaced = [record.getMessage() for record in caplog.records if "another worker" in record.getMessage()]
    assert len(replaced) == 3, "no worker is started that nobody waits for"


def test_no_worker_is_replaced_at_a_time_out_unless_that_is_wanted(
    caplog: pytest.LogCaptureFixture, wait_until: Callable[..., None]
) -> None:
    def sample(index: int) -> int:
        return time.sleep(HANG_SECONDS) or 0 if index == 0 else kill(index) or 1

    batches = iter(ours(Calls(sample), 2, timeout=1))
    wait_until(lambda: any(worker.exitcode for worker in batches._workers), "a worker is lost")
    with pytest.raises(RuntimeError, match="timed out"):
        next(batches)
    assert "another worker" not in caplog.text


class Waits(IterDataPipe):
    """Waits without end where it is told to, in an item or when it is shuffled for its second epoch."""

    def __init__(self, where: str) -> None:
        self.where, self.epochs, self.waits = where, 0, multiprocessing.get_context("fork").Event()

    def wait(self) -> None:
        self.waits.set()
        time.sleep(10 * HANG_SECONDS)

    def set_seed(self, seed: int) -> None:
        self.epochs += 1
        if self.where == "call" and self.epochs == 2:
            self.wait()

    def __iter__(self) -> Iterator[int]:
        yield from range(3)
        if self.where == "item":
            self.wait()


def is_in(function: str) -> bool:
    """Say whether the main thread runs a function of this name."""
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("where", ["call", "item"])
def test_an_interrupt_is_raised_while_persistent_workers_begin_an_epoch(
    where: str, wait_until: Callable[..., None]
) -> None:
    dataset = Waits(where)
    loader = ours(dataset, 1, batch_size=None, persistent_workers=True)
    next(iter(loader))
    (process,) = loader._iterator._workers
    if where == "item":
        assert dataset.waits.wait(HANG_SECONDS)

    def interrupt() -> None:
        wait_until(lambda: dataset.waits.is_set() and is_in("call"), "the loader calls a function in its worker")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        iter(loader)
    thread.join()
    process.join(HANG_SECONDS)
    assert not process.is_alive()
    dataset.where = "nowhere"
    assert list(loader) == [0, 1, 2], "the next epoch has other workers"


def test_a_stuck_worker_is_named_with_its_sample_and_its_stack() -> None:
    def stuck_here(index: int) -> int:
        if index == 2:
            time.sleep(HANG_SECONDS)
        return index

    batches = iter(ours(Calls(stuck_here), 2, timeout=1))
    assert [next(batches).tolist() for _ in range(2)] == [[0], [1]]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 1 seconds") as caught:
            next(batches)
    assert re.search(r"worker [01] \(pid \d+\) works on sample 2\n", str(caught.value))
    assert "in stuck_here" in str(caught.value)


def shared_memory() -> int:
    """Give how many files in memory this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("/dev/shm/" in line or "/memfd:" in line for line in lines)


def named_memory(*processes: int) -> set[Path]:
    """Give the named files in memory that processes have mapped. Other programs have some of their own."""
    maps = "".join(Path(f"/proc/{process}/maps").read_text() for process in processes)
    return {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}


def test_nothing_is_left_of_twenty_loaders() -> None:
    def use(number: int) -> None:
        sample = Calls(lambda index: kill(index) if number == 3 and index == 5 else torch.ones(1000), 20)
        batches = iter(ours(sample, 2, batch_size=4))
        named.update(named_memory(*(worker.pid for worker in batches._workers)))
        for _ in range(number):
            next(batches)
        named.update(named_memory(os.getpid()))

    gc.collect()
    named, known = set[Path](), named_memory(os.getpid())
    files, memory, children = len(os.listdir("/proc/self/fd")), shared_memory(), set(psutil.Process().children())
    for number in range(20):
        with pytest.raises(RuntimeError, match=LOST) if number % 5 == 3 else nullcontext():
            use(number % 5)
    gc.collect()
    assert set(psutil.Process().children()) <= children
    assert len(os.listdir("/proc/self/fd")) <= files
    assert shared_memory() <= memory
    assert not [path for path in named - known if path.exists()]


LOOP = """
import os, sys
sys.path[:0] = sys.argv[2:]
import time, torch
from torch_making import Calls, ours
def sample(index):
    time.sleep(0.01)
    return torch.ones(100) * index
loader = ours(Calls(sample, 10**6), 2, batch_size=2, persistent_workers=True)
batches = iter(loader)
next(batches)
print(*(worker.pid for worker in batches._workers), flush=True)
if sys.argv[1] == "exit":
    sys.exit(0)
for batch in batches:
    pass
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL", "SIGTERM", "exit"])
def test_however_the_program_ends_its_workers_end_too(how: str, start_python: Callable[..., Any]) -> None:
    process = start_python(LOOP, how, Path(feedline.__file__).parent.parent)
    workers = [int(text) for text in process.stdout.readline().split()]
    assert len(workers) == 2, process.stderr.read()
    if how != "exit":
        process.send_signal(getattr(signal, how))
    _, errors = process.communicate(timeout=HANG_SECONDS)
    if how == "SIGINT":
        assert "KeyboardInterrupt" in errors
        assert process.returncode != 0
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in workers if psutil.pid_exists(pid)], HANG_SECONDS)
    assert not alive
