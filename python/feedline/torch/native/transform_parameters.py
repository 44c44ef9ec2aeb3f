"""Reads the parameters of torchvision transforms as parameters of ops.

In: values as torchvision stores them: numbers, sequences, arrays or tensors. Out: plain numbers and tuples. A value
that ops do not take raises :class:`NotNativeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class NotNativeError(Exception):
    """No op equals a transform; the text says why."""


def whole_number(value: Any) -> int:
    """Return a whole number as an int."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise NotNativeError(f"{value!r} is not a whole number")
    return int(value)


def side_lengths(size: Any) -> list[int]:
    """Return a size as a list: one number, or height and width."""
    return [whole_number(side) for side in size] if isinstance(size, Sequence) else [whole_number(size)]


def height_and_width(size: Any) -> tuple[int, int]:
    """Return height and width of a size; one number is both."""
    sides = side_lengths(size)
    return sides[0], sides[-1]


def float_range(values: Any) -> tuple[float, float]:
    """Return the lower and the upper limit of a range."""
    low, high = values
    return float(low), float(high)


def floats(values: Any) -> tuple[float, ...]:
    """Return a number, a sequence, an array or a tensor as a tuple of floats."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    return tuple(float(value) for value in plain) if isinstance(plain, Sequence) else (float(plain),)


def per_channel(values: Any, channels: int) -> tuple[float, ...]:
    """Return one number for each channel; a single number is for all of them."""
    numbers = floats(values)
    if len(numbers) not in (1, channels):
        raise NotNativeError(f"it has values for {len(numbers)} channels, but the picture has {channels}")
    return numbers * channels if len(numbers) == 1 else numbers


def padding_sides(padding: Any, *, is_v2: bool) -> tuple[int, ...] | int | None:
    """Return padding as the op takes it: left, top, right, bottom."""
    if padding is None:
        return None
    sides = side_lengths(padding)
    if is_v2:
        # v2 stores left, right, top, bottom.
        left, right, top, bottom = sides
        return left, top, right, bottom
    return sides[0] if len(sides) == 1 else tuple(sides)


def fill_value(fill: Any) -> int:
    """Return the value of padded pixels, which is the same for all channels."""
    if isinstance(fill, dict):
        raise NotNativeError("fill depends on the type; Feedline has one fill")
    numbers = {0.0} if fill is None else set(floats(fill))
    if len(numbers) != 1:
        raise NotNativeError("fill differs between channels; Feedline has one fill")
    (number,) = numbers
    if number not in range(256):
        raise NotNativeError(f"fill is {fill!r}; Feedline takes a whole number from 0 to 255")
    return int(number)
