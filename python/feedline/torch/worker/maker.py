"""Prepares the samples of one request after the other, inside a worker process.

In: a request with indices, seeds and slots. Out: arrays in shared memory, payloads in the arena, and the bytes of a
reply. An exception of user code becomes a part of the reply. Sockets and signals are handled in
:mod:`feedline.torch.worker.main`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker

from feedline import _feedline
from feedline.torch import collation
from feedline.torch.worker import fetch, payload
from feedline.torch.worker.item import DataEnded
from feedline.torch.worker.leaves import Array, Mode
from feedline.torch.worker.schema import Schema
from feedline.torch.worker.seeding import seed_worker
from feedline.worker import frames
from feedline.worker.arena import Arena
from feedline.worker.seeding import sample_seeder

_MOST_PROPOSALS = 4
_MOST_SLABS = 64
"""As many as the engine counts as mapped: `MAX_SLABS` of link.rs. Each mapping keeps its memory allocated."""
_LOGGED_CHARACTERS = 500


@dataclass(frozen=True)
class WorkerConfig:
    """Everything that a worker needs to know. Under spawn and forkserver it is pickled."""

    worker_id: int
    num_workers: int
    mode: Mode
    """``"sample"``: one slot per sample; ``"unit"``: one slot per collated item."""
    dataset: Any
    collate_fn: Callable[[Any], Any] | None = None
    """``None`` means torch's default. Not called in mode ``"sample"``."""
    is_iterable: bool = False
    drop_last: bool = False
    seeding: Literal["sample", "torch"] | None = "sample"
    """``"sample"`` seeds the generators before each sample or item. The others seed once, at the start."""
    base_seed: int = 0
    worker_init_fn: Callable[[int], Any] | None = None
    auto_collation: bool = True
    """Whether an item has several samples: ``batch_size`` is not ``None``."""
    shared_seed: int | None = None
    """Seed of torch data pipes, equal in all workers."""
    seed: int = 0
    """Seed of the loader, from which the seeds of items follow."""
    failures_are_values: bool = False
    """Whether an exception is delivered in place of its sample, as in torch. If not, the engine gets it."""
    collate_functions: Mapping[Any, Any] = field(default_factory=dict)
    """What the program changed in torch's registry of collate functions."""


