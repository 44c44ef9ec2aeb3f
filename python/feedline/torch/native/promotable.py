"""Reads datasets of torch and torchvision as lists of files or as arrays, without their code.

In: a dataset. Out: :class:`Pictures` or :class:`Rows`, which list the samples in the order of the dataset. A dataset
that cannot be read this way raises :class:`RefusedError`, whose text says why. No file is opened.

``Subset`` and ``ConcatDataset`` are read too, if the datasets inside of them can be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from feedline.arguments import short
from feedline.ops import Op
from feedline.torch.native.conversion import native_ops
from feedline.torch.native.exact_types import base_among, is_exactly, replaced_method

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
"""Formats for which Feedline's decoder gives Pillow's pixels. Files of the PNM family may have more than 8 bits."""

LARGEST_LABELS = 64 * 2**20
"""Bytes: labels are copied, so a second tensor that is larger is not taken as labels."""

LARGEST_JOINED = 2**30
"""Bytes: arrays of a ``ConcatDataset`` are copied into one, which may not be larger."""

Indices = npt.NDArray[np.int64]


class RefusedError(Exception):
    """A dataset cannot run natively; the text says why."""


@dataclass(frozen=True)
class Pictures:
    """Picture files with labels, and the ops for decoded pictures."""

    paths: list[str]
    labels: npt.NDArray[np.int64]
    ops: list[Op]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.paths)

    def subset(self, indices: Indices) -> Pictures:
        """Return the samples at these positions, in this order. Positions may repeat."""
        return replace(self, paths=[self.paths[index] for index in indices.tolist()], labels=self.labels[indices])


@dataclass(frozen=True)
class Rows:
    """Arrays whose first axis counts the samples, and the ops for a sample.

    Attributes:
        data: the array of the first field.
        labels: the array of the second field, if there is one.
        field: the name of the first field.
        ops: the ops for the first field.
        indices: the rows that are samples, in the order of the dataset; ``None`` means all.
    """

    data: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    field: str
    ops: list[Op]
    indices: Indices | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.data) if self.indices is None else len(self.indices)

    def subset(self, indices: Indices) -> Rows:
        """Return the samples at these positions, in this order. Positions must not repeat."""
        if len(np.unique(indices)) < len(indices):
            raise RefusedError("Subset has repeated indices of an array")
        return replace(self, indices=indices if self.indices is None else self.indices[indices])


Samples = Pictures | Rows


def samples_of(dataset: Any) -> Samples:
    """Return the samples of a dataset. Raise :class:`RefusedError` if they cannot be read natively."""
    found = next((known for known in _READERS if is_exactly(dataset, *known)), None)
    if found is None:
        raise RefusedError(_unknown(dataset))
    module, name = found
    replaced = replaced_method(dataset)
    if replaced is not None:
        raise RefusedError(f"this {name} has its own {replaced}")
    # Somebody may have replaced the method of the class itself.
    if type(dataset).__getitem__.__module__.partition(".")[0] != module.partition(".")[0]:
        raise RefusedError(f"{name}.__getitem__ was replaced by {type(dataset).__getitem__.__module__}")
    samples = _READERS[found](dataset)
    if len(samples) == 0:
        raise RefusedError(f"{name} has no samples")
    return samples


def _unknown(dataset: object) -> str:
    kind = type(dataset)
    for module in dict.fromkeys(module for module, _ in _READERS):
        base = base_among(dataset, module, tuple(name for owner, name in _READERS if owner == module))
        if base is not None:
            return f"{kind.__name__} is a subclass of {base}, and its code may differ"
    known = ", ".join(name for _, name in _READERS)
    return f"{kind.__module__}.{kind.__qualname__} is not one of {known}"


def _folder(dataset: Any) -> Pictures:
    name = type(dataset).__name__
    chain = _native_chain(dataset, name)
    _check_loader(dataset.loader, name)
    paths, labels = [], []
    for path, label in dataset.samples:
        _check_path(path)
        paths.append(path)
        labels.append(label)
    return Pictures(paths, _class_labels(labels, name), chain)


def _cifar(dataset: Any) -> Rows:
    name, data = type(dataset).__name__, dataset.data
    chain = _native_chain(dataset, name)
    if type(data) is not np.ndarray or data.dtype != np.uint8 or data.ndim != 4 or data.shape[-1] != 3:
        raise RefusedError(f"{name}.data is not a uint8 array of shape (n, height, width, 3)")
    if len(dataset.targets) != len(data):
        raise RefusedError(f"{name} has {len(data)} pictures, but {len(dataset.targets)} targets")
    return Rows(data, _class_labels(dataset.targets, name), "image", chain)


def _tensors(dataset: Any) -> Rows:
    tensors = dataset.tensors
    if len(tensors) > 2:
        raise RefusedError(f"TensorDataset has {len(tensors)} tensors; Feedline reads one, or one with labels")
    arrays = [_array_of(tensor, number) for number, tensor in enumerate(tensors)]
    labels = arrays[1] if len(arrays) == 2 else None
    if labels is not None and labels.nbytes > LARGEST_LABELS:
        raise RefusedError(f"tensor 1 of TensorDataset has {labels.nbytes:,} bytes, too many to copy them as labels")
    return Rows(arrays[0], labels, "data", [])


def _array_of(tensor: Any, number: int) -> npt.NDArray[Any]:
    what = f"tensor {number} of TensorDataset"
    if type(tensor) is not torch.Tensor:
        raise RefusedError(f"{what} is a {type(tensor).__name__}, not a plain torch.Tensor")
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise RefusedError(f"{what} is not a dense tensor in the memory of the CPU")
    if tensor.requires_grad:
        raise RefusedError(f"{what} requires a gradient")
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.dtype is torch.bfloat16:
        raise RefusedError(f"{what} has elements that NumPy cannot read in place")
    if not tensor.is_contiguous():
        raise RefusedError(f"{what} is not contiguous, so it would have to be copied")
    array: npt.NDArray[Any] = tensor.numpy()
    if array.dtype.kind not in "biuf":
        raise RefusedError(f"{what} has elements of {tensor.dtype}, which Feedline does not have")
    if array.size == 0:
        raise RefusedError(f"{what} has no elements")
    return array


def _subset(dataset: Any) -> Samples:
    samples = samples_of(dataset.dataset)
    indices = np.asarray(dataset.indices)
    if indices.ndim != 1 or (indices.dtype.kind not in "iu" and len(indices) > 0):
        raise RefusedError(f"Subset.indices is {short(dataset.indices)}, not a list of whole numbers")
    count, indices = len(samples), indices.astype(np.int64)
    if len(indices) > 0 and not -count <= indices.min() <= indices.max() < count:
        raise RefusedError(f"Subset has indices outside of its {count} samples")
    return samples.subset(np.where(indices < 0, indices + count, indices))


def _concatenation(dataset: Any) -> Samples:
    parts = [samples_of(part) for part in dataset.datasets]
    if list(dataset.cumulative_sizes) != np.cumsum([len(part) for part in parts]).tolist():
        raise RefusedError("a dataset of ConcatDataset has changed its length")
    pictures = [part for part in parts if isinstance(part, Pictures)]
    rows = [part for part in parts if isinstance(part, Rows)]
    if pictures and rows:
        raise RefusedError("ConcatDataset joins files and arrays")
    if any(part.ops != parts[0].ops for part in parts):
        raise RefusedError("the datasets of ConcatDataset have different transforms")
    return _joined_rows(rows) if rows else _joined_pictures(pictures)


def _joined_pictures(parts: list[Pictures]) -> Pictures:
    paths = [path for part in parts for path in part.paths]
    return Pictures(paths, np.concatenate([part.labels for part in parts]), parts[0].ops)


def _joined_rows(parts: list[Rows]) -> Rows:
    first = parts[0]
    if any(_kinds_of(part) != _kinds_of(first) for part in parts):
        raise RefusedError("the arrays of ConcatDataset differ in shape or dtype")
    size = sum(part.data[:1].nbytes * len(part) for part in parts)
    if size > LARGEST_JOINED:
        raise RefusedError(f"ConcatDataset joins arrays of {size:,} bytes, too many to copy them into one")
    data = np.concatenate([_selected(part.data, part.indices) for part in parts])
    if first.labels is None:
        return Rows(data, None, first.field, first.ops)
    labels = [_selected(part.labels, part.indices) for part in parts if part.labels is not None]
    return Rows(data, np.concatenate(labels), first.field, first.ops)


def _kinds_of(rows: Rows) -> tuple[Any, ...]:
    """Return what must be equal in arrays that are joined."""
    arrays = (rows.data, rows.labels)
    return rows.field, *((array.dtype, array.shape[1:]) if array is not None else None for array in arrays)


def _selected(array: npt.NDArray[Any], indices: Indices | None) -> npt.NDArray[Any]:
    return array if indices is None else array[indices]


def _native_chain(dataset: Any, name: str) -> list[Op]:
    if dataset.target_transform is not None:
        raise RefusedError(f"{name} has a target_transform")
    if dataset.transform is None:
        raise RefusedError(f"{name} has no transform, and PIL pictures cannot be collated")
    native = native_ops(dataset.transform)
    for row in native.report:
        if row.reason:
            raise RefusedError(f"the transform {row.transform} is not native: {row.reason}")
    if native.output == "PIL picture":
        raise RefusedError("the transform returns PIL pictures, which cannot be collated")
    return native.ops


def _check_loader(loader: object, name: str) -> None:
    folder = sys.modules["torchvision.datasets.folder"]
    if loader is folder.default_loader:
        backend = sys.modules["torchvision"].get_image_backend()
        if backend != "PIL":
            raise RefusedError(f"torchvision decodes with {backend}, not with PIL")
    elif loader is not folder.pil_loader:
        raise RefusedError(f"{name} has its own loader, {short(getattr(loader, '__qualname__', loader))}")
    files = sys.modules.get("PIL.ImageFile")
    if files is not None and files.LOAD_TRUNCATED_IMAGES:
        raise RefusedError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set; Feedline refuses truncated files")


def _check_path(path: Any) -> None:
    if type(path) is not str:
        raise RefusedError(f"the path {short(path)} is not text")
    if not path.lower().endswith(ENDINGS):
        raise RefusedError(f"{short(path)} is not a file of {', '.join(ENDINGS)}")
    # fl.files would expand the home folder and read URLs; torchvision takes both as plain names.
    if path.startswith("~") or "://" in path:
        raise RefusedError(f"{short(path)} is a name with a special meaning in Feedline")


def _class_labels(labels: Any, name: str) -> npt.NDArray[np.int64]:
    """Return labels that torch would collate to int64."""
    if type(labels) is np.ndarray and labels.dtype == np.int64 and labels.ndim == 1:
        return labels
    if type(labels) is not list or any(type(label) is not int for label in labels):
        raise RefusedError(f"{name} has labels that are not plain whole numbers")
    return np.array(labels, np.int64)


_READERS: dict[tuple[str, str], Callable[[Any], Samples]] = {
    ("torchvision.datasets", "ImageFolder"): _folder,
    ("torchvision.datasets", "DatasetFolder"): _folder,
    ("torchvision.datasets", "CIFAR10"): _cifar,
    ("torchvision.datasets", "CIFAR100"): _cifar,
    ("torch.utils.data", "TensorDataset"): _tensors,
    ("torch.utils.data", "Subset"): _subset,
    ("torch.utils.data", "ConcatDataset"): _concatenation,
}
"""Functions that read a dataset, by the module and the name of its class."""
