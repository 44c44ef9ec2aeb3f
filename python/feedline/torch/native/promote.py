"""Turns a dataset of torch into a source and ops of Feedline, so that no Python code runs for a sample.

In: a dataset. Out: a :class:`Promotion`, or a :class:`Refusal` that says why the dataset needs Python. Always true:
sample ``i`` of a promotion has the label, shapes, dtypes and order of fields of ``dataset[i]``. Pixels are within 1/255
of torchvision's; random transforms draw from the same distributions, with Feedline's generator.

No file is opened here, and no dataset raises.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline import ops, source
from feedline.ops import Op
from feedline.source import Source
from feedline.torch.native.dataset_state import DatasetState
from feedline.torch.native.promotable import Indices, Pictures, RefusedError, Rows, samples_of

_PIXELS_WITHOUT_LIMIT = 2**62


@dataclass(frozen=True)
class Refusal:
    """Why a dataset cannot run natively.

    Attributes:
        reason: one sentence, without a capital letter and a full stop, for ``f"not native: {reason}"``.
    """

    reason: str


@dataclass(frozen=True)
class Promotion:
    """A source and ops that give the samples of a dataset.

    Attributes:
        source: the samples.
        ops: the ops of the loader.
        fields: the fields of a sample, in the order of the sample's tuple. Give them to ``fl.Loader(fields=...)``.
        indices: the index in ``source`` of each sample of the dataset; ``None`` if both are the same.
    """

    source: Source
    ops: list[Op]
    fields: tuple[str, ...]
    indices: Indices | None
    _state: DatasetState

    def __len__(self) -> int:
        """Return the number of samples, which is that of the dataset."""
        return len(self.source)

    def source_indices(self, indices: Iterable[int]) -> list[int]:
        """Turn indices of the dataset into indices of the source, for ``fl.Loader(sampler=...)``.

        Negative indices count from the end, as the dataset takes them. Raises ``IndexError`` beyond the ends.
        """
        numbers = np.fromiter((int(index) for index in indices), np.int64)
        count = len(self)
        wrong = numbers[(numbers < -count) | (numbers >= count)]
        if len(wrong) > 0:
            raise IndexError(f"there is no sample {wrong[0]} in a dataset of {count}")
        numbers = np.where(numbers < 0, numbers + count, numbers)
        found: list[int] = (numbers if self.indices is None else self.indices[numbers]).tolist()
        return found

    def collate(self, batch: tuple[Any, ...] | Mapping[str, Any]) -> list[Any]:
        """Return a batch of the loader as torch's ``default_collate`` returns it: a list with one tensor per field."""
        return [batch[name] for name in self.fields] if isinstance(batch, Mapping) else list(batch)

    def is_current(self, dataset: Any) -> bool:
        """Return whether a new promotion of the dataset would give the same samples.

        It compares transforms, lists of samples, and arrays by identity. It does not notice pixels of CIFAR that were
        changed in place.
        """
        try:
            return DatasetState.of(dataset) == self._state
        except Exception:
            return False


def promote(dataset: Any) -> Promotion | Refusal:
    """Return a promotion of a dataset, or the reason why there is none."""
    try:
        samples = samples_of(dataset)
        # Only now: the attributes of an unknown dataset may be properties that load data.
        state = DatasetState.of(dataset)
        return _of_pictures(samples, state) if isinstance(samples, Pictures) else _of_rows(samples, state)
    except RefusedError as error:
        return Refusal(str(error))
    # Datasets are changed by users in ways that nobody foresees. Python workers can still run them.
    except Exception as error:
        return Refusal(f"{type(dataset).__name__} cannot be examined: {type(error).__name__}: {error}")


def _of_pictures(pictures: Pictures, state: DatasetState) -> Promotion:
    # torchvision does not turn pictures by their EXIF orientation.
    decode = ops.DecodeImage(exif=False, mode="rgb", max_pixels=_most_pixels())
    files = source.files({"image": pictures.paths}, labels=pictures.labels)
    return Promotion(files, [decode, *pictures.ops], ("image", "label"), None, state)


def _of_rows(rows: Rows, state: DatasetState) -> Promotion:
    array = source.array(rows.data, labels=rows.labels, field=rows.field)
    selected = array if rows.indices is None else array.subset(rows.indices)
    fields = (rows.field,) if rows.labels is None else (rows.field, "label")
    return Promotion(selected, rows.ops, fields, rows.indices, state)


def _most_pixels() -> int:
    """Return the size of a picture above which Pillow raises ``DecompressionBombError``."""
    images = sys.modules.get("PIL.Image")
    limit = None if images is None else images.MAX_IMAGE_PIXELS
    return _PIXELS_WITHOUT_LIMIT if limit is None else int(2 * limit)
