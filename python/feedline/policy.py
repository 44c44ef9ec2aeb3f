"""What to do with bad samples, and what to keep of good ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from feedline.errors import PlanError


@dataclass(frozen=True)
class Substitute:
    """Replace bad samples by others; made by :func:`substitute`."""

    max_fraction: float


def substitute(max_fraction: float = 0.001) -> Substitute:
    """Replace a bad sample by another sample of the same rank, for at most a fraction of the epoch.

    The substitute depends on seed, epoch, position and attempt alone, so any number of workers gives the same stream.
    ``batch["index"]`` holds the index of the substitute. ``loader.snapshot()["substitutes"]`` lists the pairs.

    Args:
        max_fraction: the fraction of an epoch's samples that may be replaced, from 0 to 1. The count is rounded up.
            Beyond it the loader raises :class:`feedline.TooManyFailuresError`.

    >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4, on_error=fl.substitute(max_fraction=0.01))
    """
    return Substitute(max_fraction)


@dataclass(frozen=True)
class Cache:
    """Keep prepared samples between epochs; see :func:`cache`."""

    ram: int | str | None
    disk: int | str | None
    form: Literal["encoded", "decoded", "resized"] | None


def cache(
    ram: int | str | None = None,
    disk: int | str | None = None,
    form: Literal["encoded", "decoded", "resized"] | None = None,
) -> Cache:
    """Keep samples as they are before the first random op, so that later epochs skip reading and these ops.

    ``ram`` and ``disk`` are limits in bytes, numbers or texts such as ``"4GB"``. What is in stays in: an epoch misses
    just what did not fit. On disk, in the cache folder, samples outlive the process; they are checksummed, and made
    anew when the file or the ops before have changed. ``form`` says what is kept: the file's bytes, the decoded
    picture, or what all deterministic ops made of it; by default the form that saves most time per byte, as measured
    on the first samples.
    """
    if ram is None and disk is None:
        raise PlanError('cache() needs ram=..., disk=... or both, e.g. fl.cache(ram="4GB")')
    if form not in (None, "encoded", "decoded", "resized"):
        raise PlanError(f'cache(): form is {form!r}; it is "encoded", "decoded" or "resized"')
    return Cache(ram, disk, form)
