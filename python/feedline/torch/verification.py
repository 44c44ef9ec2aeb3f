"""Checks Feedline's promises on a user's own DataLoader.

In: a DataLoader. Out: for each law whether it holds, with the first counterexample. The loader itself is not changed:
copies of it run with other numbers of workers, and continue from states. Every sample is made several times.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

from feedline.arguments import whole
from feedline.torch.loader import DataLoader
from feedline.torch.worker.item import index_id


@dataclass(frozen=True)
class Finding:
    """One promise, and whether it holds.

    >>> found = feedline.torch.verify(feedline.torch.DataLoader(range(4), batch_size=2, seed=0)).findings
    >>> [type(finding) is feedline.torch.Finding for finding in found]
    [True, True, True, True]
    """

    promise: str
    problem: str | None
    """The first counterexample. ``None`` if the promise holds."""


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`. Print it to read it; it is true if every promise holds.

    >>> bool(feedline.torch.verify(feedline.torch.DataLoader(range(8), batch_size=4, seed=0)))
    True
    """

    findings: list[Finding]

    def __bool__(self) -> bool:
        """Return whether every promise holds."""
        return all(finding.problem is None for finding in self.findings)

    def __str__(self) -> str:
        """Return one line for each promise."""
        return "\n".join(
            f"{'holds ' if finding.problem is None else 'BROKEN'}  {finding.promise}"
            + ("" if finding.problem is None else f": {finding.problem}")
            for finding in self.findings
        )


def verify(loader: DataLoader[Any], *, batches: int = 32, epoch: int = 0) -> Verification:
    """Check that a loader gives the same batches for any number of workers, again and again, and resumes exactly.

    The first ``batches`` batches of an epoch are compared. A broken promise usually means that the dataset uses random
    numbers that Feedline does not seed, such as a generator of its own, or keeps state between samples.

    >>> print(feedline.torch.verify(feedline.torch.DataLoader(range(8), batch_size=4, shuffle=True, seed=0)))
    holds   law 1: the same batches for 0, 1 and 2 workers
    holds   law 1: the same batches when they are made again
    holds   law 2: the samples of the sampler, each once and in its order
    holds   law 4: a state continues with the next batch
    """
    count = whole("batches", batches, 1)
    seed = loader._resolved_seed()
    reference = _prints(_copy(loader, seed, 1), epoch, count)
    others = [(workers, _prints(_copy(loader, seed, workers), epoch, count)) for workers in (0, 2)]
    different = [_difference(reference, other, f"with {n} workers") for n, other in others]
    if loader._is_iterable:
        # Iterable datasets divide their samples by worker, so their batches depend on the number.
        different = []
    again = _difference(reference, _prints(_copy(loader, seed, 1), epoch, count), "when it is made again")
    findings = [
        Finding("law 1: the same batches for 0, 1 and 2 workers", _first(different)),
        Finding("law 1: the same batches when they are made again", again),
        Finding("law 2: the samples of the sampler, each once and in its order", _once(loader, seed, epoch, count)),
        Finding("law 4: a state continues with the next batch", _resumed(loader, seed, epoch, reference)),
    ]
    return Verification(findings)


def _copy(loader: DataLoader[Any], seed: int, workers: int) -> DataLoader[Any]:
    """Return a loader with the same samples and another number of workers."""
    # Not by the constructor: the sampler and the batch sampler are those of the loader, whatever they are.
    made = copy.copy(loader)
    made.__dict__ |= copy.copy(loader).__getstate__()
    # Other orders, caches and shared samples are checked by `feedline verify` on plans.
    made.order, made.cache, made.share, made.metrics = "strict", None, False, None
    if workers == 0:
        made.worker_type = "process"
    made.num_workers, made._shared.drawn_seed, made.native = workers, seed, False
    object.__setattr__(made, "persistent_workers", False)
    made.prefetch_factor = 2 if workers else None
    made._DataLoader__multiprocessing_context = loader.multiprocessing_context if workers else None
    return made


def _prints(loader: DataLoader[Any], epoch: int, count: int) -> list[bytes]:
    loader.set_epoch(epoch)
    batches = iter(loader)
    return [_print_of(batch) for batch in itertools.islice(batches, count)]


def _print_of(batch: Any) -> bytes:
    """Return a hash of all values of a batch."""
    found = hashlib.blake2b(digest_size=16)
    for part in _parts(batch):
        found.update(part)
    return found.digest()


def _parts(value: Any) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        yield str((value.dtype, tuple(value.shape))).encode()
        is_plain = value.layout is torch.strided and value.dtype is not torch.bfloat16
        yield value.contiguous().numpy().tobytes() if is_plain else str(value.to_dense().tolist()).encode()
    elif isinstance(value, np.ndarray):
        yield str((value.dtype, value.shape)).encode()
        yield value.tobytes()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(key)
            yield from _parts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _parts(item)
    else:
        yield pickle.dumps(value)


def _difference(one: list[bytes], other: list[bytes], what: str) -> str | None:
    if len(one) != len(other):
        return f"{len(one)} batches, but {len(other)} {what}"
    differ = [number for number, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return f"batch {differ[0]} differs {what}" if differ else None


def _first(problems: list[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


class _Indices(Dataset[int]):
    """Delivers the number of each index, so that the engine shows which samples it requests."""

    def __getitem__(self, index: Any) -> int:
        return index_id(index) % 2**62


def _once(loader: DataLoader[Any], seed: int, epoch: int, count: int) -> str | None:
    """Compare the samples that are delivered with those of the sampler, one by one."""
    if loader._is_iterable:
        return None
    expected: list[int] = []
    sampler = _copy(loader, seed, 0)
    sampler.set_epoch(epoch)
    for wanted in itertools.islice(sampler._sampling(sampler._begin_epoch()), count):
        expected += [index_id(index) % 2**62 for index in (wanted if loader._auto_collation else [wanted])]
    engine = _copy(loader, seed, 2)
    collate = default_collate if loader._auto_collation else int
    engine.__dict__ |= {"dataset": _Indices(), "collate_fn": collate, "worker_type": "process"}
    engine.set_epoch(epoch)
    found: list[int] = []
    for batch in itertools.islice(engine, count):
        found += batch.tolist() if loader._auto_collation else [batch]
    places = zip(expected, found, strict=False)
    differ = [place for place, (one, other) in enumerate(places) if one != other]
    if differ:
        return f"sample {found[differ[0]]} came at place {differ[0]}, where the sampler has {expected[differ[0]]}"
    return None if len(expected) == len(found) else f"{len(found)} samples came, but the sampler has {len(expected)}"


def _resumed(loader: DataLoader[Any], seed: int, epoch: int, reference: list[bytes]) -> str | None:
    """Stop after some batches, and continue from the state with another number of workers."""
    for taken in sorted({0, 1, len(reference) // 2, max(len(reference) - 1, 0)}):
        first = _copy(loader, seed, 1)
        first.set_epoch(epoch)
        batches = iter(first)
        for _ in range(taken):
            next(batches)
        state = first.state_dict()
        del batches
        second = _copy(loader, seed, 1 if loader._is_iterable else 2)
        second.load_state_dict(state)
        rest = [_print_of(batch) for batch in itertools.islice(second, len(reference) - taken)]
        if rest != reference[taken:]:
            return f"after {taken} batches"
    return None
