"""The order of dimensions in the memory of an array, such as that of ``channels_last``.

In: the strides and the shape of an array or a tensor. Out: its dimensions, from the largest stride to the smallest. An
array is copied in this order and transposed back, so that it keeps its strides.
"""

from __future__ import annotations

from collections.abc import Sequence


def memory_order(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the order of the dimensions. Empty if it is row-major, or if the strides do not decide it."""
    # A dimension of stride 0 or of one element says nothing about the order.
    if any(stride <= 0 or side <= 1 for stride, side in zip(strides, shape, strict=True)):
        return ()
    order = tuple(sorted(range(len(shape)), key=lambda dimension: -strides[dimension]))
    return order if order != tuple(range(len(shape))) else ()


def order_back(order: Sequence[int]) -> tuple[int, ...]:
    """Return the order that restores the dimensions after they were put in ``order``."""
    return tuple(sorted(range(len(order)), key=lambda dimension: order[dimension]))
