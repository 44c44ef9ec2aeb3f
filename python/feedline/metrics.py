"""Serves the metrics of a loader over HTTP."""

from __future__ import annotations

import functools
import os
import weakref

from feedline import _feedline
from feedline.errors import PlanError

_served: weakref.WeakSet[_feedline.Metrics] = weakref.WeakSet()


def check_address(address: str | None) -> str | None:
    """Raise if ``Loader(..., metrics=address)`` is not a string. The server checks the address itself."""
    if address is None or isinstance(address, str):
        return address
    raise PlanError(f'metrics is {address!r}; it must be a text such as "127.0.0.1:9400", or None')


def serve(loader: _feedline.Loader | _feedline.GivenLoader, address: str) -> _feedline.Metrics:
    """Serve the metrics of a loader at an address."""
    metrics = _feedline.Metrics(loader, address)
    _served.add(metrics)
    _register_fork()
    return metrics


@functools.cache
def _register_fork() -> None:
    # Registered with the first server, so that importing the package has no side effect.
    os.register_at_fork(after_in_child=_leave)


def _leave() -> None:
    # The threads that serve are in the parent. Its socket would stay open here when the parent closes it.
    for metrics in list(_served):
        if metrics.descriptor is not None:
            os.close(metrics.descriptor)
    _served.clear()
