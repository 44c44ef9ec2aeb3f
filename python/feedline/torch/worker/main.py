"""A worker process of :class:`feedline.torch.DataLoader`: its start, its loop and its end.

In: requests of the engine over a socket, each for some samples. Out: one reply per request. The worker decides
nothing: the engine chooses samples, their order and their place. The samples are prepared by
:mod:`feedline.torch.worker.maker`.

Always true: the process ends when its socket closes, and within two seconds after its parent process died, even while
user code runs.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

import torch
from torch._utils import ExceptionWrapper

from feedline.torch.worker.maker import Maker, WorkerConfig
from feedline.worker import frames
from feedline.worker.arena import Arena

__all__ = ["STACK_SIGNAL", "WorkerConfig", "run_failed_worker", "run_worker"]

STACK_SIGNAL = signal.SIGRTMAX - 3
"""A worker that gets this signal appends its Python stack to the second file of its HELLO."""
_WATCH_SECONDS = 1.0


def run_worker(sock: socket.socket, config: WorkerConfig) -> NoReturn:
    """Answer requests until the socket closes, then end the process."""
    _prepare_process()
    arena, connection = _say_hello(sock)
    _serve(connection, Maker(config, arena))


def run_failed_worker(sock: socket.socket, failure: ExceptionWrapper) -> NoReturn:
    """Answer every request with an exception, in a worker that could not load its dataset."""
    _prepare_process()
    arena, connection = _say_hello(sock)
    _serve(connection, Maker(WorkerConfig(0, 1, "unit", None), arena, failure))


def _prepare_process() -> None:
    # Ctrl-C reaches all processes of a terminal. The parent handles it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # A handler of the training script must not run here.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True, name="feedline-watchdog").start()


def _say_hello(sock: socket.socket) -> tuple[Arena, frames.Connection]:
    stack = os.memfd_create("feedline-stack", os.MFD_CLOEXEC)
    faulthandler.register(STACK_SIGNAL, file=stack, all_threads=False)
    arena, connection = Arena(), frames.Connection(sock)
    try:
        connection.send_hello(arena.fd, stack)
    except (BrokenPipeError, ConnectionResetError):
        _end()
    return arena, connection


def _serve(connection: frames.Connection, maker: Maker) -> NoReturn:
    try:
        while (frame := connection.receive()) is not None:
            body, fds = frame
            if body[0] == frames.MAKE:
                reply: bytes | bytearray = maker.make(frames.read_make(body, fds))
            else:
                reply = maker.call(*pickle.loads(body[4:]))
            for fd in fds:
                os.close(fd)
            connection.send(reply)
    except (BrokenPipeError, ConnectionResetError):
        pass
    _end()


def _watch_parent(parent: int) -> None:
    """End this process when its parent is gone."""
    # Under forkserver the parent of this process is the server. The sentinel belongs to the training process.
    ancestor = multiprocessing.parent_process()
    while os.getppid() == parent and (ancestor is None or ancestor.is_alive()):
        time.sleep(_WATCH_SECONDS)
    _end()


def _end() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # The terminal or pipe is gone.
            continue
    os._exit(0)
