"""The shared memory into which a worker process writes whatever does not fit a slot of a batch.

In: a number of bytes. Out: their place in a file in memory, which the parent process maps too. The file grows and
never shrinks. All places are free again when the next request arrives, because the parent has copied them by then.

Header: a 64-bit number at offset 0 says which sample of the current request the worker works on.
"""

from __future__ import annotations

import mmap
import os

HEADER_BYTES = 64
ALIGNMENT = 64
_FIRST_BYTES = 1 << 20


class Arena:
    """A growing file in memory, divided into places of any size."""

    def __init__(self) -> None:
        """Create the file with room for small values."""
        self.fd = os.memfd_create("feedline-arena", os.MFD_CLOEXEC)
        self._bytes = _FIRST_BYTES
        os.ftruncate(self.fd, self._bytes)
        self._memory = mmap.mmap(self.fd, self._bytes)
        self._view = memoryview(self._memory)
        self.progress = self._view[:8].cast("Q")
        """One item: the number of the current sample."""
        self._end = HEADER_BYTES

    def reset(self) -> None:
        """Free all places."""
        self._end = HEADER_BYTES

    def reserve(self, size: int) -> tuple[int, memoryview]:
        """Return the offset and the bytes of a new place. The offset is a multiple of 64."""
        offset = self._end
        end = offset + size
        if end > self._bytes:
            self._grow(end)
        self._end = -(-end // ALIGNMENT) * ALIGNMENT
        return offset, self._view[offset:end]

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """Return the bytes of a place."""
        return self._view[offset : offset + size]

    def _grow(self, needed: int) -> None:
        self._bytes = max(2 * self._bytes, -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE)
        os.ftruncate(self.fd, self._bytes)
        # The old mapping stays valid for as long as a view of it lives, and both show the same pages.
        self._memory = mmap.mmap(self.fd, self._bytes)
        self._view = memoryview(self._memory)
        self.progress = self._view[:8].cast("Q")
