"""Plans: the checked, serialisable description of a loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from feedline import _feedline, environment
from feedline.display import Displayed, Facts, count, listed
from feedline.epoch_sampler import EpochIndices
from feedline.errors import PlanError
from feedline.ops import MapBatch, Op, batch_ops, sample_ops
from feedline.placement import Placement, likely
from feedline.sampler import to_plan
from feedline.source import Source


class Plan(Displayed):
    """The description of a loader: source, ops and settings. Use ``loader.plan`` or ``Plan.from_toml``.

    >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan
    <feedline.Plan synthetic: 8 samples, 2 batches of 4, ops none>
    """

    def __init__(
        self,
        native: _feedline.Plan,
        ops: Sequence[Op] | None = None,
        sampler: EpochIndices | None = None,
        epoch: int = 0,
    ) -> None:
        """Hold a checked plan; users call :meth:`from_toml` or take ``loader.plan``.

        If a ``sampler`` chooses new samples for each epoch, the native plan holds those of ``epoch``. ``ops`` is
        ``None`` for a plan from TOML, whose ops exist only in the native plan.
        """
        self._native = native
        self._ops = None if ops is None else tuple(ops)
        self._sampler, self._epoch = sampler, epoch

    @classmethod
    def from_toml(cls, text: str, *, allow_functions: bool = False) -> Plan:
        """Read a plan and open its source.

        A plan with ``ops.Map`` names Python functions, which can do anything. So it is refused before anything is
        imported, unless ``allow_functions`` is set. Set it only for plans that you trust.

        >>> plan = fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan
        >>> fl.Plan.from_toml(plan.to_toml()).fingerprints == plan.fingerprints
        True
        """
        return cls(_feedline.Plan.from_toml(text, tuple(likely()), environment.cache_folder(), allow_functions))

    def to_toml(self) -> str:
        """Return the plan as TOML. All ranks share it, so it contains neither rank nor world size.

        Raises an error for a plan that contains a function without a name or an array in memory.

        >>> print(fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan.to_toml().splitlines()[1])
        batch_size = 4
        """
        if self._sampler is not None:
            raise PlanError("sampler is a function or an object, which cannot be written down; give a list of indices")
        if self._batch_functions:
            raise PlanError("ops.MapBatch cannot be written into a plan; add it to the loader that reads the plan")
        return self._native.to_toml()

    @property
    def _batch_functions(self) -> list[Any]:
        """The functions on whole batches, for the native loader."""
        return batch_ops(self._ops or ())

    def _for_epoch(self, epoch: int) -> Plan:
        """Return the plan with the samples of an epoch, if a sampler chooses new ones for each epoch."""
        if self._sampler is None or epoch == self._epoch:
            return self
        # Only the sampler's list changes. Source, ops and all other settings stay.
        settings = self._native.settings | {"sampler": to_plan(self._sampler(epoch))}
        ops = sample_ops(self._ops or ())
        native = _feedline.Plan(self._native.source, ops, settings, self._native.config, self._native.rank)
        return Plan(native, self._ops, self._sampler, epoch)

    def _reopened(self) -> Plan:
        """Return the plan over the source as it is on disk now."""
        return Plan(self._native.reopen(), self._ops, self._sampler, self._epoch)

    def for_rank(self, placement: Placement) -> Plan:
        """Return the same plan for a rank. :meth:`indices` then returns the samples of that rank.

        >>> from feedline.placement import Placement
        >>> plan = fl.Loader(fl.synthetic(4, (2,)), batch_size=1).plan
        >>> plan.for_rank(Placement(rank=1, world_size=2)).indices()
        [1, 3]
        """
        if self._native.rank == tuple(placement):
            return self
        return Plan(self._native.for_rank(*placement), self._ops, self._sampler, self._epoch)

    def __repr__(self) -> str:
        """Show source, ops and size in one line."""
        return f"<feedline.Plan {self._summary()}>"

    def _summary(self) -> str:
        source = self._native.source
        batches = f"{count(self._native.batches_per_epoch, 'batch')} of {self._native.settings['batch_size']}"
        return f"{source.describe()}: {count(len(source), 'sample')}, {batches}, ops {listed(self.ops) or 'none'}"

    def _facts(self) -> Facts:
        settings, (rank, world_size) = self._native.settings, self._native.rank
        facts: Facts = {"source": self._native.source.describe(), "samples": f"{len(self.source):,}"}
        facts |= {"batches per epoch": f"{self._native.batches_per_epoch:,} of {settings['batch_size']}"}
        facts |= {"ops": listed(self.ops) or "none", "order": settings["order"], "seed": settings["seed"]}
        return facts | ({"rank": f"{rank} of {world_size}"} if world_size > 1 else {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle source, ops and settings. The unpickling process opens the source itself, for its own rank."""
        # A plan from TOML has no Python objects for its ops, so its text is pickled.
        if self._ops is None:
            return _from_trusted, (self.to_toml(),)
        parts = (self.source, self._ops, self._native.settings, self._native.config, self._sampler, self._epoch)
        return _from_parts, parts

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        """Return the plan itself, because it never changes."""
        return self

    @property
    def ops(self) -> list[str]:
        """The names of the ops, in order.

        >>> fl.Loader(fl.synthetic(8, (9, 9, 3)), [ops.CenterCrop(5, on="data")], batch_size=4).plan.ops
        ['CenterCrop']
        """
        return self._native.ops + ["MapBatch" for op in self._ops or () if isinstance(op, MapBatch)]

    @property
    def source(self) -> Source:
        """The source.

        >>> len(fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan.source)
        8
        """
        return Source(self._native.source)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of parts of the plan.

        ``listing`` covers the names of the samples, ``values`` also the ops, ``order`` also seed, shuffle and sampler,
        ``run`` everything.

        >>> sorted(fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan.fingerprints)
        ['listing', 'order', 'run', 'values']
        """
        return self._native.fingerprints

    def indices(self, epoch: int = 0) -> list[int]:
        """Return the indices of an epoch's samples, in the order in which this rank receives them.

        >>> fl.Loader(fl.synthetic(4, (2,)), batch_size=2).plan.indices(epoch=0)
        [0, 1, 2, 3]
        """
        return self._for_epoch(epoch)._native.indices(epoch)

    def resolve(self, op: int, *, index: int, width: int, height: int, epoch: int = 0) -> list[tuple[str, float]]:
        """Return the parameters that op number ``op`` will use for sample ``index``, without reading any data.

        >>> plan = fl.Loader(fl.synthetic(8, (9, 9, 3)), [ops.RandomCrop(5, on="data")], batch_size=4).plan
        >>> [name for name, value in plan.resolve(0, index=3, width=9, height=9)]
        ['left', 'top']
        """
        if width < 1 or height < 1:
            raise PlanError(f"a picture of {width} x {height} has no pixels")
        return self._native.resolve(op, epoch, index, width, height)


def _from_trusted(text: str) -> Plan:
    """Read a pickled plan. Unpickling runs code anyway, so functions are allowed."""
    return Plan.from_toml(text, allow_functions=True)


def _from_parts(
    source: Source,
    ops: Sequence[Op],
    settings: dict[str, Any],
    config: dict[str, Any],
    sampler: EpochIndices | None,
    epoch: int,
) -> Plan:
    native = _feedline.Plan(source._native, sample_ops(ops), settings, config, tuple(likely()))
    return Plan(native, ops, sampler, epoch)
