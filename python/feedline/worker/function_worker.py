"""A process that calls one function of the user, for ``ops.Map(..., worker_type="process")``.

In: calls of the engine over a socket, which is the standard input of this process. Out: one reply per call. Arguments
arrive in memory that the engine writes (the inbox), results leave through memory that it reads (the arena).

Always true: the process ends when its socket closes, and within two seconds after its parent died, even while the
function runs. Before each call the generators of ``random``, NumPy and torch are seeded for the sample.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from feedline.worker import frames
from feedline.worker.arena import Arena
from feedline.worker.carried import unpack
from feedline.worker.functions import SampleFunction
from feedline.worker.seeding import sample_seeder

_WATCH_SECONDS = 1.0
_HEAD = struct.Struct("<BBHI4Q")
_VALUE = struct.Struct("<BBBx")
_PLACE = struct.Struct("<QQ")
_ARRAY, _BYTES, _TEXT = 0, 1, 2
_RETURNED, _RAISED, _UNUSABLE = 0, 1, 2


def main() -> NoReturn:
    """Answer calls until the socket closes, then end the process."""
    connection = frames.Connection(_take_socket())
    # Ctrl-C reaches all processes of a terminal. The parent handles it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True, name="feedline-watchdog").start()
    arena = Arena()
    worker: _FunctionWorker | None = None
    try:
        connection.send_hello(arena.fd)
        while (frame := connection.receive()) is not None:
            body, fds = frame
            if body[0] == frames.CALL:
                worker, reply = _load(bytes(body[4:]), arena)
            else:
                assert worker is not None, "the engine sends the function first"
                reply = worker.answer(body, fds)
            connection.send(reply)
    except (BrokenPipeError, ConnectionResetError):
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _take_socket() -> socket.socket:
    """Return the socket. Programs that the function starts must not get it as their standard input."""
    sock = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return sock


def _load(packed: bytes, arena: Arena) -> tuple[_FunctionWorker | None, bytes]:
    try:
        return _FunctionWorker(unpack(packed), arena), frames.result_of(True, b"")
    except Exception as error:
        return None, frames.result_of(False, _pickled(error))


class _FunctionWorker:
    """The function and the memory of its arguments and results."""

    def __init__(self, function: SampleFunction, arena: Arena) -> None:
        self._function, self._arena = function, arena
        # The generators belong to the user's code alone in this process.
        self._seed = sample_seeder()
        self._inbox: mmap.mmap | None = None

    def answer(self, body: memoryview, fds: list[int]) -> bytes:
        """Call the function. Returns a reply."""
        for fd in fds:
            self._inbox = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
            os.close(fd)
        self._arena.reset()
        _, has_key, _, count, first, second, index, epoch = _HEAD.unpack_from(body)
        (length,) = struct.unpack_from("<I", body, _HEAD.size)
        place = _HEAD.size + 4 + length
        key = str(body[place - length : place], "utf-8") if has_key else None
        status = _RAISED
        try:
            values = self._arguments(body, place, count)
            # torch takes signed numbers.
            self._seed(first >> 1)
            returned = self._function.call(values, (first, second), index, epoch, key)
            status = _UNUSABLE
            results = [self._stored(value) for value in self._function.results(returned)]
        except BaseException as error:  # Also SystemExit: the function does not decide about this process.
            return _framed(struct.pack("<BBH", frames.MAP, status, 0) + _pickled(error))
        parts = [struct.pack("<BBHI", frames.MAP, _RETURNED, 0, len(results))]
        return _framed(b"".join([*parts, *results]))

    def _arguments(self, body: memoryview, place: int, count: int) -> list[Any]:
        assert self._inbox is not None, "the engine sends the memory with the first call"
        values: list[Any] = []
        for _ in range(count):
            kind, code, dimensions = _VALUE.unpack_from(body, place)
            place += _VALUE.size
            shape = struct.unpack_from(f"<{dimensions}Q", body, place)
            place += 8 * dimensions
            offset, length = _PLACE.unpack_from(body, place)
            place += _PLACE.size
            if kind == _ARRAY:
                dtype = np.dtype(frames.DTYPE_NAMES[code])
                array: Any = np.ndarray(shape, dtype, buffer=self._inbox, offset=offset if length else 0)
                # The function may keep its argument, and the next call overwrites this memory.
                values.append(array.copy())
                continue
            content = self._inbox[offset : offset + length]
            values.append(content if kind == _BYTES else content.decode())
        return values

    def _stored(self, value: str | bytes | np.ndarray[Any, Any]) -> bytes:
        """Put a result into the arena. Returns where it is."""
        if isinstance(value, np.ndarray):
            head = _VALUE.pack(_ARRAY, frames.DTYPE_NAMES.index(value.dtype.name), value.ndim)
            head += struct.pack(f"<{value.ndim}Q", *value.shape)
            content: Any = value.reshape(-1).view(np.uint8).data if value.size else b""
        else:
            head = _VALUE.pack(_BYTES if isinstance(value, bytes) else _TEXT, 0, 0)
            content = value if isinstance(value, bytes) else value.encode()
        offset, memory = self._arena.reserve(len(content))
        memory[:] = content
        return head + _PLACE.pack(offset, len(content))


def _of_user(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this module and of :class:`SampleFunction`."""
    own = (__name__, SampleFunction.__module__)
    rest = traceback
    while rest is not None and rest.tb_frame.f_globals.get("__name__") in own:
        rest = rest.tb_next
    return rest or traceback


def _framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def _pickled(error: BaseException) -> bytes:
    """Pickle an exception with its traceback. One that cannot be pickled becomes a ``RuntimeError`` with its text."""
    dump: Callable[[Any], bytes] = pickle.dumps
    try:
        pickled = dump(ExceptionWithTraceback(error, _of_user(error.__traceback__)))
        pickle.loads(pickled)
        return pickled
    except Exception:
        plain: BaseException = RuntimeError(f"{type(error).__name__}: {error}")
        return dump(ExceptionWithTraceback(plain, error.__traceback__))


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
