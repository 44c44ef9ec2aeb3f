"""Feedline's loaders in ``model.fit`` of Keras 3, with exact resume in mid-epoch.

In: a ``fl.Loader`` or a ``feedline.torch.DataLoader``. Out: a dataset for ``fit``, ``evaluate`` and ``predict``, and a
callback that saves and restores the weights together with the place in the epoch.

Keras may take a batch before it trains, to learn the shapes, and on accelerators it takes one batch ahead. So a
checkpoint has the place after the last batch that was trained on, not after the last one that Keras took.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import keras  # type: ignore[import-untyped]

from feedline.arguments import short, whole
from feedline.errors import PlanError

_POINTER = "checkpoint.json"
"""Names the weights of the last complete checkpoint. It is replaced at once, so weights and place always agree."""


class PyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """A dataset for Keras. Its batches come from a loader, in the loader's order.

    ``fit`` finds the number of steps itself, and each epoch of ``fit`` is one epoch of the loader. Batches must be
    tuples ``(inputs, targets)`` or ``(inputs, targets, sample_weights)``. A ``fl.Loader`` gives such tuples with
    ``fields=("image", "label")``.

    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.rand(8, 3), torch.arange(8) % 2)
    >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(data, batch_size=4, shuffle=True))
    >>> len(train), len(list(train))
    (2, 2)
    """

    def __init__(self, loader: Any) -> None:
        """Nothing is read yet."""
        # Keras then calls this dataset from one thread, in order. The loader has workers of its own.
        super().__init__(workers=1, use_multiprocessing=False)
        self.loader = loader
        self._batches: Iterator[Any] | None = None
        self._left: int | None = 0
        self._is_in_epoch, self._is_prepared = False, True
        self._given, self._was_asked = 0, False
        self._first: tuple[Any, Any] | None = None
        self._again: tuple[Any, Any] | None = None
        self._states: deque[Any] | None = None

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.loader)

    @property
    def num_batches(self) -> int | None:
        """The number of batches that Keras is to expect. ``None`` if the dataset has no length.

        >>> feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4)).num_batches
        2
        """
        if self._is_in_epoch and self._given == 0:
            # Keras's generator asks before its first batch. An epoch that was resumed has fewer batches.
            if not self._is_prepared:
                self._begin_pass()
            return self._left if self._left is None else self._left + (self._again is not None)
        self._was_asked = True
        return self._length()

    def __getitem__(self, index: int) -> Any:
        """Return the next batch, whatever ``index`` is: the order is the loader's."""
        if self._again is not None:
            (batch, state), self._again = self._again, None
        else:
            batch, state = self._next()
        self._given, self._was_asked = self._given + 1, False
        self._first = (batch, state) if self._given == 1 else None
        if self._states is not None:
            self._states.append(state)
        return batch

    def on_epoch_begin(self) -> None:
        """Note that an epoch of Keras begins. Only Keras calls this.

        >>> feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4)).on_epoch_begin()
        """
        self._is_in_epoch, self._is_prepared = True, False
        self._given, self._was_asked = 0, False

    def on_epoch_end(self) -> None:
        """Note that an epoch of Keras has ended. Only Keras calls this.

        >>> feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4)).on_epoch_end()
        """
        # Keras takes a batch to learn the shapes, then asks for the number of batches, and begins anew. That batch has
        # to come again.
        if self._given == 1 and self._was_asked and self._batches is not None:
            self._again = self._first
            if self._states:
                self._states.pop()
        self._is_in_epoch, self._first = False, None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the loader.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=4, seed=0)
        >>> feedline.keras.PyDataset(loader).load_state_dict(loader.state_dict())
        """
        self._batches = self._again = None
        if self._states is not None:
            self._states.clear()
        self.loader.load_state_dict(state)

    def _length(self) -> int | None:
        try:
            return len(self)
        except TypeError:
            return None

    def _begin_pass(self) -> None:
        """Begin an epoch of the loader, unless a batch that Keras only looked at has begun it."""
        self._is_prepared = True
        if self._again is not None:
            return
        self._batches = iter(self.loader)
        length = self._length()
        self._left = None if length is None else length - int(self.loader.state_dict()["batches"])

    def _next(self) -> tuple[Any, Any]:
        """Return a batch of the loader, and the loader's state after it."""
        for _ in range(2):
            if self._batches is None:
                self._begin_pass()
            assert self._batches is not None, "an epoch was begun"
            try:
                batch = next(self._batches)
            except StopIteration:
                # Without a length, Keras says how many batches an epoch of its own has.
                self._batches = None
                continue
            if self._left is not None:
                self._left -= 1
            if self._left == 0:
                # Workers that are not persistent end here, and not when the next epoch begins.
                next(self._batches, None)
                self._batches = None
            return batch, self.loader.state_dict()
        raise IndexError("the loader has no batches")

    def _follow(self) -> deque[Any]:
        """Keep the loader's state after each batch from now on, until someone takes it out."""
        if self._states is None:
            self._states = deque()
        return self._states


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights, optimizer and the place in the epoch, and continues from there when ``fit`` begins.

    A job that was killed goes on with the next batch, if it is started again with the same folder:

    >>> from torch.utils.data import TensorDataset
    >>> import keras
    >>> data = TensorDataset(torch.rand(8, 3), torch.arange(8) % 2)
    >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(data, batch_size=4, shuffle=True, seed=0))
    >>> model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> checkpoint = feedline.keras.Checkpoint("keras-checkpoint", train, every=1)
    >>> history = model.fit(train, epochs=2, initial_epoch=checkpoint.epoch, callbacks=[checkpoint], verbose=0)
    >>> feedline.keras.Checkpoint("keras-checkpoint", train).epoch
    2
    """

    def __init__(
        self, folder: str | os.PathLike[str], dataset: PyDataset, *, every: int | Literal["epoch"] = "epoch"
    ) -> None:
        """Save to ``folder`` after ``every`` batches, or at the end of each epoch."""
        super().__init__()
        if not isinstance(dataset, PyDataset):
            raise PlanError(f"dataset is {short(dataset)}; it must be a feedline.keras.PyDataset")
        self._every = None if every == "epoch" else whole("every", every, 1)
        self._folder, self._dataset = Path(folder), dataset
        self._trained: deque[Any] = dataset._follow()
        self._state: Any = None
        self._epoch = self._last_batch = self._since = 0

    @property
    def epoch(self) -> int:
        """The epoch with which training continues, for ``fit(initial_epoch=...)``. 0 without a checkpoint.

        >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4))
        >>> feedline.keras.Checkpoint("no such folder", train).epoch
        0
        """
        saved = self._saved()
        return 0 if saved is None else int(saved["epoch"])

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the last checkpoint, if there is one. Only Keras calls this.

        >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4))
        >>> feedline.keras.Checkpoint("no such folder", train).on_train_begin()
        """
        self._trained.clear()
        saved = self._saved()
        if saved is None:
            return
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(self._folder / saved["weights"])
        self._dataset.load_state_dict(saved["loader"])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the number of the epoch. Only Keras calls this.

        >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4))
        >>> feedline.keras.Checkpoint("no such folder", train).on_epoch_begin(0)
        """
        self._epoch, self._last_batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count batches, and save if it is time. Only Keras calls this.

        >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4))
        >>> checkpoint = feedline.keras.Checkpoint("no such folder", train)
        >>> batches = iter(train)
        >>> first = next(batches)
        >>> checkpoint.on_train_batch_end(0)
        """
        # With `steps_per_execution` one call stands for several batches, and the last call may name too many.
        count = min(batch - self._last_batch, len(self._trained))
        for _ in range(count):
            self._state = self._trained.popleft()
        self._last_batch, self._since = batch, self._since + count
        if self._every is not None and self._since >= self._every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, with ``every="epoch"``. Only Keras calls this.

        >>> train = feedline.keras.PyDataset(feedline.torch.DataLoader(range(8), batch_size=4))
        >>> feedline.keras.Checkpoint("no such folder", train, every=8).on_epoch_end(0)
        """
        if self._every is None and self._state is not None:
            self._save(epoch)

    def _saved(self) -> Any:
        try:
            return json.loads((self._folder / _POINTER).read_text())
        except FileNotFoundError:
            return None

    def _save(self, epoch: int) -> None:
        self._since = 0
        # Between epochs a loader's state is that of the next one.
        is_complete = self._state["batches"] == 0
        weights = self._folder / f"epoch-{self._state['epoch']}-batch-{self._state['batches']}.weights.h5"
        self._folder.mkdir(parents=True, exist_ok=True)
        # A file of this name may be that of the checkpoint before, which stays valid until the pointer is replaced.
        part = weights.with_name(f"new-{weights.name}")
        self.model.save_weights(part)
        part.replace(weights)
        saved = {"weights": weights.name, "epoch": epoch + is_complete, "loader": self._state}
        pointer = self._folder / f"new-{_POINTER}"
        pointer.write_text(json.dumps(saved))
        pointer.replace(self._folder / _POINTER)
        for old in self._folder.glob("*.weights.h5"):
            if old != weights:
                old.unlink()
