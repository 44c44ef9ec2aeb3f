"""Array leaves of a sample: which values can live in shared memory, and how they get there and back.

A value becomes an array leaf if its bytes have a fixed size: a tensor, an array or, in mode ``"sample"``, a number.
All other values are object leaves, about which this file knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from feedline.torch.worker.memory_order import memory_order, order_back
from feedline.worker.frames import DTYPE_NAMES

Mode = Literal["sample", "unit"]
Array = np.ndarray[Any, Any]
Writer = Callable[[Any, Array, int], bool]
"""Writes a value into a slot of an array. Returns ``False`` if the value does not match its leaf."""

_BFLOAT16 = 10
_TORCH_DTYPES = [getattr(torch, name) for name in DTYPE_NAMES]
"""The type of each dtype code of the protocol."""
# NumPy has no bfloat16: 16-bit integers hold its bits.
_NUMPY_DTYPES = [np.dtype("int16" if name == "bfloat16" else name) for name in DTYPE_NAMES]
_CODE_OF_TORCH = {dtype: code for code, dtype in enumerate(_TORCH_DTYPES)}
_CODE_OF_NUMPY = {(dtype.kind, dtype.itemsize): code for code, dtype in enumerate(_NUMPY_DTYPES) if code != _BFLOAT16}
_CODE_OF_NUMBER = {
    bool: _CODE_OF_TORCH[torch.bool],
    int: _CODE_OF_TORCH[torch.int64],
    float: _CODE_OF_TORCH[torch.float64],
}


class Leaf(NamedTuple):
    """The type of one array leaf."""

    kind: str
    """``"t"`` tensor, ``"n"`` array, ``"np"`` NumPy scalar, or ``"bool"``, ``"int"``, ``"float"``."""
    code: int
    """The dtype, as the protocol numbers them."""
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()
    """The dimensions, from the largest stride to the smallest. Empty for row-major order."""

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape of the memory, whose order is row-major."""
        return tuple(self.shape[dimension] for dimension in self.order) if self.order else self.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the memory. For bfloat16 it is a 16-bit integer."""
        return _NUMPY_DTYPES[self.code]


def leaf_of(value: Any, mode: Mode) -> Leaf | None:
    """Return the type of a value, or ``None`` if it is an object leaf."""
    kind = type(value)
    if kind is torch.Tensor:
        code = _CODE_OF_TORCH.get(value.dtype)
        if code is None or not _is_plain(value):
            return None
        return Leaf("t", code, tuple(value.shape), memory_order(value.stride(), value.shape) if mode == "unit" else ())
    if kind is np.ndarray:
        code = _CODE_OF_NUMPY.get((value.dtype.kind, value.dtype.itemsize))
        if code is None or not value.dtype.isnative:
            return None
        return Leaf("n", code, value.shape, memory_order(value.strides, value.shape) if mode == "unit" else ())
    if mode == "unit":
        return None
    if kind in _CODE_OF_NUMBER:
        fits = kind is not int or -(2**63) <= value < 2**63
        return Leaf(kind.__name__, _CODE_OF_NUMBER[kind], ()) if fits else None
    # torch refuses np.uint64 scalars. As object leaves they raise torch's own error.
    if isinstance(value, (np.bool_, np.number)) and kind is not np.uint64:
        code = _CODE_OF_NUMPY.get((value.dtype.kind, value.dtype.itemsize))
        return None if code is None else Leaf("np", code, ())
    return None


def writer_of(leaf: Leaf) -> Writer:
    """Return the function that stores values of a leaf."""
    if leaf.kind == "t":
        return _tensor_writer(leaf)
    if leaf.kind == "n":
        return _array_writer(leaf)
    if leaf.kind == "int":
        return _write_int
    number: Any = {"bool": bool, "float": float}.get(leaf.kind, leaf.dtype.type)

    def write(value: Any, view: Array, slot: int) -> bool:
        if type(value) is not number:
            return False
        view[slot] = value
        return True

    return write


def tensor_of(leaf: Leaf, array: Array) -> torch.Tensor:
    """Return a tensor over the memory of an array, which has the type of the leaf."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if leaf.code == _BFLOAT16 else tensor


def value_of(leaf: Leaf, array: Array) -> Any:
    """Return the value that was written into an array without its slot dimension. Arrays keep their memory."""
    if leaf.kind in ("t", "n"):
        array = array.transpose(order_back(leaf.order)) if leaf.order else array
        return tensor_of(leaf, array) if leaf.kind == "t" else array
    return array[()] if leaf.kind == "np" else array.item()


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return False
    return tensor.is_cpu and not tensor.requires_grad and not tensor.is_neg()


def _array_writer(leaf: Leaf) -> Writer:
    shape, dtype, order = leaf.shape, leaf.dtype, leaf.order

    def write(value: Any, view: Array, slot: int) -> bool:
        if type(value) is not np.ndarray or value.shape != shape:
            return False
        if value.dtype is not dtype and value.dtype != dtype:  # Identity is the usual case, and quicker.
            return False
        view[slot] = value.transpose(order) if order else value
        return True

    return write


def _tensor_writer(leaf: Leaf) -> Writer:
    shape, dtype, order = leaf.shape, _TORCH_DTYPES[leaf.code], leaf.order
    is_bfloat16 = leaf.code == _BFLOAT16

    def write_number(value: Any, view: Array, slot: int) -> bool:
        if type(value) is not torch.Tensor or value.dtype is not dtype or not _is_plain(value) or value.shape != shape:
            return False
        view[slot] = value.item()
        return True

    def write(value: Any, view: Array, slot: int) -> bool:
        if type(value) is not torch.Tensor or value.dtype is not dtype:
            return False
        try:
            if value.shape != shape:
                return False
            array = value.view(torch.int16).numpy() if is_bfloat16 else value.numpy()
            view[slot] = array.transpose(order) if order else array
        except (TypeError, RuntimeError):  # It requires a gradient, is on a device, or is sparse or nested.
            return False
        return True

    # item() takes a quarter of the time of numpy().
    return write if shape or is_bfloat16 else write_number


def _write_int(value: Any, view: Array, slot: int) -> bool:
    if type(value) is not int:
        return False
    try:
        view[slot] = value
    except OverflowError:
        return False
    return True
