"""Runs torchvision transforms as a function of ``ops.Map``, for transforms that no op equals.

In: the array that the engine gives to a function. Out: the array of the result. The transforms receive what they
receive in torchvision: a PIL picture or a tensor. Their random numbers come from torch's global generator, so they do
not depend on the seed of the loader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

Kind = Literal["PIL", "uint8", "float32"]
"""What a transform receives: a PIL picture, or a tensor of channels x height x width."""


@dataclass(frozen=True)
class PythonTransform:
    """Transforms that run one after the other. It can be pickled if the transforms can.

    Attributes:
        transforms: the transforms, called in order.
        kind: what the first transform receives.
        keeps_kind: whether the last transform returns the same kind. The result is then an array of pixels, so that
            more ops can follow.
    """

    transforms: tuple[Callable[[Any], Any], ...]
    kind: Kind
    keeps_kind: bool

    def __call__(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Transform the array of one sample: pixels of height x width x channels, or a float tensor."""
        value = _as_torchvision(array, self.kind)
        for transform in self.transforms:
            value = transform(value)
        if self.keeps_kind and self.kind == "uint8":
            value = value.permute(1, 2, 0)
        return _as_array(value)


def _as_torchvision(array: npt.NDArray[Any], kind: Kind) -> Any:
    if kind == "PIL":
        from PIL import Image

        return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    # A transform may work in place, and the array belongs to the engine.
    tensor = torch.from_numpy(np.array(array))
    return tensor.permute(2, 0, 1).contiguous() if kind == "uint8" else tensor


def _as_array(value: Any) -> npt.NDArray[Any]:
    if isinstance(value, torch.Tensor):
        return np.ascontiguousarray(value.numpy())
    array = np.asarray(value)
    is_grey_picture = array.ndim == 2 and not isinstance(value, np.ndarray)
    return array[..., None] if is_grey_picture else array
