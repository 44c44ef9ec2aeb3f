"""What to do with bad samples, and what to keep of good ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from feedline.errors import PlanError


@dataclass(frozen=True)
class Skip:
    """Replace bad samples by others; see :func:`skip`."""

    max_fraction: float


def skip(max_fraction: float = 0.001) -> Skip:
    """Replace a bad sample by another of the same rank's share, up to a fraction of the epoch.

    The substitute follows from (seed, epoch, position, attempt), so the stream stays the same for any number of
    workers. ``batch["index"]`` shows the substitute's id, ``loader.snapshot()["substitutes"]`` lists the pairs. The
    number allowed is rounded up; past it :class:`feedline.TooManyFailuresError` is raised.
    """
    if isinstance(max_fraction, str) or not 0 <= max_fraction <= 1:
        raise PlanError(f"skip(): max_fraction is {max_fraction!r}; it lies between 0 and 1")
    return Skip(float(max_fraction))


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
