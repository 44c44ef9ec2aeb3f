"""Worker processes on the engine: requests for batches go in, assembled batches come out.

In: batches of indices, as far ahead as :attr:`WorkerEngine.wanted_ahead` says. Out: batches in the order of the
requests, or the exception of the dataset. The sampler and the place in the epoch belong to the iterator.

Always true: :meth:`WorkerEngine.close` ends the threads, then the worker processes, and frees their memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import time
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from feedline import _feedline, environment
from feedline.errors import FeedlineError, SampleError
from feedline.exit import close_at_exit
from feedline.metrics import serve
from feedline.policy import Substitute
from feedline.torch.processes import WorkerProcess, WorkerStarter, end_workers
from feedline.torch.stacks import worker_stack
from feedline.torch.worker import payload
from feedline.torch.worker.leaves import Mode
from feedline.torch.worker.main import WorkerConfig
from feedline.torch.worker.schema import Schema

_log = logging.getLogger("feedline")

_IN_SLOT, _WHOLE, _ENDED = 0, 1, 2
"""The last byte of what comes with a sample: where its arrays are. See `MadeContent` in the engine."""

_GRACE_SECONDS = 0.5
"""Workers that still work on a sample after this time are terminated."""

_EXIT_SECONDS = 5.0
"""How long to wait for the exit code of a worker whose socket has closed."""

_of_parent_process: list[Any] = []
"""Engines that a forked child got from its parent. They are kept until it ends."""

ENDED = object()
"""Delivered instead of an item: the iterable dataset of the worker has ended."""


Parts = tuple[list[_feedline.Array], list[tuple[int, _feedline.Array]]]
"""A batch of the engine: the arrays in its slab, and what else came with its samples."""


class WorkerLost(FeedlineError, RuntimeError):
    """A worker ended before its work was done. No further batch can come."""


class SampleFailed(Exception):
    """The user's code raised while it made a batch."""

    def __init__(self, wrapper: ExceptionWrapper, *, is_last: bool = False) -> None:
        """``wrapper`` has the exception and the traceback in the worker. If ``is_last``, no further batch can come."""
        super().__init__(wrapper.exc_msg)
        self.wrapper, self.is_last = wrapper, is_last


@dataclass(frozen=True)
class EngineOptions:
    """How worker processes run."""

    context: Any
    seed: int
    batch_size: int
    """Samples per batch of the first request, which decides how batches are divided into tasks."""
    samples: int
    """The number of samples of the dataset, if it is known. Otherwise a large number."""
    prefetch_batches: int | None
    memory_budget: int | str | None
    on_error: Literal["raise", "restart"] | Substitute
    timeout: float
    metrics: str | None


