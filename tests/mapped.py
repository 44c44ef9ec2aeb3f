"""Functions that plans name as ``mapped:...``."""

import io

import numpy as np
from PIL import Image


def invert(image: np.ndarray) -> np.ndarray:
    return 255 - image


def decode(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


class Holder:
    @staticmethod
    def halve(image: np.ndarray) -> np.ndarray:
        return image // 2
