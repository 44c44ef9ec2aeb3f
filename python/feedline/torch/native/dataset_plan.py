"""A Python dataset as a plan: its source has only indices, and ``ops.Map`` calls the dataset.

In: a map-style dataset of a DataLoader with ``order``, ``cache``, ``share`` or ``worker_type="thread"``, which are
features of plans. Out: a :class:`DatasetPlan`. Always true: a sample is what ``dataset[index]`` returned, with the
random numbers that it would get without a plan, except in a shared run, whose jobs have no seed in common.

The first samples are made in this process, to learn whether arrays have the same shapes in all of them. If so, arrays
are written into the memory of a batch. Otherwise a sample travels as one pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import RandomSampler, SequentialSampler, default_collate

from feedline import _feedline, ops, source
from feedline.errors import PlanError
from feedline.ops import Op
from feedline.source import Source
from feedline.torch import collation
from feedline.torch.rank_sampler import RankSampler
from feedline.torch.worker import payload
from feedline.torch.worker.schema import Schema
from feedline.torch.worker.seeding import preserved_generators
from feedline.worker.frames import DTYPE_NAMES
from feedline.worker.seeding import sample_seeder

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader

_OBJECTS = "objects"
"""The field of pickles."""
_LEARNT_SAMPLES = 3
_ATTEMPTS = 8
"""How often a sample is made to see whether it is random. A flip with p = 0.5 escapes once in 128 times, per sample."""
_MIXING = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class DatasetPlan:
    """A source and an op that give the samples of a Python dataset. Used like a ``Promotion``."""

    source: Source
    ops: list[Op]
    fields: tuple[str, ...]
    ragged: tuple[str, ...]
    _schema: Schema | None
    _collate: Callable[[Any], Any]

    def source_indices(self, indices: Iterable[int]) -> list[int]:
        """Return the indices of a sampler as those of the source. Negative indices count from the end."""
        count = len(self.source)
        numbers = [int(index) for index in indices]
        wrong = [number for number in numbers if not -count <= number < count]
        if wrong:
            raise IndexError(f"there is no sample {wrong[0]} in a dataset of {count}")
        return [number % count for number in numbers]

    def collate(self, batch: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Return a batch of the loader as torch's DataLoader would."""
        values = [batch[name] for name in self.fields] if isinstance(batch, Mapping) else list(batch)
        arrays = [np.asarray(value) for value in values[: len(values) - len(self.ragged)]]
        objects = [pickle.loads(bytes(value)) for value in values[-1]] if self.ragged else None
        if self._schema is None:
            return self._collate(objects)
        if self._collate is default_collate and not collation.concerns_assembled_types():
            return self._schema.assemble_batch(arrays, objects)
        count = len(arrays[0])
        rests = objects or [[]] * count
        return self._collate([self._schema.sample_at(arrays, slot, rests[slot]) for slot in range(count)])

    def is_current(self, dataset: Any) -> bool:
        """Return true: as with persistent workers, the dataset stays as it was when the workers started."""
        return True


def plan_of(loader: DataLoader[Any]) -> DatasetPlan:
    """Return the plan of a loader's dataset. Raise :class:`feedline.PlanError` if it cannot have one."""
    reason = _obstacle(loader)
    if reason is not None:
        raise PlanError(f"{', '.join(plan_options(loader))}: {reason}")
    dataset: Any = loader.dataset
    count = len(dataset)
    schema = _learn(dataset, count)
    if loader.cache is not None:
        _check_same(dataset, count)
    has_objects = schema is None or schema.has_objects
    leaves = [] if schema is None else [f"leaf{number}" for number in range(len(schema.leaves))]
    if has_objects and loader.share is not False:
        what = "arrays of different shapes, or values that are no arrays"
        raise PlanError(f"share: samples of {type(dataset).__name__} have {what}, and a node keeps arrays of one shape")
    shapes = {} if schema is None else _shapes(leaves, schema)
    fields = (*leaves, _OBJECTS) if has_objects else tuple(leaves)
    worker_type = loader.worker_type
    # A sample that a sampler repeats has other random numbers each time. Those of the engine follow its occurrence.
    is_seeded = loader.seeding == "sample" and worker_type == "process" and loader.share is False
    own_seed = loader._resolved_seed() if is_seeded and _gives_each_once(loader._sample_sampler) else None
    function = DatasetFunction(dataset, schema, own_seed, is_deterministic=loader.cache is not None)
    call = ops.Map(
        function,
        on="data",
        out=fields,
        shapes=shapes,
        deterministic=loader.cache is not None,
        worker_type=worker_type,
    )
    indices = source.synthetic(count, (1,))
    ragged = (_OBJECTS,) if has_objects else ()
    return DatasetPlan(indices, [call], fields, ragged, schema, loader.collate_fn or default_collate)


def plan_options(loader: DataLoader[Any]) -> list[str]:
    """Return the options of a loader that need a plan."""
    given = {
        "order": loader.order != "strict",
        "cache": loader.cache is not None,
        "share": loader.share is not False,
        'worker_type="thread"': loader.worker_type == "thread",
    }
    return [name for name, is_given in given.items() if is_given]


