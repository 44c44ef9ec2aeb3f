"""What to do with bad samples."""

from __future__ import annotations

from dataclasses import dataclass

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
