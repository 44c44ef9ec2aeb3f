"""The loader: an iterable of batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy as np

from feedline import _feedline, environment, placement
from feedline import sampler as samplers
from feedline.arguments import names, one_of, short, truth, whole
from feedline.consumers import Assign, Consumer, Consumers
from feedline.diagnosis import Report
from feedline.errors import PlanError
from feedline.exit import close_at_exit
from feedline.foreign import missing_attribute, refuse_keywords
from feedline.iteration import Iteration
from feedline.metrics import check_address, serve
from feedline.ops import Op
from feedline.placement import Placement
from feedline.plan import Plan
from feedline.policy import Cache, Skip
from feedline.sharing import Share, as_share, open_loader
from feedline.shuffle import Reservoir
from feedline.shuffle import to_plan as _shuffle
from feedline.source import Source

Batch = dict[str, Any] | tuple[Any, ...]


class Loader:
    """Batches of prepared samples, in an order that depends on nothing but the plan and the seed.

    >>> loader = fl.Loader(fl.folder("data/train"), [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.Normalize()],
    ...                    batch_size=64, shuffle=True)

    Iterating gives one epoch; iterating again, also after a ``break``, gives the next. Arrays of a batch are yours:
    writable, and unchanged by whatever the loader does next.

    Args:
        source: where samples come from: ``fl.folder``, ``fl.files``, ``fl.array``, ``fl.volumes``, ``fl.synthetic``.
        ops: what is done to each sample, in order.
        batch_size: samples per batch.
        shuffle: a new random order each epoch, without memory for any number of samples; or ``fl.reservoir(size)``,
            which reads shards in sequence and draws from what was read.
        sampler: a sequence of ids instead: a list, ``fl.weighted(...)`` or ``fl.class_balanced()``.
        seed: all randomness follows from it.
        num_workers: preparer threads (not processes); ``"auto"`` begins with one per core, divided between the ranks on
            this machine and the loaders that iterate in this process, takes more while these wait for storage, and
            ends idle ones.
        drop_last: drop what does not fill a batch on every rank. Without it the last batch may be short, and ranks are
            evened out by repeats marked in ``batch["padded"]``.
        order: ``None`` or ``"strict"``: the sampler's order, whatever runs when. ``"planned"``: slow samples come
            later, by a simulation that gives the same order on every machine. ``"arrival"``: what is ready first comes
            first; no two runs are alike, but each sample comes once and a resume gives precisely those that are left.
        max_displacement: in planned and arrival order, how many places a sample may come later; 16 batches by default.
        costs: in planned order, a file of measured costs (see :meth:`save_costs`); by default bytes and draws decide.
        arrival_log: in arrival order, a file that keeps which samples each batch had. A resumed run goes on with it.
        replay: in arrival order, such a file: the stream that it tells of is given again.
        rank: this process among ``world_size``, which divide each epoch. Without them, both come from the process group
            of ``torch.distributed`` or ``jax.distributed`` if there is one when iteration starts, else from the
            environment of torchrun, a SLURM job step or MPI, with a warning. ``rank=0, world_size=1`` divides nothing.
        world_size: see ``rank``.
        mesh: instead of these, a torch ``DeviceMesh`` of one dimension, or ``(mesh, "dp")`` with the name of the
            data-parallel dimension (or a tuple of names): ranks that differ in other dimensions get the same data.
        prefetch_batches: batches prepared ahead; by default as many as are useful and memory allows.
        memory_budget: bytes in flight, a number or a text such as ``"512MB"``; by default an eighth of the memory, at
            most 2 GB, divided between the ranks on this machine and the loaders that iterate in this process. Samples
            larger than it run alone.
        on_error: ``"raise"``, or ``fl.skip(max_fraction)`` to replace bad samples.
        framework: ``"numpy"`` or ``"torch"`` (tensors over the same memory).
        returns: names of the fields to deliver, as tuples in this order; by default a dict of all. ``"key"`` is the
            sample's name.
        ragged: fields to deliver as lists of arrays, each with its own shape.
        seek_index: ``"auto"`` uses seek indexes of pictures that are decoded and cropped, and makes in the first epoch
            those that are missing; ``"never"`` does neither. Pixels are the same.
        offload: what a storage server prepares of samples that come from one (``feedline://...``): ``"auto"`` decides
            for each sample what saves most bytes for the server's work, while the link is the bottleneck; ``"none"``
            sends stored bytes; ``"all"``, ``"resize"``, ``"fastflow"`` and ``"sophon"`` are policies of others, to
            compare. The stream is the same.
        cache: ``fl.cache(ram=..., disk=...)`` keeps samples as they are before the first random op.
        start: ``"least-slack"`` starts slow samples early, so that none holds up the others; ``"first-come"`` starts
            them in their order. The stream is the same.
        share: ``True``, the path of a node's socket, or ``fl.share(...)``: samples come from the node of this machine,
            which prepares them once for all jobs with the same source, ops and fields, whatever their speed, start and
            batch size. Each job sees each sample once an epoch, in an order that is not known beforehand.
        metrics: an address such as ``"127.0.0.1:9400"`` at which ``/metrics`` (for Prometheus), ``/stats`` (the
            snapshot as JSON) and ``/health`` are served until the loader is closed; port 0 takes any that is free.
            ``None`` serves nothing. Each rank needs a port of its own.
    """

    def __init__(
        self,
        source: Source,
        ops: Sequence[Op] = (),
        *,
        batch_size: int,
        shuffle: bool | Reservoir = False,
        sampler: samplers.Sampler | None = None,
        seed: int = 0,
        num_workers: int | Literal["auto"] = "auto",
        drop_last: bool = False,
        order: Literal["strict", "planned", "arrival"] | None = None,
        max_displacement: int | None = None,
        costs: str | os.PathLike[str] | None = None,
        arrival_log: str | os.PathLike[str] | None = None,
        replay: str | os.PathLike[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch_batches: int | None = None,
        memory_budget: int | str | None = None,
        on_error: Literal["raise"] | Skip = "raise",
        framework: Literal["numpy", "torch"] = "numpy",
        returns: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
        seek_index: Literal["auto", "never"] = "auto",
        offload: Literal["auto", "none", "all", "resize", "fastflow", "sophon"] = "auto",
        cache: Cache | None = None,
        start: Literal["least-slack", "first-come"] = "least-slack",
        share: bool | str | os.PathLike[str] | Share = False,
        metrics: str | None = None,
        mesh: Any = None,
        **unknown: NoReturn,
    ) -> None:
        """Check everything at once; read and start nothing before the first batch is asked for."""
        refuse_keywords(unknown)
        if not isinstance(source, Source):
            makers = "fl.folder, fl.files, fl.array, fl.volumes or fl.synthetic"
            raise PlanError(f"source is {type(source).__name__}; it is made by {makers}")
        if not isinstance(ops, Sequence):
            raise PlanError(
                f"ops is {short(ops)}; it is a list of ops, e.g. [ops.DecodeImage(), ops.Resize((224, 224))]"
            )
        wrong = [op for op in ops if not isinstance(op, Op)]
        if wrong:
            raise PlanError(f"ops has {short(wrong[0])}; it takes ops of feedline.ops, functions go into ops.Map(fn)")
        one_of("order", order, (None, "strict", "planned", "arrival"))
        if num_workers != "auto":
            num_workers = whole("num_workers", num_workers, 1, 'or "auto"')
        if on_error != "raise" and not isinstance(on_error, Skip):
            raise PlanError(f'on_error is {short(on_error)}; it is "raise" or fl.skip(max_fraction)')
        given = placement.given(rank, world_size, mesh)
        settings: dict[str, Any] = {
            "batch_size": whole("batch_size", batch_size, 1),
            "shuffle": _shuffle(shuffle),
            "seed": whole("seed", seed, 0),
            "drop_last": truth("drop_last", drop_last),
            "on_error": {"max_fraction": on_error.max_fraction} if isinstance(on_error, Skip) else "raise",
            "ragged": names("ragged", ragged),
        }
        if order is not None:
            settings["order"] = order
        if max_displacement is not None:
            settings["max_displacement"] = whole("max_displacement", max_displacement, 0)
        if costs is not None:
            settings["costs"] = os.path.expanduser(os.fspath(costs))
        if replay is not None:
            settings["replay"] = os.path.expanduser(os.fspath(replay))
        if sampler is not None:
            settings["sampler"] = samplers.to_plan(sampler)
        if returns is not None:
            settings["returns"] = names("returns", returns)
        config: dict[str, Any] = {"num_workers": num_workers}
        one_of("seek_index", seek_index, ("auto", "never"))
        if seek_index != "auto":
            config["seek_index"] = seek_index
        one_of("offload", offload, ("auto", "none", "all", "resize", "fastflow", "sophon"))
        if offload != "auto":
            config["offload"] = offload
        one_of("start", start, ("least-slack", "first-come"))
        if arrival_log is not None:
            config["arrival_log"] = os.path.expanduser(os.fspath(arrival_log))
        if start != "least-slack":
            config["start"] = start
        if cache is not None:
            if not isinstance(cache, Cache):
                raise PlanError(f'cache is {short(cache)}; it is made by fl.cache(ram="4GB")')
            if cache.disk is not None and environment.cache_folder() is None:
                raise PlanError("cache(disk=...) keeps samples in the cache folder, but FEEDLINE_CACHE is empty")
            config["cache"] = {name: value for name, value in vars(cache).items() if value is not None}
        if prefetch_batches is not None:
            config["prefetch_batches"] = whole("prefetch_batches", prefetch_batches, 1)
        if memory_budget is not None:
            is_text = isinstance(memory_budget, str)
            config["memory_budget"] = (
                memory_budget if is_text else whole("memory_budget", memory_budget, 1, 'or a text such as "512MB"')
            )
        ranks = tuple(given or placement.found())
        native = _feedline.Plan(source._native, [op._to_native() for op in ops], settings, config, ranks)
        self._start(Plan(native, ops), given, framework, as_share(share), check_address(metrics))

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
        """Make a loader of a plan, for example one read from TOML. A plan has no rank: see ``rank`` of the class."""
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
            raise PlanError(f'{names}: NumPy has no bfloat16; take framework="torch", or another dtype')
        self._plan, self._given = plan, given
        self._framework: Literal["numpy", "torch"] = "torch" if framework == "torch" else "numpy"
        self._batch = partial(_batch, _converter(self._framework), plan._native.settings.get("returns"))
        self._share = share
        self._native = open_loader(plan._native, share)
        self._is_closed = False
        self._loaded: dict[str, Any] | None = None
        self._has_begun = False
        self._follows_group = placement.has_process_group()
        self._metrics = None if metrics is None else serve(self._native, metrics)
        close_at_exit(self)

    def _place(self) -> None:
        """Follow the process group: it may have been initialised after the loader was made."""
        if self._given is not None or self._is_closed:
            return
        has_group = placement.has_process_group()
        if self._follows_group and not has_group:
            return  # The group was destroyed: its ranks keep their shares.
        plan = self._plan.for_rank(placement.found())
        self._follows_group = has_group
        if plan is self._plan:
            return
        native = open_loader(plan._native, self._share)
        try:
            if self._loaded is not None:
                native.load_state_dict(self._loaded)
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
        self._place()
        self._loaded, self._has_begun = None, True
        return Iteration(self._native, self._batch, self)

    def _place_before_use(self) -> None:
        """Follow the process group as long as no batch was asked for: what was received belongs to a stream."""
        if not self._has_begun:
            self._place()

    @property
    def plan(self) -> Plan:
        """What the loader does, without rank and world size; ``plan.to_toml()`` writes it."""
        self._place_before_use()
        return self._plan

    @property
    def source(self) -> Source:
        """The source; ``loader.source.classes`` are its class names."""
        return self._plan.source

    def __len__(self) -> int:
        """Give the number of batches of an epoch, the same on every rank."""
        return self.plan._native.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch. Cheap: work starts when the first batch is asked for."""
        return self._begin()

    def forever(self) -> Generator[Any, None, None]:
        """Give batches epoch after epoch without end, as a generator.

        For trainers that take generators: ``model.fit(loader.forever(), steps_per_epoch=len(loader))`` in Keras, with
        ``returns=("image", "label")``.
        """
        while len(self) > 0:
            yield from self

    def consumers(self, n: int, *, assign: Assign = "first-come") -> list[Consumer]:
        """Begin an epoch for ``n`` consumers, such as a thread per accelerator: give an iterator for each.

        All are fed from this loader's one queue. ``"first-come"`` gives a batch to whoever asks first,
        ``"round-robin"`` in turn, so that each gets the same batches every time. The state of the loader is what all
        have received together. The next epoch begins when this is called, or the loader iterated, again.
        """
        one_of("assign", assign, ("first-come", "round-robin"))
        count = whole("n", n, 1)
        iteration = self._begin()
        shared = Consumers(count, iteration.__next__, iteration.check, iteration.leave, assign)
        return [Consumer(shared, number) for number in range(count)]

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next to run. Nothing changes if it would come anyway; else prepared work is dropped."""
        epoch = whole("epoch", epoch, 0)
        self._place_before_use()
        if epoch != self._native.epoch:
            self._loaded = None
        self._native.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration will run."""
        return self._native.epoch

    def state_dict(self) -> dict[str, Any]:
        """Say what has been received, as small JSON-able data; cheap enough for every step."""
        return self._native.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, exactly; with any num_workers, in strict order also another world_size or batch_size.

        Within an epoch that is shuffled through a reservoir the world_size has to stay.
        """
        self._place_before_use()
        self._native.load_state_dict(state)
        self._loaded = state

    def snapshot(self) -> dict[str, Any]:
        """Give the run in numbers: time per stage, bytes, queue, memory, stalls by cause, cost errors, substitutes."""
        return self._native.snapshot()

    def report(self) -> Report:
        """Say what bounded the run so far: how long the step waited, for what, what is odd, and what would help.

        From what is always counted; :func:`feedline.doctor` measures each part alone and is surer.
        """
        return Report(*self._native.report())

    @property
    def metrics_address(self) -> str | None:
        """Where ``metrics`` are served, as ``"127.0.0.1:9400"``; ``None`` if they are not, and once it is closed."""
        return None if self._metrics is None else self._metrics.address

    def costs(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Give what each sample will take in the epoch that comes next, in seconds, in the source's order.

        Learnt from what samples took before, with the draws of that epoch; zero before anything was prepared.
        """
        return np.array(self._native.costs())

    def save_costs(self, path: str | os.PathLike[str]) -> None:
        """Write what samples cost, for ``Loader(..., order="planned", costs=path)`` on any machine."""
        self._native.save_costs(os.path.expanduser(os.fspath(path)))

    def order_report(self, epoch: int | None = None) -> dict[str, Any] | None:
        """Say what the order of delivery does to an epoch: how far samples are moved, how many slow ones a batch has.

        In planned order any epoch can be asked for, by default the one that comes next; in arrival order it is the one
        that is under way, or the last. ``None`` in strict order, which moves nothing.
        """
        return self._native.order_report(None if epoch is None else whole("epoch", epoch, 0))

    def refreshed(self) -> Loader:
        """Give a loader like this one over the source as it is now, for growing data; it starts at this one's epoch.

        Where this one serves ``metrics``, the new one does so from now on.
        """
        plan = Plan(self._plan._native.refreshed(), self._plan._ops)
        loader = _restored(plan, self._given, self._framework, self._share, None)
        loader.set_epoch(self.epoch)
        address = self.metrics_address
        if self._metrics is not None and address is not None:
            self._metrics.close()
            loader._metrics = serve(loader._native, address)
        return loader

    def __repr__(self) -> str:
        """Show the source, the ops and the size of an epoch."""
        names = ", ".join(self.plan.ops)
        return f"<feedline.Loader of {len(self)} batches over {self.source!r}: {names or 'no ops'}>"

    def __str__(self) -> str:
        """Show the same, and how to pass it on: trainers that take only what they know print this in their error."""
        return f"{self!r} (trainers that take generators, such as Keras: loader.forever(), len(loader) steps an epoch)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plan and state: the process that unpickles opens the source itself, and goes on for its own rank.

        ``metrics`` are not served by the copy: two processes cannot listen at one address.
        """
        return _restored, (self._plan, self._given, self._framework, self._share, self.state_dict())

    def __deepcopy__(self, memo: dict[int, Any]) -> Loader:
        """Give a loader over the same source that goes on from the same state."""
        return _restored(self._plan, self._given, self._framework, self._share, self.state_dict())

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of an attribute of torch's DataLoader."""
        raise missing_attribute(name)

    def close(self) -> None:
        """End all threads and free all memory, within a second. Also done by ``with``, ``del`` and at exit."""
        if self._metrics is not None:
            self._metrics.close()
        self._native.close()
        self._is_closed = True

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, and gives no more batches."""
        return self._is_closed

    def __enter__(self) -> Loader:
        """Give the loader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _batch(
    convert: Callable[[_feedline.Array], Any], returns: list[str] | None, fields: list[tuple[str, Any]]
) -> Batch:
    batch = {
        name: [value if isinstance(value, str) else convert(value) for value in data]
        if isinstance(data, list)
        else convert(data)
        for name, data in fields
    }
    return batch if returns is None else tuple(batch[name] for name in returns)


def _converter(framework: Literal["numpy", "torch"]) -> Callable[[_feedline.Array], Any]:
    if framework == "torch":
        from feedline.torch import to_tensor

        return to_tensor
    return np.asarray


def _restored(
    plan: Plan, placement: Placement | None, framework: Literal["numpy", "torch"], share: Share | None, state: Any
) -> Loader:
    """Give the loader that was pickled, where it stood."""
    rank, world_size = (None, None) if placement is None else placement
    loader = Loader.from_plan(plan, rank=rank, world_size=world_size, framework=framework, share=share or False)
    if state is not None:
        loader.load_state_dict(state)
    return loader
