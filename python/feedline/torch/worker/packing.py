"""Sends a worker's configuration, with the dataset, to a process that was not forked from this one.

In: a :class:`WorkerConfig`. Out: an argument for ``multiprocessing.Process``, from which the new process restores it.
Classes and functions of the main script travel as code (cloudpickle), so the new process need not run the script.
Arrays and tensors of at least 1 MB go into one file in memory, which all workers map copy-on-write: they share its
pages until one of them writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import mmap
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import connection, reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch

from feedline.errors import FeedlineError
from feedline.torch.worker import payload
from feedline.torch.worker.maker import WorkerConfig
from feedline.worker.arena import ALIGNMENT

_SHARED_BYTES = 1 << 20
"""Smaller buffers stay in the pickle."""


class UnsendableError(FeedlineError, TypeError):
    """A dataset, or something in it, cannot be sent to a worker process."""


class PackedConfig:
    """A configuration that is pickled once for all workers."""

    def __init__(self, config: WorkerConfig) -> None:
        """Pickle the configuration. Raises :class:`UnsendableError` and names what cannot be pickled."""
        self._config = config
        self._at_each_start = False
        try:
            self._packed = _pack(config, _OUTSIDE_OF_START)
        except _OnlyAtStart:
            self._at_each_start = True

    def __reduce__(self) -> Any:
        """Called by ``multiprocessing`` while it starts a process."""
        if self._at_each_start:
            # This object keeps the file open until the process has it.
            self._packed = _pack(self._config, _during_start())
        memory = None if self._packed.fd is None else reduction.DupFd(self._packed.fd)
        return ReceivedConfig, (self._packed.stream, memory, self._packed.places)


class ReceivedConfig:
    """The other end of :class:`PackedConfig`. It has loaded nothing yet, so no user code has run."""

    def __init__(self, stream: bytes, memory: Any, places: list[tuple[int, int]]) -> None:
        """Keep the pieces."""
        self._stream, self._memory, self._places = stream, memory, places

    def load(self) -> WorkerConfig:
        """Return the configuration."""
        buffers: list[Any] = []
        if self._memory is not None:
            fd = self._memory.detach()
            size = os.fstat(fd).st_size
            mapping = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            os.close(fd)
            memory = np.frombuffer(mapping, np.uint8)
            buffers = [memory[offset : offset + length] for offset, length in self._places]
        config: WorkerConfig = pickle.loads(self._stream, buffers=buffers)
        _adopt_main_classes()
        return config


class _OnlyAtStart(Exception):
    """An object, for example a lock of ``multiprocessing``, can be pickled only while a process starts."""


class _Packed:
    """A pickle and its large buffers in a file in memory, which is closed with this object."""

    def __init__(self, stream: bytes, buffers: list[memoryview]) -> None:
        self.stream = stream
        self.places: list[tuple[int, int]] = []
        self.fd: int | None = None
        size = 0
        for buffer in buffers:
            self.places.append((size, buffer.nbytes))
            size += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        if size:
            self.fd = os.memfd_create("feedline-dataset", os.MFD_CLOEXEC)
            os.ftruncate(self.fd, size)
            memory = mmap.mmap(self.fd, size)
            for buffer, (offset, length) in zip(buffers, self.places, strict=True):
                memory[offset : offset + length] = buffer
            memory.close()

    def __del__(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


def _pack(config: WorkerConfig, table: dict[type, Callable[[Any], Any]]) -> _Packed:
    dump = partial(payload.pickled_by_value, in_band_below=_SHARED_BYTES, table=table)
    try:
        return _Packed(*dump(config))
    except _OnlyAtStart:
        raise
    except Exception as error:
        # The locks and queues of multiprocessing say so with a RuntimeError.
        if isinstance(error, RuntimeError) and get_spawning_popen() is None and "inheritance" in str(error):
            raise _OnlyAtStart from None
        path, cause = _culprit(config, error, dump)
        raise UnsendableError(f"cannot send {path} to a worker process: {cause}") from error


def _culprit(config: WorkerConfig, error: Exception, dump: Callable[[Any], Any]) -> tuple[str, Exception]:
    """Return the path and the error of the innermost object that cannot be pickled."""
    path, value, seen = "", config, {id(config)}
    while True:
        for name, child in _children(value):
            if id(child) in seen:
                continue
            seen.add(id(child))
            try:
                dump(child)
            except Exception as inner:
                path, value, error = path + name, child, inner
                break
        else:
            return path.removeprefix("."), error


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, (list, tuple, set)):
        yield from ((f"[{number}]", child) for number, child in enumerate(value))
    elif isinstance(value, partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif inspect.ismethod(value):
        yield ".__self__", value.__self__
    elif inspect.isfunction(value):
        used = inspect.getclosurevars(value)
        yield from ((f"'s variable {name}", child) for name, child in {**used.globals, **used.nonlocals}.items())
    elif not isinstance(value, type):
        yield from ((f".{name}", child) for name, child in getattr(value, "__dict__", {}).items())


def _adopt_main_classes() -> None:
    """Make the classes of the main script known under their names.

    Samples of these classes are then pickled by reference, which the training process understands, and not as code.
    """
    main = sys.modules["__main__"]
    tracked = getattr(sys.modules.get("cloudpickle.cloudpickle"), "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
    for kind in list(tracked.values()):
        if kind.__module__ == "__main__" and kind.__qualname__ == kind.__name__ and not hasattr(main, kind.__name__):
            setattr(main, kind.__name__, kind)


def _refuse(value: Any) -> Any:
    raise _OnlyAtStart


def _refuse_shared(tensor: torch.Tensor) -> Any:
    return _refuse(tensor) if _is_shared(tensor) else payload.reduce_tensor(tensor)


def _reduce_shared(tensor: torch.Tensor) -> Any:
    # A tensor in shared memory stays shared: users count with them across workers.
    from torch.multiprocessing.reductions import reduce_tensor

    return reduce_tensor(tensor) if _is_shared(tensor) else payload.reduce_tensor(tensor)


def _is_shared(tensor: torch.Tensor) -> bool:
    # torch cannot say it of sparse and nested tensors, which have several storages.
    return tensor.layout is torch.strided and not tensor.is_nested and tensor.is_shared()


_OUTSIDE_OF_START: dict[type, Callable[[Any], Any]] = {
    connection.Connection: _refuse,
    socket.socket: _refuse,
    torch.Tensor: _refuse_shared,
}


def _during_start() -> dict[type, Callable[[Any], Any]]:
    known = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    return {**known, torch.Tensor: _reduce_shared}
