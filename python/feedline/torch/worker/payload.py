"""Python objects as bytes that the engine can copy without looking into them.

In: an object, for example a sample with strings. Out: bytes with a short header, a pickle (protocol 5) and the
buffers of all arrays and dense CPU tensors, each aligned to 64 bytes. Arrays and tensors that :func:`loads` returns
are writable views of the given memory: nothing is copied a second time.

Objects that plain pickle refuses, for example lambdas, go through cloudpickle if it is installed.

Layout: ``u64 buffers; u64 pickle_bytes; buffers x {u64 offset; u64 length}; pickle; aligned buffers``.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from feedline.torch.worker.memory_order import memory_order, order_back
from feedline.worker.arena import ALIGNMENT, Arena

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:
    cloudpickle = None

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_HEADER = struct.Struct("<QQ")
_INTEGERS_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dumps(value: object, into: Arena) -> tuple[int, int]:
    """Write an object into the arena. Returns its offset and length."""
    # A list of strings and numbers is the usual rest of a sample, and ten times as fast without a pickler object.
    if type(value) is list and _PLAIN.issuperset(map(type, value)):
        data = pickle.dumps(value, protocol=5)
        data = _HEADER.pack(0, len(data)) + data
        offset, memory = into.reserve(len(data))
        memory[:] = data
        return offset, len(data)
    stream, buffers = pickled(value)
    header, places, size = _plan(len(stream), buffers)
    offset, memory = into.reserve(size)
    _fill(memory, header, stream, buffers, places)
    return offset, size


def dumps_bytes(value: object) -> bytearray:
    """Return an object as bytes that :func:`loads` accepts."""
    stream, buffers = pickled(value)
    header, places, size = _plan(len(stream), buffers)
    memory = bytearray(size)
    _fill(memoryview(memory), header, stream, buffers, places)
    return memory


def loads(memory: Any) -> Any:
    """Return the object of a payload: a writable buffer of bytes, usually a NumPy array.

    Arrays in the object keep ``memory`` alive.
    """
    array = np.frombuffer(memory, np.uint8)
    count, length = _HEADER.unpack_from(memory)
    start = _HEADER.size * (1 + count)
    places = (_HEADER.unpack_from(memory, _HEADER.size * (1 + number)) for number in range(count))
    buffers = [array[offset : offset + size] for offset, size in places]
    return pickle.loads(array[start : start + length].data, buffers=buffers)


def pickled(value: object, in_band_below: int = 0) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of an object and its out-of-band buffers.

    Buffers with fewer bytes than ``in_band_below`` stay in the pickle.
    """
    try:
        return _pickled(_pickler, value, in_band_below)
    except (pickle.PicklingError, AttributeError, TypeError):
        if cloudpickle is None:
            raise
        return _pickled(_by_value_pickler(), value, in_band_below)


def pickled_in_band(value: object) -> bytes:
    """Return one plain pickle with all buffers inside."""
    return pickled(value, in_band_below=sys.maxsize)[0]


def pickled_by_value(value: object, in_band_below: int, table: dict[type, Callable[[Any], Any]]) -> Any:
    """Return :func:`pickled` for a process that has another main script, where its classes must travel as code.

    ``table`` says how objects of some types are pickled.
    """
    return _pickled(_by_value_pickler(table), value, in_band_below)


def _pickled(kind: Any, value: object, in_band_below: int) -> tuple[bytes, list[memoryview]]:
    stream, buffers = io.BytesIO(), []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < in_band_below:
            return True
        buffers.append(raw)
        return False

    kind(stream, protocol=5, buffer_callback=keep_in_band).dump(value)
    return stream.getvalue(), buffers


def _plan(pickle_bytes: int, buffers: list[memoryview]) -> tuple[bytes, list[int], int]:
    """Return the header, the offset of each buffer and the size of the payload."""
    end = _HEADER.size * (1 + len(buffers)) + pickle_bytes
    header, places = [_HEADER.pack(len(buffers), pickle_bytes)], []
    for buffer in buffers:
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        header.append(_HEADER.pack(offset, buffer.nbytes))
        places.append(offset)
        end = offset + buffer.nbytes
    return b"".join(header), places, end


def _fill(memory: memoryview, header: bytes, stream: bytes, buffers: list[memoryview], places: list[int]) -> None:
    start = len(header)
    memory[:start] = header
    memory[start : start + len(stream)] = stream
    for buffer, offset in zip(buffers, places, strict=True):
        memory[offset : offset + buffer.nbytes] = buffer


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    # NumPy hands only contiguous arrays out of band.
    if array.flags.c_contiguous or array.flags.f_contiguous or array.dtype.hasobject:
        return array.__reduce_ex__(5)
    order = memory_order(array.strides, array.shape)
    if not order:
        return np.ascontiguousarray(array).__reduce_ex__(5)
    return np.transpose, (np.ascontiguousarray(array.transpose(order)), order_back(order))


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a dense CPU tensor to a buffer, and every other one as torch does."""
    if (
        tensor.layout is not torch.strided
        or tensor.is_nested
        or not tensor.is_cpu
        or tensor.requires_grad
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return tensor.__reduce_ex__(5)
    order = memory_order(tensor.stride(), tensor.shape)
    if order:
        return torch.permute, (tensor.permute(order).contiguous(), order_back(order))
    # NumPy knows no bfloat16 and no 8-bit floats, so the bytes travel as integers.
    integers = _INTEGERS_OF_SIZE.get(tensor.element_size())
    if integers is None:
        raw = torch.view_as_real(tensor).contiguous().numpy()
    else:
        raw = tensor.contiguous().view(integers).numpy()
    return _tensor, (pickle.PickleBuffer(raw.data), tensor.dtype, tuple(tensor.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    memory = np.frombuffer(buffer, np.uint8)
    if not memory.size:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)


def _refuse_file(file: Any) -> Any:
    # cloudpickle would send the content of the file instead of the file.
    raise TypeError(f"cannot pickle '{type(file).__module__}.{type(file).__qualname__}' object")


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _reduce_array,
    torch.Tensor: reduce_tensor,
    io.TextIOWrapper: _refuse_file,
}


_TABLE: ChainMap[Any, Any] = ChainMap({}, _REDUCERS, copyreg.dispatch_table)


def _pickler(stream: io.BytesIO, **options: Any) -> pickle.Pickler:
    pickler = pickle.Pickler(stream, **options)
    pickler.dispatch_table = _TABLE
    return pickler


def _by_value_pickler(table: dict[type, Callable[[Any], Any]] | None = None) -> Any:
    if cloudpickle is None:
        base, known = pickle.Pickler, copyreg.dispatch_table
    else:
        base, known = cloudpickle.Pickler, cloudpickle.Pickler.dispatch_table
    return type("ByValuePickler", (base,), {"dispatch_table": ChainMap(table or {}, _REDUCERS, known)})
