"""PyTorch tensors over the engine's memory. Imported only when needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from feedline import _feedline


def to_tensor(array: _feedline.Array) -> Any:
    """Return a tensor that shares the array's memory."""
    tensor = torch.from_numpy(np.asarray(array))
    # NumPy has no bfloat16, so the engine hands such arrays out as 16-bit integers.
    return tensor.view(torch.bfloat16) if array.dtype == "bfloat16" else tensor