class Maker:
    """The user's dataset in a worker, and the memory to which its samples go."""

    def __init__(self, config: WorkerConfig, arena: Arena, failure: ExceptionWrapper | None = None) -> None:
        """Seed the generators and call the user's ``worker_init_fn``.

        If that fails, or with a given ``failure``, every request is answered with the exception.
        """
        self._config = config
        self._arena = arena
        self._dataset = config.dataset
        self._slabs: dict[int, tuple[Schema, list[Array]] | str] = {}
        """The mapped slabs, and why a slab could not be mapped: the engine describes each of them only once."""
        self._schemas: dict[bytes, Schema] = {}
        self._proposals = 0
        self._fetch: fetch.Fetch | None = None
        self._failure = failure
        self._seed = sample_seeder() if config.seeding == "sample" else None
        self._calls: dict[str, Callable[[Any], Any]] = {"start_epoch": self._start_epoch}
        if failure is None:
            self._initialise()

    def make(self, request: frames.Request) -> bytearray:
        """Prepare the samples of a request. Returns a MADE frame."""
        arena, seeds, seed = self._arena, request.seeds, self._seed
        arena.reset()
        message = bytearray(frames.RECORDS_START + frames.RECORD_BYTES * len(seeds))
        records = memoryview(message)[frames.RECORDS_START :].cast("Q")
        progress, slot, clock = arena.progress, request.first_slot, time.perf_counter_ns
        proposal, word = b"", 0
        start = clock()
        try:
            self._raise_failure()
            store, views = self._destination(request)
            fetch_value = self._fetcher()
            for number, index in enumerate(request.indices):
                progress[0] = number
                if seed is not None:
                    seed(seeds[number])
                value = fetch_value(index)
                if store is None:
                    is_stored, rest = False, None
                    proposal = proposal or self._propose(value)
                else:
                    is_stored, rest = store(value, views, slot + number)
                if not is_stored:
                    records[word + 1], records[word + 2] = payload.dumps(value, arena)
                    records[word + 3] = frames.WHOLE
                elif rest:
                    records[word + 1], records[word + 2] = payload.dumps(rest, arena)
                # The end of a sample is the start of the next: reading the clock twice would cost 5 % of a small one.
                now = clock()
                records[word] = now - start
                start = now
                word += 4
        except Exception as error:
            if isinstance(error, StopIteration) and self._config.is_iterable:
                records[word + 3] = frames.ENDED
                if error.value is not None:
                    records[word + 1], records[word + 2] = payload.dumps(DataEnded(error.value), arena)
                    records[word + 3] = frames.WHOLE
            else:
                word = self._record_failure(records, word)
            records[word] = clock() - start
            word += 4
        records.release()
        return frames.finish_made(message, word // 4, proposal)

    def _record_failure(self, records: memoryview, word: int) -> int:
        """Record the current exception. Returns the place of the last record that counts."""
        # The batch cannot be delivered, so the rest of its samples here is not made.
        are_values = self._config.failures_are_values
        place, size = self._dump_failure() if are_values else self._dump_failure_with_text()
        last = len(records) - 4 if are_values else word
        for start in range(word, last + 4, 4):
            records[start + 1], records[start + 2] = place, size
            records[start + 3] = frames.WHOLE if are_values else frames.FAILED
        return last

    def call(self, name: str, argument: Any) -> bytes:
        """Run a function of this class by its name. Returns a RESULT frame."""
        try:
            result = None if self._failure is not None else self._calls[name](argument)
            return frames.result_of(True, payload.pickled_in_band(result))
        except Exception:
            return frames.result_of(False, payload.pickled_in_band(self._wrapped()))

    def _initialise(self) -> None:
        _collate_in_private_memory()
        collation.extend(self._config.collate_functions)
        try:
            self._seed_all()
            if self._config.worker_init_fn is not None:
                self._config.worker_init_fn(self._config.worker_id)
        except Exception:
            self._failure = self._wrapped()

    def _seed_all(self) -> None:
        config = self._config
        self._dataset = fetch.with_shared_seed(self._dataset, config.shared_seed)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=config.worker_id,
            num_workers=config.num_workers,
            seed=seed_worker(config.base_seed, config.worker_id),
            dataset=self._dataset,
        )

    def _start_epoch(self, shared_seed: int | None) -> None:
        """Begin an iterable dataset again. ``shared_seed`` is that of a data pipe."""
        self._fetch = None
        self._dataset = fetch.with_shared_seed(self._dataset, shared_seed)

    def _fetcher(self) -> fetch.Fetch:
        """Return the function from an index to a sample or an item."""
        if self._fetch is None:
            config = self._config
            collate = fetch.collate_or_default(config.collate_fn, config.auto_collation)
            if config.is_iterable:
                self._fetch = fetch.IterableFetcher(
                    self._dataset, collate, config.auto_collation, config.drop_last, self._item_seeder()
                )
            elif config.mode == "unit":
                self._fetch = fetch.item_fetcher(self._dataset, collate, config.auto_collation)
            else:
                self._fetch = fetch.sample_fetcher(self._dataset)
        return self._fetch

    def _item_seeder(self) -> Callable[[int, int], None] | None:
        """Return a function that seeds the generators for an epoch and the number of an item of this worker."""
        if self._seed is None:
            return None
        config, seed = self._config, self._seed
        seeds = _feedline.SampleSeeds(config.seed)

        def seed_item(epoch: int, number: int) -> None:
            seeds.begin(epoch)
            seed(seeds.next([config.worker_id + config.num_workers * number])[0])

        return seed_item

    def _destination(self, request: frames.Request) -> tuple[Callable[..., Any] | None, list[Array]]:
        """Return the function that stores samples, and the arrays of the request's slab."""
        if request.slab is None:
            return None, []
        if request.new_slab is not None:
            self._slabs.pop(request.slab, None)
            self._slabs[request.slab] = self._mapped(request.new_slab)
            if len(self._slabs) > _MOST_SLABS:
                del self._slabs[next(iter(self._slabs))]
        found = self._slabs[request.slab]
        if isinstance(found, str):
            raise OSError(found)
        schema, views = found
        return schema.store, views

    def _mapped(self, new: frames.NewSlab) -> tuple[Schema, list[Array]] | str:
        """Return the arrays of a slab, or why it cannot be mapped."""
        schema = self._schemas.get(new.schema_blob)
        if schema is None:
            schema = self._schemas[new.schema_blob] = Schema.from_blob(new.schema_blob)
        # Unlike mmap.mmap, torch keeps no file descriptor: a thousand slabs would reach the usual limit of a process.
        try:
            memory = torch.from_file(f"/proc/self/fd/{new.fd}", shared=True, size=new.size, dtype=torch.uint8).numpy()
        except RuntimeError as error:
            return f"a worker cannot map the {new.size} bytes of a batch: {error}"
        views = [
            np.ndarray((new.slots, *leaf.memory_shape), leaf.dtype, buffer=memory, offset=offset)
            for leaf, offset in zip(schema.array_leaves, new.offsets, strict=True)
        ]
        return schema, views

    def _propose(self, value: Any) -> bytes:
        if self._proposals >= _MOST_PROPOSALS:
            return b""
        schema = Schema.learn(value, self._config.mode)
        if schema is None:
            return b""
        self._proposals += 1
        return frames.proposal_of(schema.leaves, schema.blob())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the worker was not initialised")

    def _wrapped(self) -> ExceptionWrapper:
        """Wrap the current exception as torch's workers do."""
        return ExceptionWrapper(where=f"in DataLoader worker process {self._config.worker_id}")

    def _dump_failure(self) -> tuple[int, int]:
        failure = self._failure or self._wrapped()
        try:
            return payload.dumps(failure, self._arena)
        except Exception:  # The class of the exception cannot be pickled.
            failure.exc_type = RuntimeError
            return payload.dumps(failure, self._arena)

    def _dump_failure_with_text(self) -> tuple[int, int]:
        """Write the exception for the engine, which logs its text: the length of the text, the text, the payload."""
        failure = self._failure or self._wrapped()
        last_line = failure.exc_msg.strip().rsplit("\n", 1)[-1]
        text = last_line[:_LOGGED_CHARACTERS].encode(errors="replace")
        place, size = self._dump_failure()
        written = bytes(self._arena.bytes_at(place, size))
        data = len(text).to_bytes(4, "little") + text + written
        place, memory = self._arena.reserve(len(data))
        memory[:] = data
        return place, len(data)


def _collate_in_private_memory() -> None:
    """Stop ``default_collate`` from making a shared memory file for each tensor: the worker copies tensors anyway."""
    known = torch_collate.default_collate_fn_map
    original = torch_collate.collate_tensor_fn
    if known.get(torch.Tensor) is not original:
        return

    def collate_tensor(batch: Any, **options: Any) -> Any:
        info, torch_worker._worker_info = torch_worker._worker_info, None
        try:
            return original(batch, **options)
        finally:
            torch_worker._worker_info = info

    known[torch.Tensor] = collate_tensor
