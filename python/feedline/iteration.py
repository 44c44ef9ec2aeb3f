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
        """Begin an epoch of a stream. ``to_batch`` converts its batches. ``loader`` is kept alive."""
        # Set first: __del__ also runs if `begin` raises.
        self._is_open = False
        self._native, self._to_batch = native, to_batch
        # Only live loaders are closed at exit, and a stream with threads must be closed.
        self._loader = loader
        self._number = _unless_exiting(native.begin)
        self._is_open = True

    def __iter__(self) -> Iteration:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Wait for the next batch."""
        fields = _unless_exiting(lambda: self._native.next(self._number))
        if fields is None:
            self._is_open = False
            raise StopIteration
        return self._to_batch(fields)

    def check(self) -> None:
        """Raise if there will be no more batches: the loader was closed, or a newer iteration began."""
        self._native.check(self._number)

    def leave(self) -> None:
        """Free its prepared batches, unless it has ended."""
        if self._is_open:
            self._is_open = False
            self._native.abandon(self._number)

    def __del__(self) -> None:
        """Free its prepared batches, if it was not iterated to its end."""
        # In a forked child the native side raises, because the threads belong to the parent.
        if getattr(self, "_is_open", False):
            try:
                self.leave()
            except Exception:
                _log.debug("an iterator was dropped after its loader had gone", exc_info=True)


def _unless_exiting(call: Callable[[], T]) -> T:
    """Call a function. A daemon thread whose loader was closed by the interpreter's exit ends silently.

    At exit all loaders are closed while daemon threads still run. An error there would only confuse.
    """
    try:
        return call()
    except ClosedError:
        # SystemExit in a daemon thread ends that thread only, and prints nothing.
        if exiting() and threading.current_thread().daemon:
            raise SystemExit from None
        raise
