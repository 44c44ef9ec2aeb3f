"""One pass over a loader: the iterator of an epoch's batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from feedline import _feedline
from feedline.errors import ClosedError
from feedline.exit import exiting

_log = logging.getLogger("feedline")
T = TypeVar("T")


class Iteration:
    """One epoch of a loader."""

    def __init__(
        self, native: _feedline.Loader, to_batch: Callable[[list[tuple[str, Any]]], Any], loader: object
    ) -> None:
        """Begin an epoch of a stream, whose batches ``to_batch`` converts; ``loader`` lives as long as it does."""
        self._is_open = False
        self._native, self._to_batch = native, to_batch
        # Loaders are closed at exit as long as they live, and a stream with threads has to be.
        self._loader = loader
        self._number = _unless_exiting(native.begin)
        self._is_open = True

    def __iter__(self) -> Iteration:
        """Give itself."""
        return self

    def __next__(self) -> Any:
        """Wait for the next batch."""
        fields = _unless_exiting(lambda: self._native.next(self._number))
        if fields is None:
            self._is_open = False
            raise StopIteration
        return self._to_batch(fields)

    def check(self) -> None:
        """Raise if it gets no more batches: the loader was closed, or a newer iteration began."""
        self._native.check(self._number)

    def leave(self) -> None:
        """Free what is prepared for it, unless it has ended."""
        if self._is_open:
            self._is_open = False
            self._native.abandon(self._number)

    def __del__(self) -> None:
        """Leave, if it was not iterated to its end."""
        # Left early: free what was prepared for it. Threads of a forked child's parent are none of our business.
        if getattr(self, "_is_open", False):
            try:
                self.leave()
            except Exception:
                _log.debug("an iterator was dropped after its loader had gone", exc_info=True)


def _unless_exiting(call: Callable[[], T]) -> T:
    """Call; a daemon thread whose loader was closed because the interpreter ends, ends silently.

    At exit all loaders are closed, and daemon threads go on until they are stopped: nobody is left to hear an error.
    """
    try:
        return call()
    except ClosedError:
        if exiting() and threading.current_thread().daemon:
            raise SystemExit from None
        raise
