"""Functions of the user that the engine calls for samples: what they get and what they may return.

In: a function, the values of the fields that it gets, and the sample. Out: the values that it returned, as text, bytes
or arrays that the engine can store. The same code runs on the engine's threads and in worker processes
(:mod:`feedline.worker.function_worker`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.worker.frames import DTYPE_NAMES

Value = str | bytes | np.ndarray[Any, Any]


@dataclass(frozen=True)
class SampleInfo:
    """The sample of a call."""

    seeds: tuple[int, int]
    """128 random bits that depend on seed, epoch, op, index and occurrence only (law 1)."""
    index: int
    epoch: int
    key: str | None
    """The name of the sample, if the function asks for it."""


class SampleFunction:
    """A function, and the parameters that it asks for beside the values of its fields."""

    def __init__(self, function: Callable[..., Any], inputs: int, outputs: int) -> None:
        """The function gets ``inputs`` values and returns ``outputs`` values."""
        self._function, self._outputs = function, outputs
        self._asked = asked_for(function, inputs)

    @property
    def asks_for_key(self) -> bool:
        """Whether the function has a parameter ``key``."""
        return "key" in self._asked

    def call(self, values: Sequence[Any], seeds: tuple[int, int], index: int, epoch: int, key: str | None) -> Any:
        """Call the function. Return what it returned."""
        if not self._asked:
            return self._function(*values)
        info = SampleInfo(seeds, index, epoch, key)
        return self._function(*values, **{name: _ASKABLE[name](info) for name in self._asked})

    def results(self, returned: Any) -> list[Value]:
        """Return the new values of the fields. Raise ``TypeError`` or ``ValueError`` if they cannot be stored."""
        if self._outputs == 1:
            return [_value(returned)]
        if self._outputs == 0:
            return []
        values = list(returned)
        if len(values) != self._outputs:
            raise ValueError(f"{len(values)} values for {self._outputs} fields")
        return [_value(value) for value in values]


def asked_for(function: Callable[..., Any], inputs: int) -> tuple[str, ...]:
    """Return the names of ``rng``, ``generator``, ``index``, ``epoch`` and ``key`` that a function has as parameters.

    The first ``inputs`` parameters get values of fields, whatever their names are. Parameters that a
    ``functools.partial`` has set keep their values.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Functions in C may have no signature.
        return ()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    fields = [parameter.name for parameter in parameters if parameter.kind in by_position][:inputs]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    asked = {parameter.name for parameter in parameters if parameter.kind in by_name} - set(fields)
    if isinstance(function, functools.partial):
        asked -= set(function.keywords)
    return tuple(name for name in _ASKABLE if name in asked)


def _value(value: Any) -> Value:
    """Return text, bytes, or an array in row-major order with native bytes."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    array = np.asarray(value)
    if array.dtype.name not in DTYPE_NAMES:
        raise TypeError(f"{type(value).__name__} of {array.dtype.name} is not an array of numbers")
    # Unlike np.ascontiguousarray, this keeps an array without sides.
    return np.require(array, array.dtype.newbyteorder("="), "C")


def _torch_generator(info: SampleInfo) -> Any:
    import torch

    # torch takes signed numbers.
    return torch.Generator().manual_seed(info.seeds[0] >> 1)


_ASKABLE: dict[str, Callable[[SampleInfo], Any]] = {
    "rng": lambda info: np.random.Generator(np.random.Philox(key=np.array(info.seeds, np.uint64))),
    "generator": _torch_generator,
    "index": lambda info: info.index,
    "epoch": lambda info: info.epoch,
    "key": lambda info: info.key,
}
"""What a function may ask for, by the name of a parameter."""
