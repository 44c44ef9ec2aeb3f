"""A batch that an iterator has taken from the engine, before its turn comes.

In: the parts of a batch, or an exception of the engine. Out: the batch, put together, or its exception when its turn
comes. Small batches are taken several at a time: after each step of a trainer the caches are cold, and what is done for
many batches at once is done with warm ones.
"""

from __future__ import annotations

from typing import Any

from feedline.torch.engine import WorkerEngine


class TakenBatch:
    """A batch that was taken from the engine."""

    __slots__ = ("_error", "_parts", "data", "is_batch", "is_ready")

    def __init__(self, parts: Any, error: Exception | None = None) -> None:
        """Hold the parts of a batch, or an exception of the engine."""
        self._parts, self._error = parts, error
        self.data: Any = None
        self.is_batch = error is None
        """Whether the engine gave a batch, in contrast to an error of its own."""
        self.is_ready = False
        """Whether :attr:`data` is the batch."""

    def assemble(self, engine: WorkerEngine) -> None:
        """Put the parts together. After an interrupt this begins again."""
        if self.is_ready or self._error is not None:
            return
        try:
            self.data = engine.assembled(self._parts)
            self.is_ready = True
        except Exception as error:
            self._error = error
        self._parts = None

    def result(self) -> Any:
        """Return the batch, or raise its exception."""
        if self._error is not None:
            # The traceback refers to this object.
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error
        return self.data
