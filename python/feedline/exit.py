"""Closes open loaders when the interpreter exits."""

from __future__ import annotations

import atexit
import functools
import weakref
from typing import Any

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_is_exiting = False


def close_at_exit(loader: Any) -> None:
    """Close a loader when the interpreter exits, if it still exists."""
    _register()
    _open.add(loader)


def exiting() -> bool:
    """Return whether the interpreter is exiting. Then it closed the loaders, not the user."""
    return _is_exiting


@functools.cache
def _register() -> None:
    atexit.register(_close_all)


def _close_all() -> None:
    global _is_exiting
    _is_exiting = True
    for loader in list(_open):
        loader.close()
