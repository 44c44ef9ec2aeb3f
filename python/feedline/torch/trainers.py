"""Feedline's DataLoader in trainers that rebuild every loader: Accelerate and the Hugging Face Trainer.

Both make a new loader of torch's own class out of the one they get, so the engine would be lost. The functions here let
them do that, and then put a Feedline loader with the same batches in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

from torch.utils.data import BatchSampler, IterableDataset
from torch.utils.data import DataLoader as TorchDataLoader

from feedline.torch.loader import DataLoader

OWN_ARGUMENTS = [
    name
    for name in inspect.signature(DataLoader.__init__).parameters
    if name not in {*inspect.signature(TorchDataLoader.__init__).parameters, "rank", "world_size"}
]
"""The arguments of Feedline's class that torch's does not have. The sampler of a loader has its rank already."""
WORKER_ARGUMENTS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "persistent_workers",
    "prefetch_factor",
    "in_order",
)


def prepare(accelerator: Any, loader: DataLoader[Any]) -> Any:
    """Prepare a loader for Accelerate, as ``accelerator.prepare(loader)`` does, on Feedline's engine.

    Processes, devices, ``even_batches`` and gradient accumulation are Accelerate's. The samples come from Feedline's
    workers, and ``accelerator.save_state`` includes the place in the epoch, if the prepared loader is registered with
    ``accelerator.register_for_checkpointing``.

    >>> import accelerate
    >>> accelerator = accelerate.Accelerator(cpu=True)
    >>> loader = feedline.torch.prepare(accelerator, feedline.torch.DataLoader(range(8), batch_size=4))
    >>> [len(batch) for batch in loader]
    [4, 4]
    """
    prepared = accelerator.prepare_data_loader(loader)
    base = _like(prepared.base_dataloader, loader)
    prepared.base_dataloader = base
    prepared.dl_state_dict = base.state_dict()
    prepared.set_epoch = _setting_epoch(prepared.set_epoch, base)
    return prepared


def skip_first_batches(loader: Any, num_batches: int = 0) -> Any:
    """Skip batches of the next epoch, as Accelerate's function of this name does. Nothing is made for them.

    >>> loader = feedline.torch.skip_first_batches(feedline.torch.DataLoader(range(8), batch_size=2), 1)
    >>> len(list(loader))
    3
    """
    base = getattr(loader, "base_dataloader", loader)
    if not isinstance(base, DataLoader):
        import accelerate  # type: ignore[import-untyped]

        return accelerate.skip_first_batches(loader, num_batches)
    base._skip(num_batches)
    return loader


class TrainerMixin:
    """Makes the loaders of a Hugging Face ``Trainer`` run on Feedline's engine. Its own resume works, too.

    >>> import transformers
    >>> class Trainer(feedline.torch.TrainerMixin, transformers.Trainer):
    ...     pass
    """

    feedline_options: ClassVar[dict[str, Any]] = {}
    """Arguments for :class:`feedline.torch.DataLoader`, such as ``{"native": False}``."""

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train as ``Trainer.train`` does. A resumed epoch continues without making batches again."""
        from transformers import trainer

        with mock.patch.object(trainer, "skip_first_batches", skip_first_batches):
            return super().train(*arguments, **options)  # type: ignore[misc]

    def _get_dataloader(self, *arguments: Any, **options: Any) -> Any:
        """Make a loader as ``Trainer`` does, with Feedline's class."""
        from transformers import trainer

        made = {"seed": self.args.seed} | self.feedline_options  # type: ignore[attr-defined]

        def make(dataset: Any, **parameters: Any) -> DataLoader[Any]:
            return DataLoader(dataset, **(parameters | made))

        accelerator: Any = self.accelerator  # type: ignore[attr-defined]
        with (
            mock.patch.object(trainer, "DataLoader", make),
            mock.patch.object(accelerator, "prepare", lambda loader: prepare(accelerator, loader)),
        ):
            return super()._get_dataloader(*arguments, **options)  # type: ignore[misc]


def _like(base: Any, loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader with the dataset and the batches of ``base``, and the other arguments of ``loader``."""
    made = rebuilt(base, {name: getattr(loader, name) for name in (*WORKER_ARGUMENTS, *OWN_ARGUMENTS)})
    made._shared.drawn_seed = loader._shared.drawn_seed
    return made


def rebuilt(base: Any, options: dict[str, Any]) -> DataLoader[Any]:
    """Return a loader with the dataset and the batches of a loader of torch, and further arguments."""
    options = dict(options)
    if options["num_workers"] == 0:
        options["prefetch_factor"] = None
    batches = base.batch_sampler
    if isinstance(base.dataset, IterableDataset) or batches is None:
        sampler = None if isinstance(base.dataset, IterableDataset) else base.sampler
        options |= {"batch_size": base.batch_size, "sampler": sampler, "drop_last": base.drop_last}
    elif type(batches) is BatchSampler:
        # With its parts the loader knows that all batches are alike.
        options |= {"batch_size": batches.batch_size, "sampler": batches.sampler, "drop_last": batches.drop_last}
    else:
        options["batch_sampler"] = batches
    return DataLoader(base.dataset, **options)


def _setting_epoch(set_epoch: Callable[[int], None], base: DataLoader[Any]) -> Callable[[int], None]:
    """Return a function that also tells the loader behind a prepared one."""

    def set_both(epoch: int) -> None:
        set_epoch(epoch)
        base.set_epoch(epoch)

    return set_both