class DatasetFunction:
    """The function that ``ops.Map`` calls for an index."""

    def __init__(self, dataset: Any, schema: Schema | None, seed: int | None, *, is_deterministic: bool) -> None:
        """Without ``seed``, generators stay as the engine seeded them."""
        self._dataset, self._seed, self.is_deterministic = dataset, seed, is_deterministic
        self._blob = None if schema is None else schema.blob()
        self._begin()

    def _begin(self) -> None:
        self._schema = None if self._blob is None else Schema.from_blob(self._blob)
        self._seeds = None if self._seed is None else _feedline.SampleSeeds(self._seed)
        self._seeder = None if self._seed is None else sample_seeder()

    def __getstate__(self) -> tuple[Any, ...]:
        """Pickle the dataset and what was learnt."""
        return self._dataset, self._seed, self._blob, self.is_deterministic

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Load what :meth:`__getstate__` returned."""
        self._dataset, self._seed, self._blob, self.is_deterministic = state
        self._begin()

    def __call__(self, data: Any, index: int, epoch: int) -> Any:
        """Make a sample. Return its arrays, then the pickle of the rest if there is one."""
        if self._seeds is not None and self._seeder is not None:
            self._seeds.begin(epoch)
            self._seeder(self._seeds.next([index])[0])
        sample = self._dataset[index]
        if self._schema is None:
            return payload.pickled_in_band(sample)
        views = [np.empty((1, *leaf.shape), leaf.dtype) for leaf in self._schema.array_leaves]
        fits, rest = self._schema.store(sample, views, 0)
        if not fits:
            raise ValueError(
                f"sample {index} has another structure, or arrays of other shapes or types, than the first samples"
            )
        values: list[Any] = [view[0, ...] for view in views]
        if self._schema.has_objects:
            values.append(payload.pickled_in_band(rest))
        return values[0] if len(values) == 1 else values


def _obstacle(loader: DataLoader[Any]) -> str | None:
    """Return why a loader cannot run as a plan."""
    name = type(loader.dataset).__name__
    reasons = [
        (loader.num_workers == 0, "this needs num_workers above 0"),
        (loader._is_iterable, f"{name} is iterable, and this needs a map-style dataset"),
        (not loader._auto_collation, "this needs a batch_size"),
        (loader._has_own_batches, "this needs batch_size and sampler, or torch's BatchSampler"),
        (loader.seeding == "torch", 'seeding="torch" needs the workers of torch, which make whole batches in turn'),
        (
            loader.cache is not None and loader.cache.disk is not None,
            "a cache on disk would not notice files that the dataset reads; give ram=... only",
        ),
        (loader.worker_init_fn is not None, "no function is called when its workers start: remove worker_init_fn"),
    ]
    return next((reason for stands, reason in reasons if stands), None)


def _learn(dataset: Any, count: int) -> Schema | None:
    """Return the schema of samples, or ``None`` if their arrays have no common shapes."""
    numbers = sorted({0, count // 2, count - 1})[:_LEARNT_SAMPLES] if count else []
    if not numbers:
        return None
    with preserved_generators():
        samples = [dataset[number] for number in numbers]
    schema = Schema.learn(samples[0], "sample")
    if schema is None or any(leaf.dtype.name not in DTYPE_NAMES for leaf in schema.array_leaves):
        return None
    views = [np.empty((1, *leaf.shape), leaf.dtype) for leaf in schema.array_leaves]
    return schema if all(schema.store(sample, views, 0)[0] for sample in samples) else None


def _gives_each_once(sampler: Any) -> bool:
    """Return whether a sampler gives each sample at most once in an epoch, as far as is known."""
    if type(sampler) is RankSampler:
        return _gives_each_once(sampler.base)
    return type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)


def _check_same(dataset: Any, count: int) -> None:
    """Raise if samples differ when they are made again with other random numbers: a cache would freeze them."""
    seed = sample_seeder()
    for number in sorted({0, count // 3, count // 2, count - 1})[: max(count, 0)]:
        prints: set[bytes] = set()
        with preserved_generators():
            for attempt in range(_ATTEMPTS):
                # Mixed, because the first numbers of neighbouring seeds are alike.
                seed(_MIXING * (_ATTEMPTS * number + attempt + 1) % 2**63)
                prints.add(payload.pickled_in_band(dataset[number]))
        if len(prints) > 1:
            raise PlanError(
                f"cache: sample {number} of {type(dataset).__name__} differs each time it is made, so a cache would "
                "keep its first random numbers for ever; leave random transforms out of the dataset, and give them to "
                "the step or to feedline.torch.prefetch(loader, device, transform=...)"
            )


def _shapes(leaves: list[str], schema: Schema) -> dict[str, tuple[str, tuple[int, ...]]]:
    of_leaves = zip(leaves, schema.array_leaves, strict=True)
    return {name: (leaf.dtype.name, leaf.shape) for name, leaf in of_leaves}
