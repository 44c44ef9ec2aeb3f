"""Functions of ops on their way to the native module, and through pickles.

In: a Python function with its parameters. Out: what the native module takes, or bytes for another process.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.arguments import short, whole
from feedline.errors import PlanError

if TYPE_CHECKING:
    from feedline.ops import Op


def sample_ops(ops: Sequence[Op]) -> list[Any]:
    """Return the ops on samples for the native module. Functions on batches must come after them."""
    of_batches = [op._is_on_batches for op in ops]
    if sorted(of_batches) != of_batches:
        raise PlanError("ops.MapBatch must come after all other ops; ops.Map may stand between ops on samples")
    return [op._to_native() for op in ops if not op._is_on_batches]


def batch_ops(ops: Sequence[Op]) -> list[Any]:
    """Return the functions on batches for the native module."""
    return [op._to_native() for op in ops if op._is_on_batches]


@dataclass(frozen=True)
class NativeFunction:
    """A function and its parameters, for the native module."""

    function: Callable[..., Any]
    on: list[str]
    out: list[str] | None
    shapes: dict[str, tuple[str, list[int]]]
    deterministic: bool
    version: int
    in_process: bool


def names_of(on: str | Sequence[str]) -> list[str]:
    """Return one name or several as a list."""
    return [on] if isinstance(on, str) else list(on)


def shape_of(field: str, shape: Any) -> tuple[str, list[int]]:
    """Return the element type and the sides of a declared result."""
    try:
        dtype, sides = shape
        name = str(dtype).removeprefix("torch.") if "torch" in str(dtype) else np.dtype(dtype).name
        return name, [whole("side", side, 0) for side in sides]
    except (TypeError, ValueError) as error:
        raise PlanError(
            f'ops.Map: the shape of {field!r} is {short(shape)}; it must be like ("float32", (3, 224, 224))'
        ) from error


def pickled_function(function: Callable[..., Any]) -> bytes:
    """Pickle a function by its name, or by cloudpickle if the program uses it."""
    # Ray and Dask bring cloudpickle. It can pickle lambdas, closures, and functions of ``__main__``. Their workers run
    # another main program, so such a function cannot be imported there by name.
    cloudpickle = sys.modules.get("cloudpickle") or sys.modules.get("ray.cloudpickle")
    if cloudpickle is not None:
        carried: bytes = cloudpickle.dumps(function)
        return carried
    try:
        return pickle.dumps(function)
    except Exception as error:
        code = getattr(function, "__code__", None)
        place = f" of {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        raise PlanError(
            f"ops.Map: the function {getattr(function, '__qualname__', function)!r}{place} cannot be sent to another "
            f"process; define it with def at the top of a module that both processes can import"
        ) from error
