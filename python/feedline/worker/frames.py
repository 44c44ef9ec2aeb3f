"""Messages between the engine and a worker process: the worker's end of the socket.

In: bytes of a Unix stream socket. Out: requests as Python values; replies as bytes. A frame is a 32-bit length and a
body, all numbers are little endian, and file descriptors arrive with the first byte of a frame. Requests and replies
alternate, so at most one frame is on its way.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

MAKE, CALL = 0, 1
MADE, RESULT, HELLO, MAP = 0, 1, 2, 3
DTYPE_NAMES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64",
)  # fmt: skip
"""The element types by their code: `Dtype::ALL` of the engine."""
STORED, WHOLE, FAILED, ENDED = 0, 1, 2, 3
"""Status of a record: in its slot, a payload as a whole, an exception, the end of an iterable dataset."""
RECORD_BYTES = 32
"""A record is four 64-bit words: nanoseconds, offset and length of the payload, status."""
RECORDS_START = 12
"""Offset of the first record in a MADE frame."""

_HAS_SLAB, _IS_NEW, _IS_PICKLED = 1, 2, 4
_LENGTH = struct.Struct("<I")
_MAKE = struct.Struct("<BBHIQII")
_MADE = struct.Struct("<IBBHI")
_SLAB = struct.Struct("<QII")
_HELLO = struct.Struct("<IB3xI")
_FIRST_BYTES = 1 << 16
_MOST_FDS = 4


class NewSlab(NamedTuple):
    """A batch's shared memory that the worker has not seen yet."""

    fd: int
    size: int
    slots: int
    offsets: list[int]
    """Where the array of each leaf starts."""
    schema_blob: bytes


class Request(NamedTuple):
    """A MAKE frame."""

    indices: Sequence[Any]
    seeds: Sequence[int]
    slab: int | None
    new_slab: NewSlab | None
    first_slot: int


class Connection:
    """The worker's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        sock.setblocking(True)
        self._socket = sock
        self._buffer = bytearray(_FIRST_BYTES)

    def receive(self) -> tuple[memoryview, list[int]] | None:
        """Wait for a frame. Returns its body, valid until the next call, and its file descriptors; ``None`` at EOF."""
        end, needed = 0, _LENGTH.size
        fds: list[int] = []
        while end < needed:
            view = memoryview(self._buffer)
            try:
                count, control, _, _ = self._socket.recvmsg_into(
                    [view[end:]], socket.CMSG_SPACE(4 * _MOST_FDS), socket.MSG_CMSG_CLOEXEC
                )
            except ConnectionResetError:
                return None
            if count == 0:
                return None
            for level, kind, data in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds += array("i", data[: len(data) - len(data) % 4])
            end += count
            if end >= _LENGTH.size:
                needed = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if needed > len(self._buffer):
                self._buffer = bytearray(view[:end]) + bytes(needed - end)
        return memoryview(self._buffer)[_LENGTH.size : needed], fds

    def send(self, message: bytes | bytearray | memoryview) -> None:
        """Send a frame, which starts with its length."""
        self._socket.sendall(message)

    def send_hello(self, *fds: int) -> None:
        """Send the first frame with files in memory that the parent reads: the arena, and perhaps the stacks."""
        message = _HELLO.pack(_HELLO.size - _LENGTH.size, HELLO, os.getpid())
        socket.send_fds(self._socket, [message], list(fds))


def read_make(body: memoryview, fds: list[int]) -> Request:
    """Parse a MAKE frame."""
    _, flags, _, count, slab, first_slot, _ = _MAKE.unpack_from(body)
    end = _MAKE.size + 16 * count
    pairs = body[_MAKE.size : end]
    indices: list[Any] = pairs.cast("q").tolist()[::2]
    seeds = pairs.cast("Q").tolist()[1::2]
    new_slab = None
    if flags & _IS_NEW:
        size, slots, leaves = _SLAB.unpack_from(body, end)
        end += _SLAB.size
        offsets = body[end : end + 16 * leaves].cast("Q").tolist()[::2]
        end += 16 * leaves
        blob, end = _sized(body, end)
        new_slab = NewSlab(fds[0], size, slots, offsets, bytes(blob))
    if flags & _IS_PICKLED:
        blob, end = _sized(body, end)
        indices = pickle.loads(blob)
    return Request(indices, seeds, slab if flags & _HAS_SLAB else None, new_slab, first_slot)


def _sized(body: memoryview, start: int) -> tuple[memoryview, int]:
    """Return bytes that follow their 32-bit length, and where they end."""
    start += _LENGTH.size
    end = start + _LENGTH.unpack_from(body, start - _LENGTH.size)[0]
    return body[start:end], end


def finish_made(message: bytearray, count: int, proposal: bytes) -> bytearray:
    """Write the header of a MADE frame of which the first ``count`` records are filled in."""
    del message[RECORDS_START + RECORD_BYTES * count :]
    message += proposal
    _MADE.pack_into(message, 0, len(message) - _LENGTH.size, MADE, 1 if proposal else 0, 0, count)
    return message


def proposal_of(leaves: Sequence[tuple[int, tuple[int, ...]]], blob: bytes) -> bytes:
    """Return the part of a MADE frame that proposes a schema."""
    parts = [_LENGTH.pack(len(leaves))]
    parts += [struct.pack(f"<BBHI{len(shape)}Q", code, len(shape), 0, 0, *shape) for code, shape in leaves]
    return b"".join([*parts, _LENGTH.pack(len(blob)), blob])


def result_of(is_ok: bool, pickle_bytes: bytes) -> bytes:
    """Return a RESULT frame."""
    return struct.pack("<IBBH", 4 + len(pickle_bytes), RESULT, is_ok, 0) + pickle_bytes
