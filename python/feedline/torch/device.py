"""Copies batches to a device ahead of the step that uses them.

In: any loader of torch tensors. Out: the same batches on the device, after an optional transform there. The copies run
on a stream of their own, from pinned memory, so that they overlap with the step before. On the CPU batches pass through
unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from feedline.arguments import whole
from feedline.torch.nested import map_tensors

Transform = Callable[[Any], Any]


def prefetch(
    loader: Iterable[Any],
    device: torch.device | str,
    *,
    depth: int = 2,
    transform: Transform | None = None,
    channels_last: bool = False,
) -> DevicePrefetcher:
    """Return a loader whose batches are on ``device``, copied up to ``depth`` batches ahead.

    ``transform`` gets each batch on the device. Let the loader deliver uint8 and normalise there: a quarter of the
    bytes cross the bus. ``channels_last`` gives pictures of four dimensions the strides that convolutions like.

    The state of the result counts only the batches that it has delivered.

    >>> loader = feedline.torch.DataLoader(range(8), batch_size=4)
    >>> batches = feedline.torch.prefetch(loader, "cpu", transform=lambda batch: batch / 2)
    >>> [batch.tolist() for batch in batches]
    [[0.0, 0.5, 1.0, 1.5], [2.0, 2.5, 3.0, 3.5]]
    """
    return DevicePrefetcher(loader, torch.device(device), whole("depth", depth, 1), transform, channels_last)


class DevicePrefetcher:
    """A loader with batches on a device; made by :func:`prefetch`.

    >>> batches = feedline.torch.prefetch(feedline.torch.DataLoader(range(8), batch_size=4), "cpu")
    >>> len(batches)
    2
    """

    def __init__(
        self, loader: Iterable[Any], device: torch.device, depth: int, transform: Transform | None, channels_last: bool
    ) -> None:
        """Nothing is read yet."""
        self._loader: Any = loader
        self._device, self._depth = device, depth
        self._transform, self._channels_last = transform, channels_last
        self._state: Any = None

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch of the loader."""
        copy = _copier(self._device)
        ahead: deque[tuple[Callable[[], Any], Any]] = deque()
        batches = iter(self._loader)
        is_more = True
        self._state = None
        while True:
            while is_more and len(ahead) < self._depth:
                try:
                    batch = next(batches)
                except StopIteration:
                    is_more = False
                    break
                state = self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
                ahead.append((copy(batch, self._prepare), state))
            if not ahead:
                self._state = None
                return
            finish, self._state = ahead.popleft()
            yield finish()

    def _prepare(self, batch: Any) -> Any:
        if self._channels_last:
            batch = map_tensors(batch, _as_channels_last)
        return batch if self._transform is None else self._transform(batch)

    def state_dict(self) -> Any:
        """Return the loader's state after the batches that were delivered, not after those that were read ahead.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=2, seed=0)
        >>> batches = feedline.torch.prefetch(loader, "cpu", depth=3)
        >>> first = next(iter(batches))
        >>> batches.state_dict()["batches"]
        1
        """
        return self._loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Any) -> None:
        """Continue from a state.

        >>> batches = feedline.torch.prefetch(feedline.torch.DataLoader(range(8), batch_size=2, seed=0), "cpu")
        >>> batches.load_state_dict(batches.state_dict())
        """
        self._state = None
        self._loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the loader's next one.

        >>> batches = feedline.torch.prefetch(feedline.torch.DataLoader(range(8), batch_size=2), "cpu")
        >>> batches.set_epoch(1)
        """
        self._state = None
        self._loader.set_epoch(epoch)


_Copy = Callable[[Any, Transform], Callable[[], Any]]
"""Begins to copy a batch and prepares it. The result waits for the end and returns the batch."""


def _copier(device: torch.device) -> _Copy:
    return _cuda_copier(device) if device.type == "cuda" else _plain_copier(device)


def _plain_copier(device: torch.device) -> _Copy:
    def copy(batch: Any, prepare: Transform) -> Callable[[], Any]:
        ready = prepare(map_tensors(batch, lambda tensor: tensor.to(device)))
        return lambda: ready

    return copy


def _cuda_copier(device: torch.device) -> _Copy:
    stream = torch.cuda.Stream(device)

    def copy(batch: Any, prepare: Transform) -> Callable[[], Any]:
        pinned = pin_memory(batch)
        with torch.cuda.stream(stream):
            ready = prepare(map_tensors(pinned, lambda tensor: tensor.to(device, non_blocking=True)))
            done = stream.record_event()

        def finish() -> Any:
            current = torch.cuda.current_stream(device)
            current.wait_event(done)
            # The memory of these tensors belongs to the side stream. It must not be reused before this stream is done.
            for tensor in _tensors(ready):
                tensor.record_stream(current)
            # Pinned memory may be reused once the copy has ended, which `done` says.
            return ready

        # The closure keeps the pinned batch until the copy was waited for.
        finish.__dict__["source"] = pinned
        return finish

    return copy


def _tensors(batch: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(batch, found.append)
    return found


def _as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
