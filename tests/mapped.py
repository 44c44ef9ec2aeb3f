"""Functions that plans name as ``mapped:...``."""

import io

import numpy as np
from PIL import Image


def invert(image: np.ndarray) -> np.ndarray:
    return 255 - image


def decode(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def noisy(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return image ^ rng.integers(0, 8, image.shape, np.uint8)


def parts(image: np.ndarray, rng: np.random.Generator, index: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    return image, np.array([rng.integers(1000), index, epoch], np.int64)


def mixed(image: np.ndarray, label: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(len(image))
    return image // 2 + image[order] // 2, label + label[order]


class Holder:
    @staticmethod
    def halve(image: np.ndarray) -> np.ndarray:
        return image // 2
