"""The loader: an iterable of batches."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy as np

from feedline import _feedline, epoch_sampler, placement, plan_settings
from feedline.arguments import one_of, short, whole
from feedline.batches import converter, to_batch
from feedline.consumers import Assign, Consumer, Consumers
from feedline.diagnosis import Report
from feedline.display import Displayed, Facts
from feedline.errors import ForkError, PlanError, SampleError
from feedline.exit import close_at_exit
from feedline.foreign import missing_attribute, refuse_keywords
from feedline.iteration import Iteration
from feedline.learnt_shapes import with_learnt_shapes
from feedline.metrics import check_address, serve
from feedline.ops import Op, sample_ops
from feedline.order import Arrival, Planned
from feedline.placement import Placement
from feedline.plan import Plan
from feedline.policy import Cache, Substitute
from feedline.sampler import Sampler
from feedline.sharing import Share, as_share, open_loader
from feedline.shuffle import Reservoir
from feedline.source import Source
from feedline.tuning import Tuning
from feedline.types import OrderReport, Snapshot


class Loader(Displayed):
    """Batches of prepared samples. In strict and planned order the stream depends only on the plan and the seed.

    >>> loader = fl.Loader(fl.folder("data/train"), [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.Normalize()],
    ...                    batch_size=64, shuffle=True)

    Iterating gives one epoch; iterating again, also after a ``break``, gives the next. Arrays of a batch are yours:
    writable, and unchanged by whatever the loader does next.

    Args:
        source: the samples: ``fl.folder``, ``fl.tar``, ``fl.files``, ``fl.array``, ``fl.volumes`` or ``fl.synthetic``.
        ops: what the loader does to each sample, in order.
        batch_size: samples per batch.
        shuffle: ``True`` draws a new random order for each epoch. It needs no memory, however many samples there are.
            ``fl.reservoir(size)`` reads shards in sequence and draws from what was read.
        sampler: the samples of an epoch and their order. A list of indices, ``fl.weighted(...)``,
            ``fl.class_balanced()``, a torch sampler, or a function from the epoch to indices. The last two are called
            when the loader is made and when an epoch begins, so no sample of an epoch is prepared before it begins.
            A torch sampler draws from ``seed`` and epoch.
        seed: decides all randomness.
        num_workers: threads that prepare samples. ``"auto"`` begins with one per core, divided between the ranks on
            this machine and the loaders of this process. It adds threads while these wait for storage.
        drop_last: drop the samples that do not fill a batch on every rank. Without it the last batch may be short, and
            ``batch["padded"]`` marks the samples that some ranks repeat.
        order: ``"strict"`` delivers samples in the sampler's order. ``fl.planned(...)`` delivers slow samples later,
            in an order that is the same on every machine. ``fl.arrival(...)`` delivers first what is ready first.
        rank: this process among the ``world_size`` processes that divide each epoch. Without them, both come from the
            process group of ``torch.distributed`` or ``jax.distributed``, else from the environment of torchrun, SLURM
            or MPI, with a warning. ``rank=0, world_size=1`` divides nothing.
        world_size: see ``rank``.
        mesh: instead of both, a torch ``DeviceMesh`` of one dimension, or ``(mesh, "dp")`` with the name (or a tuple of
            names) of the data-parallel dimension. Ranks that differ in other dimensions get the same data.
        memory_budget: bytes of samples in flight, a number or a text such as ``"512MB"``. By default an eighth of the
            memory, at most 2 GB, divided between the ranks on this machine and the loaders of this process. A sample
            that is larger runs alone.
        on_error: ``"raise"``, or ``fl.substitute(max_fraction=...)`` to replace bad samples.
        framework: ``"numpy"`` or ``"torch"`` (tensors over the same memory).
        fields: names of the fields to deliver, as tuples in this order. By default a batch is a dict of all fields.
            ``"key"`` is the sample's name.
        ragged: fields to deliver as lists of arrays, each with its own shape.
        cache: ``fl.cache(ram=..., disk=...)`` keeps samples as they are before the first random op.
        share: ``True``, the path of a node's socket, or ``fl.share(...)``. Samples then come from the node of this
            machine, which prepares them once for all jobs with the same source, ops and fields. Each job gets each
            sample once per epoch, in an order that is not known beforehand.
        metrics: an address such as ``"127.0.0.1:9400"``. There the loader serves ``/metrics`` (for Prometheus),
            ``/stats`` (the snapshot as JSON) and ``/health`` until it is closed. Port 0 takes a free port. Each rank
            needs a port of its own.
        tuning: ``fl.tuning(...)`` sets what the engine otherwise decides itself.
    """

    def __init__(
        self,
        source: Source,
        ops: Sequence[Op] = (),
        *,
        batch_size: int,
        shuffle: bool | Reservoir = False,
        sampler: Sampler | None = None,
        seed: int = 0,
        num_workers: int | Literal["auto"] = "auto",
        drop_last: bool = False,
        order: Literal["strict"] | Planned | Arrival = "strict",
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        memory_budget: int | str | None = None,
        on_error: Literal["raise"] | Substitute = "raise",
        framework: Literal["numpy", "torch"] = "numpy",
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
        cache: Cache | None = None,
        share: bool | str | os.PathLike[str] | Share = False,
        metrics: str | None = None,
        tuning: Tuning | None = None,
        **unknown: NoReturn,
    ) -> None:
        """Check all arguments. No sample is read and no thread starts before the first batch is requested."""
        refuse_keywords(unknown)
        if not isinstance(source, Source):
            makers = "fl.folder, fl.tar, fl.files, fl.array, fl.volumes or fl.synthetic"
            raise PlanError(f"source is {type(source).__name__}; create it with {makers}")
        if not isinstance(ops, Sequence):
            raise PlanError(
                f"ops is {short(ops)}; it must be a list of ops, e.g. [ops.DecodeImage(), ops.Resize((224, 224))]"
            )
        wrong = [op for op in ops if not isinstance(op, Op)]
        if wrong:
            raise PlanError(f"ops has {short(wrong[0])}; it takes ops of feedline.ops, functions go into ops.Map(fn)")
        wanted_share = as_share(share)
        if wanted_share is not None:
            ops = with_learnt_shapes(list(ops), partial(_first_sample, source))
        given = placement.given(rank, world_size, mesh)
        by_epoch = epoch_sampler.by_epoch(sampler, seed, lambda: source.indices)
        # A sampler that depends on the epoch is called for epoch 0 now, so that its errors show at once.
        stream = plan_settings.of_stream(
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler if by_epoch is None else by_epoch(0),
            seed=seed,
            drop_last=drop_last,
            order=order,
            on_error=on_error,
            fields=fields,
            ragged=ragged,
        )
        run = plan_settings.of_run(
            num_workers=num_workers, memory_budget=memory_budget, cache=cache, order=order, tuning=tuning
        )
        ranks = tuple(given or placement.found())
        native = _feedline.Plan(source._native, sample_ops(ops), stream, run, ranks)
        self._start(Plan(native, ops, by_epoch), given, framework, wanted_share, check_address(metrics))

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        framework: Literal["numpy", "torch"] = "numpy",
        share: bool | str | os.PathLike[str] | Share = False,
        metrics: str | None = None,
    ) -> Loader:
        """Make a loader of a plan, for example one read from TOML. A plan has no rank: see ``rank`` of the class.

        >>> text = fl.Loader(fl.synthetic(8, (2,)), batch_size=4).plan.to_toml()
        >>> loader = fl.Loader.from_plan(fl.Plan.from_toml(text), framework="numpy")
        """
        loader = cls.__new__(cls)
        given = placement.given(rank, world_size, mesh)
        plan = plan.for_rank(given or placement.found())
        loader._start(plan, given, framework, as_share(share), check_address(metrics))
        return loader

    def _start(
        self, plan: Plan, given: Placement | None, framework: str, share: Share | None, metrics: str | None
    ) -> None:
        one_of("framework", framework, ("numpy", "torch"))
        if framework == "numpy" and plan._native.bfloat16_fields:
            names = ", ".join(plan._native.bfloat16_fields)
            raise PlanError(f'{names}: NumPy has no bfloat16; use framework="torch", or another dtype')
        self._plan, self._given = plan, given
        self._framework: Literal["numpy", "torch"] = "torch" if framework == "torch" else "numpy"
        self._batch = partial(to_batch, converter(self._framework), plan._native.settings.get("fields"))
        self._share = share
        self._native = _with_functions(plan, open_loader(plan._native, share))
        self._is_closed = False
        # Kept until the next iteration begins: if rank or samples change before, _switch loads it again.
        self._loaded_state: dict[str, Any] | None = None
        self._has_begun = False
        self._follows_group = placement.has_process_group()
        self._metrics = None if metrics is None else serve(self._native, metrics)
        close_at_exit(self)

    def _place(self) -> None:
        """Update rank and world size: the process group may have been initialised after the loader was made."""
        if self._given is not None or self._is_closed:
            return
        has_group = placement.has_process_group()
        if self._follows_group and not has_group:
            return  # The group was destroyed: its ranks keep their shares.
        plan = self._plan.for_rank(placement.found())
        self._follows_group = has_group
        if plan is not self._plan:
            self._switch(plan)

    def _sample(self, epoch: int) -> None:
        """Switch to the samples of an epoch, if a sampler chooses new ones for each epoch."""
        plan = self._plan._for_epoch(epoch)
        if plan is not self._plan and not self._is_closed:
            self._switch(plan)

    def _switch(self, plan: Plan) -> None:
        """Continue with another plan, from the same epoch or from the loaded state."""
        # Opened before the old stream is closed. If it fails, the loader stays as it was.
        is_alike = self._share is None and plan._native.rank == self._plan._native.rank
        native = self._native.following(plan._native) if is_alike else open_loader(plan._native, self._share)
        _with_functions(plan, native)
        try:
            if self._loaded_state is not None:
                native.load_state_dict(self._loaded_state)
            else:
                native.set_epoch(self._native.epoch)
        except BaseException:
            native.close()
            raise
        before, address = self._native, self.metrics_address
        if self._metrics is not None:
            self._metrics.close()
        self._plan, self._native = plan, native
        before.close()
        self._metrics = None if address is None else serve(native, address)

    def _begin(self) -> Iteration:
        # Lightning and others initialise the process group after they create their loaders.
        self._place()
        self._sample(self._native.epoch)
        self._loaded_state, self._has_begun = None, True
        return Iteration(self._native, self._batch, self)

    def _place_before_use(self) -> None:
        """Update rank and world size until the first iteration. Later, received batches belong to one rank's stream."""
        if not self._has_begun:
            self._place()

    @property
    def plan(self) -> Plan:
        """What the loader does, without rank and world size; ``plan.to_toml()`` writes it.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4, shuffle=True).plan.indices(epoch=1)
        [...]
        """
        self._place_before_use()
        return self._plan

    @property
    def source(self) -> Source:
        """The source; ``loader.source.classes`` are its class names.

        >>> len(fl.Loader(fl.synthetic(8, (2,)), batch_size=4).source)
        8
        """
        return self._plan.source

    def __len__(self) -> int:
        """Return the number of batches of an epoch, which is the same on every rank."""
        return self.plan._native.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch. Work starts when the first batch is requested."""
        return self._begin()

    def forever(self) -> Generator[Any, None, None]:
        """Return an endless generator of batches, epoch after epoch.

        For trainers that take generators: ``model.fit(loader.forever(), steps_per_epoch=len(loader))`` in Keras, with
        ``fields=("image", "label")``.

        >>> batches = fl.Loader(fl.synthetic(8, (2,)), batch_size=4).forever()
        >>> [len(next(batches)["index"]) for _ in range(3)]
        [4, 4, 4]
        """
        while len(self) > 0:
            yield from self

    def consumers(self, n: int, *, assign: Assign = "first-come") -> list[Consumer]:
        """Begin an epoch for ``n`` consumers, such as one thread per accelerator. Return an iterator for each.

        All take batches from the queue of this loader. ``"first-come"`` gives a batch to the first consumer that asks,
        ``"round-robin"`` takes turns, so that each consumer gets the same batches every time. The state of the loader
        is what all consumers have received together. Call this method again, or iterate the loader, to begin the next
        epoch.

        >>> first, second = fl.Loader(fl.synthetic(8, (2,)), batch_size=4).consumers(2, assign="round-robin")
        >>> next(first)["index"], next(second)["index"]
        (array([0, 1, 2, 3]), array([4, 5, 6, 7]))
        """
        one_of("assign", assign, ("first-come", "round-robin"))
        count = whole("n", n, 1)
        iteration = self._begin()
        shared = Consumers(count, iteration.__next__, iteration.check, iteration.leave, assign)
        return [Consumer(shared, number) for number in range(count)]

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one. If it is not already the next one, prepared work is dropped.

        >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4)
        >>> loader.set_epoch(3)
        >>> loader.epoch
        3
        """
        epoch = whole("epoch", epoch, 0)
        self._place_before_use()
        if epoch != self._native.epoch:
            self._loaded_state = None
        self._native.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration will run.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).epoch
        0
        """
        return self._native.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return what has been received, as a small dict for JSON. Cheap enough to call after every step.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).state_dict()["epoch"]
        0
        """
        state = self._native.state_dict()
        plan = self._plan if self._plan._sampler is None else self._plan._for_epoch(state["epoch"])
        if plan is self._plan:
            return state
        # The epoch has ended, so the state belongs to the next one, which has other samples.
        native = open_loader(plan._native, self._share)
        native.set_epoch(state["epoch"])
        return native.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from a state. ``num_workers`` may differ; in strict order also world_size and batch_size.

        Within an epoch that a reservoir shuffles, the world_size must stay the same.

        >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4)
        >>> first = next(iter(loader))
        >>> resumed = fl.Loader(fl.synthetic(8, (2,)), batch_size=4)
        >>> resumed.load_state_dict(loader.state_dict())
        >>> next(iter(resumed))["index"]
        array([4, 5, 6, 7])
        """
        self._place_before_use()
        if self._plan._sampler is not None and isinstance(state.get("epoch"), int):
            self._sample(state["epoch"])
        self._native.load_state_dict(state)
        self._loaded_state = state

    def snapshot(self) -> Snapshot:
        """Return the counters of the run: time per stage, bytes, queue, memory, stalls by cause, substitutes.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).snapshot()["samples"]
        0
        """
        return self._native.snapshot()

    def report(self) -> Report:
        """Report the bottleneck of the run so far: how long the step waited and for what, anomalies, and remedies.

        The report uses counters that are always on. :func:`feedline.doctor` measures each part alone and is more
        reliable.

        >>> print(fl.Loader(fl.synthetic(8, (2,)), batch_size=4).report())
        No batch is finished yet. A batch counts once the next one is requested.
        """
        return Report(*self._native.report())

    @property
    def metrics_address(self) -> str | None:
        """The address of the ``metrics`` server, such as ``"127.0.0.1:9400"``; ``None`` without one or after closing.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).metrics_address is None
        True
        """
        return None if self._metrics is None else self._metrics.address

    def costs(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the predicted seconds for each sample in the next epoch, in the source's order.

        The prediction uses measured times and the random draws of that epoch. It is zero before any sample was
        prepared.

        >>> fl.Loader(fl.synthetic(3, (2,)), batch_size=1).costs()
        array([0., 0., 0.])
        """
        return np.array(self._native.costs())

    def save_costs(self, path: str | os.PathLike[str]) -> None:
        """Write the measured costs of samples to a file, for ``order=fl.planned(costs=path)`` on any machine.

        >>> loader.save_costs("train.costs")
        """
        self._native.save_costs(os.path.expanduser(os.fspath(path)))

    def order_report(self, epoch: int | None = None) -> OrderReport | None:
        """Report how far the order of delivery moves samples in an epoch, and how many slow samples a batch has.

        In planned order ``epoch`` is any epoch, by default the next one. In arrival order it is the current epoch or
        the last one. Strict order moves nothing and returns ``None``.

        >>> loader = fl.Loader(fl.synthetic(8, (2,)), batch_size=4, order=fl.planned())
        >>> loader.order_report()["samples"]
        8
        """
        return self._native.order_report(None if epoch is None else whole("epoch", epoch, 0))

    def reopen(self) -> Loader:
        """Return a loader with the same settings over the source as it is on disk now. For data that grows.

        It starts at the epoch of this loader. If this loader serves ``metrics``, the new one takes over the address.

        >>> larger = fl.Loader(fl.synthetic(8, (2,)), batch_size=4).reopen()
        """
        loader = _restored(self._plan._reopened(), self._given, self._framework, self._share, None)
        loader.set_epoch(self.epoch)
        address = self.metrics_address
        if self._metrics is not None and address is not None:
            self._metrics.close()
            loader._metrics = serve(loader._native, address)
        return loader

    def __repr__(self) -> str:
        """Show source, ops, size and the next epoch in one line."""
        closed = ", closed" if self._is_closed else ""
        return f"<feedline.Loader {self.plan._summary()}, epoch {self._epoch_text()}{closed}>"

    def _epoch_text(self) -> str:
        try:
            return str(self.epoch)
        except ForkError:
            return "of the parent process"

    def _facts(self) -> Facts:
        facts = self.plan._facts() | {"epoch": self._epoch_text(), "framework": self._framework}
        return facts | ({"metrics": self.metrics_address} if self.metrics_address is not None else {})

    def __str__(self) -> str:
        """Show the repr, with a hint for trainers that reject the loader and print it in their error."""
        return f"{self!r} (trainers that take generators, such as Keras: loader.forever(), len(loader) steps an epoch)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plan, state and a rank that was given. The unpickling process opens the source itself.

        ``metrics`` are not served by the copy: two processes cannot listen at one address.
        """
        return _restored, (self._plan, self._given, self._framework, self._share, self.state_dict())

    def __deepcopy__(self, memo: dict[int, Any]) -> Loader:
        """Return a loader over the same source that continues from the same state."""
        return _restored(self._plan, self._given, self._framework, self._share, self.state_dict())

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error that names the replacement for an attribute of torch's DataLoader."""
        raise missing_attribute(name)

    def close(self) -> None:
        """End all threads and free the engine's memory within a second. ``with``, ``del`` and exit do the same.

        >>> with fl.Loader(fl.synthetic(8, (2,)), batch_size=4) as loader:
        ...     batches = len(list(loader))
        >>> loader.is_closed
        True
        """
        if self._metrics is not None:
            self._metrics.close()
        self._native.close()
        self._is_closed = True

    @property
    def is_closed(self) -> bool:
        """Whether the loader was closed. A closed loader delivers no more batches.

        >>> fl.Loader(fl.synthetic(8, (2,)), batch_size=4).is_closed
        False
        """
        return self._is_closed

    def __enter__(self) -> Loader:
        """Return the loader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the loader."""
        self.close()


def _restored(
    plan: Plan, placement: Placement | None, framework: Literal["numpy", "torch"], share: Share | None, state: Any
) -> Loader:
    """Return a loader for a plan, at a state if one is given."""
    rank, world_size = (None, None) if placement is None else placement
    loader = Loader.from_plan(plan, rank=rank, world_size=world_size, framework=framework, share=share or False)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def _with_functions(plan: Plan, native: _feedline.Loader) -> _feedline.Loader:
    """Let the batches of a native loader go through the plan's functions on batches."""
    functions = plan._batch_functions
    if functions:
        native.map_batches(functions)
    return native


def _first_sample(source: Source, ops: Sequence[Op]) -> dict[str, Any]:
    """Prepare the first sample, as a batch. A bad sample has no fields."""
    loader = Loader(source, ops, batch_size=1, num_workers=1, rank=0, world_size=1)
    try:
        batch: dict[str, Any] = next(iter(loader), {})
    except SampleError:
        batch = {}
    finally:
        loader.close()
    return batch
