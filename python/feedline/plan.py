"""Plans: the checked, serialisable description of a loader."""

from __future__ import annotations

from typing import Any

from feedline import _feedline, environment
from feedline.errors import PlanError
from feedline.source import Source


class Plan:
    """What a loader does, apart from any run of it. ``loader.plan`` gives it, ``from_toml`` reads it."""

    def __init__(self, native: _feedline.Plan) -> None:
        """Hold a checked plan; users call :meth:`from_toml` or take ``loader.plan``."""
        self._native = native

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Read a plan and open its source. Rank and world size come from the launcher where the plan names none."""
        return cls(_feedline.Plan.from_toml(text, environment.launched_rank(), environment.cache_folder()))

    def to_toml(self) -> str:
        """Write the plan as TOML; a function without a name or an array in memory cannot be written and says so."""
        return self._native.to_toml()

    def __repr__(self) -> str:
        """Show source and ops."""
        return f"<feedline.Plan over {self.source!r}: {', '.join(self.ops) or 'no ops'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as TOML: the process that unpickles opens the source itself."""
        return Plan.from_toml, (self.to_toml(),)

    @property
    def ops(self) -> list[str]:
        """The names of the ops, in order."""
        return self._native.ops

    @property
    def source(self) -> Source:
        """The source."""
        return Source(self._native.source)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes: ``listing``, ``values`` (+ ops), ``order`` (+ seed, sampler), ``run`` (everything)."""
        return self._native.fingerprints

    def ids(self, epoch: int = 0) -> list[int]:
        """Give the ids of an epoch in the order in which this rank receives them."""
        return self._native.ids(epoch)

    def resolve(self, op: int, *, index: int, width: int, height: int, epoch: int = 0) -> list[tuple[str, float]]:
        """Say what op number ``op`` will do to sample ``index``, a picture of this size, before any data is there."""
        if width < 1 or height < 1:
            raise PlanError(f"a picture of {width} x {height} has no pixels")
        return self._native.resolve(op, epoch, index, width, height)
