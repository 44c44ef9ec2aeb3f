"""Several consumers of one epoch, such as one thread per accelerator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

Assign = Literal["first-come", "round-robin"]

# Interval at which a waiting consumer checks for signals, and whether its turn can still come.
_SIGNAL_CHECK_SECONDS = 0.1


class Consumers:
    """State shared by the consumers of one epoch: whose turn it is, and who has left."""

    def __init__(
        self,
        count: int,
        take: Callable[[], Any],
        check: Callable[[], None],
        leave: Callable[[], None],
        assign: Assign,
    ) -> None:
        """Share an epoch.

        ``take`` returns the next batch and raises StopIteration at the end; ``check`` raises if there will be none;
        ``leave`` is called when all have left.
        """
        self._take, self._check, self._leave, self._assign = take, check, leave, assign
        self._changed = threading.Condition()
        self._turn = 0
        self._present = set(range(count))
        self._ended: BaseException | None = None

    def next(self, number: int) -> Any:
        """Return the next batch for a consumer. A consumer that has left gets StopIteration."""
        if self._assign == "first-come":
            if number not in self._present:
                raise StopIteration
            return self._take()
        with self._changed:
            while self._ended is None and number in self._present and self._turn != number:
                # Python handles Ctrl-C between waits, so a wait has to be short.
                if not self._changed.wait(_SIGNAL_CHECK_SECONDS):
                    self._check()
            if self._ended is not None:
                raise self._ended
            if number not in self._present:
                raise StopIteration
        try:
            # Without the lock: this may wait for a batch. No other consumer can come here, because it is not its turn.
            batch = self._take()
        except BaseException as error:  # Also Ctrl-C: the other consumers would wait for ever.
            with self._changed:
                self._ended = error
                self._changed.notify_all()
            raise
        with self._changed:
            # The consumer may have left while it waited. Then the turn has passed on already.
            if self._turn == number:
                self._pass_on()
        return batch

    def leave(self, number: int) -> None:
        """Remove a consumer. Its batches go to the others."""
        with self._changed:
            if number not in self._present:
                return
            self._present.remove(number)
            if self._turn == number and self._present:
                self._pass_on()
            self._changed.notify_all()
            is_last = not self._present
        if is_last:
            self._leave()

    def _pass_on(self) -> None:
        others = sorted(self._present - {self._turn}) or [self._turn]
        # The next higher number, or the lowest one after the highest.
        self._turn = next((other for other in others if other > self._turn), others[0])
        self._changed.notify_all()


class Consumer:
    """One consumer: an iterator over its batches."""

    def __init__(self, shared: Consumers, number: int) -> None:
        """Create consumer ``number`` of a shared epoch."""
        self._shared, self._number = shared, number

    def __iter__(self) -> Consumer:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch of this consumer."""
        return self._shared.next(self._number)

    def close(self) -> None:
        """Leave the epoch. Batches of this consumer go to the others. Dropping it does the same."""
        self._shared.leave(self._number)

    def __del__(self) -> None:
        """Leave the epoch."""
        # __init__ may have failed before it set the attribute.
        if hasattr(self, "_shared"):
            self.close()
