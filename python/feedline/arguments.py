"""Argument checks. A wrong value raises at once, with a message that fits on a screen."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from feedline.errors import PlanError

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = 6


def short(value: object) -> str:
    """Show a value in at most a few hundred characters, for messages.

    >>> short([0.5] * 100_000)
    '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...]'
    """
    return _short.repr(value)


def whole(name: str, value: Any, least: int, otherwise: str = "", *, most: int = 2**63 - 1) -> int:
    """Return ``value`` as an int if it is a whole number from ``least`` to ``most``; raise otherwise."""
    # bool is a subclass of int, but True is no number of samples.
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        bounds = f"from {least} on" if most == 2**63 - 1 else f"from {least} to {most}"
        raise PlanError(f"{name} is {short(value)}; it must be a whole number {bounds} {otherwise}".rstrip())
    return int(value)


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise if ``value`` is none of the allowed values."""
    if value not in allowed:
        raise PlanError(f"{name} is {short(value)}; it must be one of {', '.join(map(repr, allowed))}")
