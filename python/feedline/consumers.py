"""Several consumers of one epoch, such as one thread per accelerator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

Assign = Literal["first-come", "round-robin"]

# How long a consumer waits for its turn before it looks for signals, and whether the turn can still come.
_SIGNAL_CHECK_SECONDS = 0.1


class Consumers:
    """What the consumers of one epoch share: whose turn it is, and who has left."""

    def __init__(
        self,
        count: int,
        take: Callable[[], Any],
        check: Callable[[], None],
        leave: Callable[[], None],
        assign: Assign,
    ) -> None:
        """Share an epoch.

        ``take`` gives the next batch and raises StopIteration at the end; ``check`` raises if there will be none;
        ``leave`` is called when all have left.
        """
        self._take, self._check, self._leave, self._assign = take, check, leave, assign
        self._changed = threading.Condition()
        self._turn = 0
        self._present = set(range(count))
        self._ended: BaseException | None = None

    def next(self, number: int) -> Any:
        """Give the next batch for a consumer; one that has left gets none."""
        if self._assign == "first-come":
            if number not in self._present:
                raise StopIteration
            return self._take()
        with self._changed:
            while self._ended is None and number in self._present and self._turn != number:
                if not self._changed.wait(_SIGNAL_CHECK_SECONDS):
                    self._check()
            if self._ended is not None:
                raise self._ended
            if number not in self._present:
                raise StopIteration
        try:
            batch = self._take()
        except BaseException as error:  # Also Ctrl-C: nobody else would ever get a turn.
            with self._changed:
                self._ended = error
                self._changed.notify_all()
            raise
        with self._changed:
            if self._turn == number:
                self._pass_on()
        return batch

    def leave(self, number: int) -> None:
        """Take a consumer out: its batches go to the others."""
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
        self._turn = next((other for other in others if other > self._turn), others[0])
        self._changed.notify_all()


class Consumer:
    """One consumer: an iterator of the batches that fall to it."""

    def __init__(self, shared: Consumers, number: int) -> None:
        """Consumer ``number`` of those that share an epoch."""
        self._shared, self._number = shared, number

    def __iter__(self) -> Consumer:
        """Give itself."""
        return self

    def __next__(self) -> Any:
        """Give the next batch that falls to this consumer."""
        return self._shared.next(self._number)

    def close(self) -> None:
        """Leave: batches that would fall to this consumer go to the others. Also done when it is dropped."""
        self._shared.leave(self._number)

    def __del__(self) -> None:
        """Leave."""
        if hasattr(self, "_shared"):
            self.close()
