"""The parent's side of a worker process in Python: speaks the protocol of the engine, for tests."""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from making import HANG_SECONDS

from feedline.torch.processes import WorkerProcess, WorkerStarter, choose_context, end_workers
from feedline.torch.worker import payload
from feedline.torch.worker.item import Item
from feedline.torch.worker.leaves import _NUMPY_DTYPES
from feedline.torch.worker.main import WorkerConfig
from feedline.torch.worker.schema import Schema

STORED, WHOLE, FAILED, ENDED = range(4)


class Record(NamedTuple):
    nanoseconds: int
    status: int
    value: Any
    """The object of the payload, or ``None``."""


@dataclass
class Made:
    records: list[Record]
    leaves: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    blob: bytes = b""

    def __getitem__(self, number: int) -> Record:
        return self.records[number]

    @property
    def statuses(self) -> list[int]:
        return [record.status for record in self.records]

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.records]


class Slab:
    """A batch's shared memory, with the layout that the engine uses."""

    def __init__(self, number: int, slots: int, leaves: list[tuple[int, tuple[int, ...]]], blob: bytes) -> None:
        self.number, self.slots, self.blob, self.is_known = number, slots, blob, False
        self.places: list[tuple[int, int]] = []
        size = 0
        for code, shape in leaves:
            slot_bytes = int(np.prod(shape, dtype=int)) * _NUMPY_DTYPES[code].itemsize
            self.places.append((size, slot_bytes))
            size += -(-slot_bytes * slots // 64) * 64
        self.size = max(size, 64)
        self.fd = os.memfd_create("slab")
        os.ftruncate(self.fd, self.size)
        self.memory = mmap.mmap(self.fd, self.size)
        self.arrays = [
            np.ndarray((slots, *shape), _NUMPY_DTYPES[code], buffer=self.memory, offset=offset)
            for (code, shape), (offset, _) in zip(leaves, self.places, strict=True)
        ]

    def describe(self) -> bytes:
        body = struct.pack("<QII", self.size, self.slots, len(self.places))
        body += b"".join(struct.pack("<QQ", *place) for place in self.places)
        return body + struct.pack("<I", len(self.blob)) + self.blob


class Parent:
    """A worker process and the parent's end of its socket."""

    mode = "sample"

    def __init__(self, dataset: Any, method: str = "fork", mode: str = "sample", **options: Any) -> None:
        config = WorkerConfig(**{"worker_id": 0, "num_workers": 1, "mode": mode, "dataset": dataset, **options})
        self.mode = mode
        self.adopt(WorkerStarter(choose_context(method), config).start(config.worker_id))

    @classmethod
    def of(cls, worker: WorkerProcess) -> Parent:
        """Give the parent of a worker that was started elsewhere."""
        parent = cls.__new__(cls)
        parent.adopt(worker)
        return parent

    def adopt(self, worker: WorkerProcess) -> None:
        self.worker, self.socket = worker, worker.socket
        self.socket.settimeout(HANG_SECONDS)
        data, self.fds, _, _ = socket.recv_fds(self.socket, 64, 4)
        length, kind, self.pid = struct.unpack("<IB3xI", data)
        assert (length, kind, len(self.fds)) == (8, 2, 2)

    def __enter__(self) -> Parent:
        return self

    def __exit__(self, *_: object) -> None:
        end_workers([self.worker], HANG_SECONDS)
        for fd in self.fds:
            os.close(fd)

    def send_make(
        self, indices: list[Any], slab: Slab | None = None, first_slot: int = 0, seeds: list[int] | None = None
    ) -> None:
        flags, fds, tail = 0, [], b""
        if self.mode == "unit":
            indices = [index if isinstance(index, Item) else Item(index) for index in indices]
        if slab is not None:
            flags |= 1
            if not slab.is_known:
                flags |= 2
                fds, tail, slab.is_known = [slab.fd], slab.describe(), True
        numbers = indices
        if not all(type(index) is int for index in indices):
            flags |= 4
            blob = pickle.dumps(indices)
            tail += struct.pack("<I", len(blob)) + blob
            numbers = [0] * len(indices)
        number = 0 if slab is None else slab.number
        body = struct.pack("<BBHIQII", 0, flags, 0, len(indices), number, first_slot, 0)
        pairs = zip(numbers, seeds or [0] * len(indices), strict=True)
        body += b"".join(struct.pack("<qQ", *pair) for pair in pairs) + tail
        frame = struct.pack("<I", len(body)) + body
        if fds:
            sent = socket.send_fds(self.socket, [frame], fds)
            frame = frame[sent:]
        self.socket.sendall(frame)

    def make(self, indices: list[Any], slab: Slab | None = None, **options: Any) -> Made:
        self.send_make(indices, slab, **options)
        return self.made()

    def learn(self, index: Any, slots: int, number: int = 1) -> tuple[Schema, Slab]:
        """Make a sample without a slab, and a slab of the schema that the worker proposes."""
        made = self.make([index])
        assert made.blob, "no schema was proposed"
        return Schema.from_blob(made.blob), Slab(number, slots, made.leaves, made.blob)

    def call(self, name: str, argument: Any) -> tuple[bool, Any]:
        body = bytes([1, 0, 0, 0]) + pickle.dumps((name, argument))
        self.socket.sendall(struct.pack("<I", len(body)) + body)
        body = self.receive()
        assert body[0] == 1
        return bool(body[1]), pickle.loads(body[4:])

    def receive(self) -> bytes:
        (length,) = struct.unpack("<I", self._exactly(4))
        return self._exactly(length)

    def made(self) -> Made:
        body = self.receive()
        kind, flags, _, count = struct.unpack_from("<BBHI", body)
        assert kind == 0
        records, end = [], 8
        for _ in range(count):
            nanoseconds, offset, length, status, zero = struct.unpack_from("<QQQII", body, end)
            assert zero == 0
            content = self.arena(offset, length) if length else None
            if status == FAILED:
                # The length of a text for the log, the text, and the exception.
                content = content[4 + int.from_bytes(content[:4].tobytes(), "little") :].copy()
            value = None if content is None else payload.loads(content)
            records.append(Record(nanoseconds, status, value))
            end += 32
        made = Made(records)
        if flags & 1:
            (leaves,) = struct.unpack_from("<I", body, end)
            end += 4
            for _ in range(leaves):
                code, sides = struct.unpack_from("<BB", body, end)
                made.leaves.append((code, struct.unpack_from(f"<{sides}Q", body, end + 8)))
                end += 8 + 8 * sides
            (size,) = struct.unpack_from("<I", body, end)
            made.blob = body[end + 4 : end + 4 + size]
            end += 4 + size
        assert end == len(body)
        return made

    def arena(self, offset: int, length: int) -> np.ndarray:
        assert offset % 64 == 0
        assert offset >= 64
        return np.frombuffer(bytearray(os.pread(self.fds[0], length, offset)), np.uint8)

    def progress(self) -> int:
        return struct.unpack("<Q", os.pread(self.fds[0], 8, 0))[0]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError("the worker has closed its socket")
            data += more
        return data
