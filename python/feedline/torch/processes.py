"""Starts and ends worker processes.

In: a :class:`WorkerConfig` and a start method. Out: a process and the parent's end of its socket. Workers are daemons,
so ``multiprocessing`` ends them at the exit of the interpreter, too.

Always true: no worker holds the parent's end of a socket, its own or another worker's. Otherwise a closed socket would
not end its worker.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver, spawn
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from feedline.torch.worker.main import WorkerConfig, run_worker
from feedline.torch.worker.packing import PackedConfig
from feedline.torch.worker.received import run_received_worker

_PRELOAD = ["feedline.torch.worker.preload"]
_TERMINATE_SECONDS = 2.0
_KILL_SECONDS = 10.0
"""The kernel may need this long to free a large process."""
_names_lock = threading.Lock()
_started = itertools.count(1)
_parent_inodes: set[int] = set()
"""The parents' ends of all sockets, by inode: the engine may hold them under other descriptors."""


@dataclass(eq=False)
class WorkerProcess:
    """A started worker."""

    process: BaseProcess
    socket: socket.socket
    """The parent's end. ``socket.detach()`` hands it to the engine."""
    _inode: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the socket out of workers that are forked later."""
        self._inode = os.fstat(self.socket.fileno()).st_ino
        _parent_inodes.add(self._inode)
        weakref.finalize(self, _parent_inodes.discard, self._inode)


class WorkerStarter:
    """Starts workers that differ only in their number. Pickles the dataset at most once."""

    def __init__(self, context: BaseContext, config: WorkerConfig) -> None:
        """Raise :class:`UnsendableError` if the start method needs to pickle the dataset and cannot."""
        self._context = context
        self._config = config
        self._is_fork = context.get_start_method() == "fork"
        self._packed = None if self._is_fork else PackedConfig(config)

    def start(self, worker_id: int) -> WorkerProcess:
        """Start a worker. Its HELLO arrives on the socket when it is ready."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = self._fork(worker_id, theirs, ours) if self._is_fork else self._spawn(worker_id, theirs)
        except BaseException:
            ours.close()
            raise
        return WorkerProcess(process, ours)

    def _fork(self, worker_id: int, theirs: socket.socket, ours: socket.socket) -> BaseProcess:
        config = replace(self._config, worker_id=worker_id)
        process = self._process(_name_of(worker_id), _run_forked, (config, theirs, ours))
        with warnings.catch_warnings(), _blocked_interrupts():
            # Python 3.12 warns because the engine has threads. They hold no lock that a worker needs.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
            process.start()
        return process

    def _spawn(self, worker_id: int, theirs: socket.socket) -> BaseProcess:
        name = _name_of(worker_id)
        process = self._process(name, run_received_worker, (self._packed, worker_id, theirs))
        if self._context.get_start_method() == "forkserver":
            _preload_in_server(self._context)
        with _without_main_script(name):
            process.start()
        return process

    def _process(self, name: str, target: Any, arguments: tuple[Any, ...]) -> BaseProcess:
        make: Any = self._context.Process  # type: ignore[attr-defined]
        process: BaseProcess = make(target=target, args=arguments, name=name, daemon=True)
        return process


def _name_of(worker_id: int) -> str:
    """Return a name for the process of a worker. No other worker of this program has it."""
    return f"feedline-worker-{worker_id}-{next(_started)}"


def choose_context(wanted: str | BaseContext | None) -> BaseContext:
    """Return the context of ``multiprocessing_context``, or choose one for ``None`` and ``"auto"``.

    Fork is the quickest and needs no pickling. It is safe only while no other Python thread, CUDA or JAX is there.
    A program that called ``multiprocessing.set_start_method`` with another method gets that one.
    """
    if isinstance(wanted, BaseContext):
        return wanted
    if wanted is None or wanted == "auto":
        # "fork" says nothing: on Linux it is also the value after any use of `multiprocessing`.
        chosen = multiprocessing.get_start_method(allow_none=True)
        wanted = chosen if chosen not in (None, "fork") else "fork" if _can_fork() else "forkserver"
    return multiprocessing.get_context(wanted)


def end_workers(workers: Iterable[WorkerProcess], grace_seconds: float = 5.0) -> None:
    """Close the sockets and wait for the processes. Those that do not end in time are killed.

    The engine must have closed its ends before, if it got them.
    """
    workers = list(workers)
    for worker in workers:
        worker.socket.close()
    _join(workers, grace_seconds)
    for worker in workers:
        worker.process.terminate()
    _join(workers, _TERMINATE_SECONDS)
    for worker in workers:
        worker.process.kill()
    _join(workers, _KILL_SECONDS)


def _join(workers: list[WorkerProcess], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))


def _can_fork() -> bool:
    cuda = sys.modules.get("torch.cuda")
    has_cuda = cuda is not None and cuda.is_initialized()
    return threading.active_count() == 1 and not has_cuda and "jax" not in sys.modules


def _run_forked(config: WorkerConfig, theirs: socket.socket, ours: socket.socket) -> None:
    # Objects of the parent are never freed here. Looking at them would only copy their pages.
    gc.freeze()
    ours.close()
    _close_parent_ends()
    run_worker(theirs, config)


def _close_parent_ends() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_ino in _parent_inodes and os.readlink(f"/proc/self/fd/{name}").startswith(
                "socket:"
            ):
                os.close(int(name))
        except OSError:  # The descriptor of the listing itself.
            continue


def _preload_in_server(context: BaseContext) -> None:
    """Let the fork server import torch once, and never the main script. No effect if the server runs already."""
    asked_for = getattr(forkserver._forkserver, "_preload_modules", [])
    context.set_forkserver_preload(list(dict.fromkeys([*(set(asked_for) - {"__main__"}), *_PRELOAD])))


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Hold back Ctrl-C until the new process ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main_script(hidden_from: str) -> Iterator[None]:
    """Keep ``multiprocessing`` from running the main script again in the process of this name.

    Scripts without ``if __name__ == "__main__"`` would start workers without end.
    """
    with _names_lock:
        original = spawn.get_preparation_data

        def preparation_data(name: str) -> dict[str, Any]:
            data = original(name)
            if name in (hidden_from, "ignore"):  # The fork server has the second name.
                for key in ("init_main_from_name", "init_main_from_path", "main_path"):
                    data.pop(key, None)
            return data

        spawn.get_preparation_data = preparation_data
        try:
            yield
        finally:
            spawn.get_preparation_data = original
