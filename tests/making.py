"""Data for tests: small pictures that look like photos, made from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

HANG_SECONDS = 120
"""Seconds: a limit against hangs, far above any test on a busy machine. Work that a test interrupts takes longer."""

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
]
"""All element types that arrays of NumPy can have."""

PLAN = """
batch_size = 4
shuffle = true
{settings}
[source]
kind = "folder"
root = {root}
[[ops]]
op = "DecodeImage"
{more}
[[ops]]
op = "Resize"
size = [24, 32]
"""
"""A plan over a folder of pictures. `more` is inserted between the decoder and the last op."""


def natural(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """Smooth gradients, a few hard edges and noise, as resampling filters and colour arithmetic meet them in photos."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        fx, fy, phase = random.uniform(0.5, 4.0, 3)
        wave = np.sin(2 * np.pi * (fx * x / width + fy * y / height) + phase)
        ramp = (x / width) * random.uniform(-1, 1) + (y / height) * random.uniform(-1, 1)
        planes.append(128 + 70 * wave + 60 * ramp)
    picture = np.stack(planes, axis=-1)
    for _ in range(3):
        top, left = random.integers(0, max(1, height // 2)), random.integers(0, max(1, width // 2))
        picture[top : top + height // 3, left : left + width // 3] += random.uniform(-80, 80, channels)
    picture += random.normal(0, 8, picture.shape)
    return picture.clip(0, 255).astype(np.uint8)


def labels_mask(height: int, width: int, labels: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Blocks of label values."""
    random = np.random.default_rng(seed)
    blocks = random.choice(labels, size=(height // 8 + 1, width // 8 + 1))
    return np.kron(blocks, np.ones((8, 8), dtype=np.int64))[:height, :width].astype(np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    """Write a picture in the format that the name's ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    squeezed = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels
    Image.fromarray(squeezed).save(path, **options)
    return path


def folder_of(root: Path, count: int, classes: tuple[str, ...] = (), size: tuple[int, int] = (24, 32)) -> Path:
    """Write ``count`` PNG pictures into the sub-folders ``classes`` in turn (none: into the folder itself)."""
    for number in range(count):
        parent = root / classes[number % len(classes)] if classes else root
        save(parent / f"{number:04}.png", natural(*size, seed=number))
    return root


def peak_bytes() -> int:
    """Peak memory of this process. Not ``ru_maxrss``, which a process inherits from its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
