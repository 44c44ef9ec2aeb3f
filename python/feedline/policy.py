"""Policies for bad samples, and for the cache of good ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from feedline.errors import PlanError


@dataclass(frozen=True)
class Substitute:
    """Replace bad samples by others; made by :func:`substitute`.

    >>> fl.substitute(0.01)
    Substitute(max_fraction=0.01)
    """

    max_fraction: float


def substitute(max_fraction: float = 0.001) -> Substitute:
    """Replace a bad sample by another sample of the same rank, for at most a fraction of the rank's samples.

    The substitute depends on seed, epoch, position and attempt alone, so any number of workers gives the same stream.
    ``batch["index"]`` holds the index of the substitute. ``loader.snapshot()["substitutes"]`` lists the pairs.

    Args:
        max_fraction: the fraction of one rank's samples that may be replaced in an epoch, from 0 to 1. The number of
            samples is rounded up. If more fail, the loader raises :class:`feedline.TooManyFailuresError`.

    >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4, on_error=fl.substitute(max_fraction=0.01))
    """
    return Substitute(max_fraction)


@dataclass(frozen=True)
class Cache:
    """Keep prepared samples between epochs; made by :func:`cache`.

    >>> fl.cache(ram="4GB").ram
    '4GB'
    """

    ram: int | str | None
    disk: int | str | None
    form: Literal["encoded", "decoded", "resized"] | None


def cache(
    ram: int | str | None = None,
    disk: int | str | None = None,
    form: Literal["encoded", "decoded", "resized"] | None = None,
) -> Cache:
    """Keep samples as they are before the first random op, so that later epochs skip reading and these ops.

    A cached sample stays in the cache, so an epoch misses only the samples that did not fit.

    Args:
        ram: limit in memory, a number of bytes or a text such as ``"4GB"``.
        disk: limit in the cache folder. There samples outlive the process. They have checksums, and are made again when
            the file or an earlier op has changed.
        form: ``"encoded"`` keeps the bytes of the file, ``"decoded"`` the decoded picture, and ``"resized"`` the result
            of all ops before the first random one. By default the form that saves most time per byte, as measured on
            the first samples.

    >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4, cache=fl.cache(ram="4GB"))
    """
    # A cache without room would silently do nothing.
    if ram is None and disk is None:
        raise PlanError('cache() needs ram=..., disk=... or both, e.g. fl.cache(ram="4GB")')
    if form not in (None, "encoded", "decoded", "resized"):
        raise PlanError(f'cache(): form is {form!r}; it must be "encoded", "decoded" or "resized"')
    return Cache(ram, disk, form)
