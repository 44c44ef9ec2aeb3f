"""The state of a sampler and of its generators, for exact resume.

In: the sampler of a loader, before and while it is iterated. Out: plain data, with which another loader continues.

A sampler without ``state_dict`` begins the epoch again with the same random numbers, and the batches that were received
are passed over. One with ``state_dict`` and ``load_state_dict`` (torchdata's protocol) is of one of two kinds:

- Its state is a position: it differs after each batch. Then the state after the last delivered batch is kept.
- Its state is that of an epoch, such as the epoch's number. Then the state at the start of the epoch is kept, and
  batches are passed over.
"""

from __future__ import annotations

import base64
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler

from feedline.torch.worker.fetch import has_state

_AHEAD = 2
"""Batches that are drawn before the first is given out."""


class SamplerProgress:
    """The states of a sampler in one epoch."""

    def __init__(
        self,
        index_sampler: Any,
        generators: list[torch.Generator],
        saved: dict[str, Any] | None,
        *,
        is_left: bool = False,
    ) -> None:
        """Take the states before the epoch begins, after those of ``saved`` were restored.

        ``is_left`` says that the epoch before was left early, so that the state of the sampler is no start.
        """
        self._holder = _stateful_sampler(index_sampler)
        self.is_continued = False
        self._may_be_at_end = saved is not None
        self._received: bytes | None = None
        if saved is not None:
            self._restore(saved, generators)
        self._generators = [encoded(generator.get_state()) for generator in generators]
        self._start = None if is_left and saved is None else self._state()
        self.is_position = False
        """Whether the state of the sampler is a position, as far as is known."""
        self._last: bytes | None = None
        self._ahead: deque[Any] = deque()
        """Batches that were drawn, each with the state after it, and the exception that ended the sampler."""
        self._given: deque[bytes | None] = deque()
        """The states of batches that were given out and not yet delivered."""

    def track(self, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Give what a sampler gives, and note its state after each. Two batches are drawn at once, to see the kind.

        ``start`` begins an iteration of the sampler.
        """
        sampling = start()
        if self._holder is None:
            return sampling
        self._draw_ahead(sampling)
        if self._may_be_at_end and isinstance(self._ahead[0], StopIteration):
            # The state is that of the end of an epoch, after which the sampler begins again.
            self._ahead.clear()
            sampling = start()
            self._draw_ahead(sampling)
        return self._tracked(sampling)

    def _draw_ahead(self, sampling: Iterator[Any]) -> None:
        for _ in range(_AHEAD):
            self._draw(sampling)

    def _draw(self, sampling: Iterator[Any]) -> None:
        if self._ahead and isinstance(self._ahead[-1], Exception):
            return
        try:
            batch = next(sampling)
        except Exception as error:
            self._ahead.append(error)
            return
        state = self._state()
        self.is_position = state != (self._start if self._last is None else self._last)
        self._last = state
        self._ahead.append((batch, state))

    def _tracked(self, sampling: Iterator[Any]) -> Iterator[Any]:
        while not isinstance(self._ahead[0], Exception):
            batch, state = self._ahead.popleft()
            self._draw(sampling)
            self._given.append(state)
            yield batch
        if not isinstance(self._ahead[0], StopIteration):
            raise self._ahead[0]

    def receive(self) -> None:
        """Count a delivered batch."""
        if self._given:
            self._received = self._given.popleft()

    def saved(self, received: int) -> dict[str, Any]:
        """Return plain data, apart from the sampler's own state."""
        is_position = received > 0 and (self.is_position or self.is_continued)
        saved: dict[str, Any] = {"generators": self._generators, "is_position": is_position}
        state = self._received if is_position else self._start
        if state is not None:
            saved["state"] = pickle.loads(state)
        return saved

    def _restore(self, saved: dict[str, Any], generators: list[torch.Generator]) -> None:
        for generator, state in zip(generators, saved["generators"], strict=False):
            generator.set_state(decoded(state))
        if self._holder is not None and "state" in saved:
            self._holder.load_state_dict(saved["state"])
            self.is_continued = saved["is_position"]
            self._may_be_at_end = not self.is_continued
            self._received = pickle.dumps(saved["state"])

    def _state(self) -> bytes | None:
        return None if self._holder is None else pickle.dumps(self._holder.state_dict())


def generators_of(loader: Any) -> list[torch.Generator]:
    """Return the generators that the user gave to a loader and its samplers."""
    found: dict[int, torch.Generator] = {}
    for owner in (loader, loader.batch_sampler, loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            found[id(generator)] = generator
    return list(found.values())


def encoded(state: torch.Tensor) -> str:
    """Return the state of a generator as text, so that a state of a loader can be JSON."""
    return base64.b64encode(state.numpy().tobytes()).decode()


def decoded(text: str) -> torch.Tensor:
    """Return the state of a generator."""
    return torch.from_numpy(np.frombuffer(bytearray(base64.b64decode(text)), np.uint8))


def _stateful_sampler(index_sampler: Any) -> Any | None:
    """Return the sampler whose state says which batches follow, if it has one."""
    if has_state(index_sampler):
        return index_sampler
    # torch's BatchSampler takes exactly the indices of each batch. Others may have a buffer.
    inner = index_sampler.sampler if type(index_sampler) is BatchSampler else None
    return inner if has_state(inner) else None