class WorkerEngine:
    """Worker processes, and the engine that schedules their work."""

    def __init__(self, config: WorkerConfig, options: EngineOptions) -> None:
        """Start the worker processes and the threads of the engine."""
        self._config, self._options = config, options
        self._native: _feedline.GivenLoader | None = None
        self._last_counters: Any = None
        self._metrics: _feedline.Metrics | None = None
        self._schema: Schema | None = None
        self._process = os.getpid()
        self._starter = WorkerStarter(options.context, config)
        self.workers: list[WorkerProcess] = []
        self.batch_bytes = 0
        """The size of the batch that was put together last."""
        close_at_exit(self)
        try:
            for number in range(config.num_workers):
                self.workers.append(self._starter.start(number))
            self._native = self._open()
            self._metrics = None if options.metrics is None else serve(self._native, options.metrics)
        except BaseException:
            self.close()
            raise

    def _open(self) -> _feedline.GivenLoader:
        options, name = self._options, type(self._config.dataset).__name__
        stream: dict[str, Any] = {
            "batch_size": max(options.batch_size, 1) if self._config.mode == "sample" else 1,
            "seed": options.seed,
            "drop_last": False,
            "fields": ["sample"],
            "ragged": ["sample"],
        }
        if isinstance(options.on_error, Substitute):
            stream["on_error"] = vars(options.on_error)
        run: dict[str, Any] = {"num_workers": self._config.num_workers}
        if options.prefetch_batches is not None:
            run["prefetch_batches"] = options.prefetch_batches
        if options.memory_budget is not None:
            run["memory_budget"] = options.memory_budget
        # A sampler may draw a batch that is larger than the dataset.
        source = _feedline.Source.dataset(max(options.samples, stream["batch_size"]), name)
        plan = _feedline.Plan(source, [], stream, run, (0, 1))
        sockets = [worker.socket.detach() for worker in self.workers]
        return _feedline.GivenLoader(plan, environment.machine(1), sockets, options.on_error == "restart")

    @property
    def mode(self) -> Mode:
        """Whether workers make samples, or collated items."""
        return self._config.mode

    @property
    def metrics_address(self) -> str | None:
        """The address at which metrics are served now."""
        return None if self._metrics is None else self._metrics.address

    @property
    def native(self) -> _feedline.GivenLoader:
        """The engine. Raises if it was closed."""
        if self._native is None:
            raise RuntimeError("this iterator was closed")
        return self._native

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a forked child of the one that started the workers."""
        return os.getpid() != self._process

    @property
    def wanted_ahead(self) -> int:
        """How many batches to request ahead of the consumer."""
        return self.native.wanted_ahead

    def request(
        self, epoch: int, first: int, ids: list[int], indices: bytes | None = None, worker: int | None = None
    ) -> None:
        """Request a batch after all earlier requests."""
        self.native.request(epoch, first, ids, indices, worker)

    def next(self) -> Parts:
        """Wait for the next requested batch, which :meth:`assembled` puts together.

        Raises :class:`WorkerLost`, or ``RuntimeError`` after the time limit. After the latter, one may wait again.
        """
        timeout = self._options.timeout or None
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                parts = self.native.next(left)
            except SampleError as error:
                self._raise(error)
            if parts is not None:
                return parts
            lost = self.native.lost
            if not lost or self._options.on_error != "restart":
                self._raise_timeout()
            for number, index in lost:
                self._replace(number, index)

    def next_if_ready(self) -> Parts | None:
        """Return the next requested batch if it is ready. A lost worker is left to :meth:`next`."""
        try:
            return self.native.next(0.0)
        except SampleError as error:
            self._raise(error)

    def call(self, name: str, argument: Any) -> None:
        """Call a function in every worker. Raise the first exception."""
        for number, worker in enumerate(self.workers):
            try:
                succeeded, result = self.native.call(number, pickle.dumps((name, argument)))
            except RuntimeError:
                worker.process.join(timeout=_EXIT_SECONDS)
                if worker.process.exitcode is None:
                    raise
                raise WorkerLost(self._loss(number, None)) from None
            if not succeeded:
                pickle.loads(result).reraise()

    def reset(self) -> None:
        """Drop all requests and prepared batches."""
        self.native.reset()

    def snapshot(self) -> Any:
        """Return all counters of the engine, or those at its end."""
        return self._last_counters if self._native is None else self._native.snapshot()

    def close(self) -> None:
        """End the threads, then the workers. Further calls do nothing."""
        native, self._native = self._native, None
        workers, self.workers = self.workers, []
        # A forked child has neither the threads nor the workers. Freeing the engine would wait for them.
        if self.is_of_parent:
            _of_parent_process.append(native)
            return
        if self._metrics is not None:
            self._metrics.close()
        if native is not None:
            self._last_counters = native.snapshot()
            native.close()
        self._metrics = None
        # Dropping the engine closes its ends of the sockets, which ends idle workers.
        del native
        end_workers(workers, _GRACE_SECONDS)

    def __del__(self) -> None:
        """Close, if nobody did."""
        with contextlib.suppress(Exception):
            self.close()

    def assembled(self, parts: Parts) -> Any:
        """Return a batch as torch's DataLoader would. Raises :class:`SampleFailed`, or as ``default_collate`` does."""
        leaves, rest = parts
        arrays = [np.asarray(leaf) for leaf in leaves]
        others = [(slot, np.asarray(memory)) for slot, memory in rest]
        self.batch_bytes = sum(array.nbytes for array in arrays) + sum(memory.nbytes for _, memory in others)
        if self._config.mode == "unit":
            return self._item(arrays, others)
        count = len(arrays[0]) if arrays else len(others)
        if count == 0:  # A batch sampler may give an empty list.
            return default_collate([])
        if not others:
            return self._known_schema().assemble_batch(arrays, None)
        rests: list[Any] = [None] * count
        samples: dict[int, Any] = {}
        for slot, memory in others:
            value = payload.loads(memory[:-1])
            if memory[-1] == _IN_SLOT:
                rests[slot] = value
                continue
            if isinstance(value, ExceptionWrapper):
                raise SampleFailed(value)
            # A slow sample was made before its batch had memory. It may fit now.
            fits, objects = self._known_schema().store(value, arrays, slot) if arrays else (False, None)
            if fits:
                rests[slot] = objects
            else:
                samples[slot] = value
        if len(samples) == count:
            return default_collate([samples[slot] for slot in range(count)])
        schema = self._known_schema()
        if not samples:
            return schema.assemble_batch(arrays, rests)
        others_of = (slot for slot in range(count) if slot not in samples)
        samples |= {slot: schema.sample_at(arrays, slot, rests[slot]) for slot in others_of}
        return default_collate([samples[slot] for slot in range(count)])

    def _item(self, arrays: list[Any], others: list[tuple[int, Any]]) -> Any:
        if not others:
            return self._known_schema().assemble_item(arrays, [])
        ((_, memory),) = others
        if memory[-1] == _ENDED:
            return ENDED
        value = payload.loads(memory[:-1])
        if isinstance(value, ExceptionWrapper):
            raise SampleFailed(value)
        return value if memory[-1] == _WHOLE else self._known_schema().assemble_item(arrays, value)

    def _known_schema(self) -> Schema:
        """Return the schema of slabs. The engine takes the first one that a worker proposes, and keeps it."""
        if self._schema is None:
            blob = self.native.schema
            assert blob is not None, "a batch with arrays has a schema"
            self._schema = Schema.from_blob(blob)
        return self._schema

    def _raise(self, error: SampleError) -> NoReturn:
        """Raise the exception of the dataset, or say which worker was lost."""
        pickled = getattr(error, "pickled", None)
        if pickled is not None:
            raise SampleFailed(payload.loads(np.frombuffer(bytearray(pickled), np.uint8)), is_last=True) from None
        worker = getattr(error, "worker", None)
        if worker is not None:
            raise WorkerLost(self._loss(worker, error.index)) from None
        raise error

    def _loss(self, number: int, index: int | None) -> str:
        """Say how a worker ended, and what it worked on."""
        process = self.workers[number].process
        process.join(timeout=_EXIT_SECONDS)
        code = process.exitcode
        if code is not None and code < 0:
            hint = ", perhaps by the kernel, for lack of memory" if code == -signal.SIGKILL else ""
            ended = f"is killed by signal: {signal.strsignal(-code)} ({_signal_name(-code)}{hint})"
        else:
            ended = f"exited unexpectedly with exit code {code}"
        what = (
            "waited for work"
            if index is None
            else f"made {self._sample} {index} of {type(self._config.dataset).__name__}"
        )
        # Both texts of torch, which programs search for.
        return (
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly: "
            f"DataLoader worker (pid {process.pid}) {ended} while worker {number} {what}"
        )

    @property
    def _sample(self) -> str:
        return "sample" if self._config.mode == "sample" else "item"

    def _replace(self, number: int, index: int) -> None:
        """Start a worker in place of a lost one."""
        _log.warning("%s; another worker makes it again", self._loss(number, index))
        self.workers[number] = self._starter.start(number)
        self.native.replace(number, self.workers[number].socket.detach())

    def _raise_timeout(self) -> NoReturn:
        """Say which workers are stuck, on which samples, and where in the code."""
        stuck = []
        for number, worker in enumerate(self.workers):
            index = self.native.current(number)
            if index is None:
                continue
            stack = worker_stack(self.native, number, worker)
            stuck.append(f"worker {number} (pid {worker.process.pid}) works on {self._sample} {index}\n{stack}")
        where = "\n".join(stuck) or "no worker works on a sample"
        raise RuntimeError(f"DataLoader timed out after {self._options.timeout} seconds: {where}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Real-time signals have no names.
        return f"signal {number}"
