"""Small volumes for tests, and the definitions of the ops of volumes in NumPy and SciPy."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Array = npt.NDArray[Any]

CODES = {
    "uint8": 2, "int16": 4, "int32": 8, "float32": 16, "float64": 64, "int8": 256, "uint16": 512, "uint32": 768,
    "int64": 1024, "uint64": 1280,
}  # fmt: skip


def nifti_bytes(
    data: Array,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
    scale: tuple[float, float] = (0.0, 0.0),
    order: str = "<",
) -> bytes:
    """Write NIfTI-1 by its definition: a header of 348 bytes, four more, then the first axis fastest."""
    header = bytearray(352)
    struct.pack_into(f"{order}i", header, 0, 348)
    struct.pack_into(f"{order}8h", header, 40, data.ndim, *data.shape, *[1] * (7 - data.ndim))
    struct.pack_into(f"{order}hh", header, 70, CODES[data.dtype.name], data.dtype.itemsize * 8)
    struct.pack_into(f"{order}8f", header, 76, 1.0, *spacing, *[1.0] * 4)
    struct.pack_into(f"{order}3f", header, 108, 352.0, *scale)
    header[344:348] = b"n+1\0"
    return bytes(header) + data.astype(data.dtype.newbyteorder(order)).tobytes(order="F")


def write(path: Path, data: Array, **header: Any) -> Path:
    """Write a volume in the format that the path's ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".npy"):
        np.save(path, data)
    else:
        content = nifti_bytes(data, **header)
        path.write_bytes(gzip.compress(content, 1) if path.name.endswith(".gz") else content)
    return path


def case(seed: int, sides: tuple[int, int, int]) -> tuple[Array, Array]:
    """Make an image of float32 and a label with a few blobs of two classes."""
    rng = np.random.default_rng(seed)
    image = rng.normal(100, 80, sides).astype(np.float32)
    noise = ndimage.gaussian_filter(rng.normal(size=sides), 1.5)
    label = np.zeros(sides, np.uint8)
    label[noise > np.quantile(noise, 0.93)] = 1
    label[noise < np.quantile(noise, 0.04)] = 2
    return image, label


def resampled(image: Array, spacing: tuple[float, ...], target: tuple[float, ...]) -> Array:
    """Resample trilinearly, with aligned corners."""
    sides = new_sides(image.shape, spacing, target)
    axes = [
        np.linspace(0, old - 1, new) if new > 1 else np.zeros(1) for old, new in zip(image.shape, sides, strict=True)
    ]
    places = np.meshgrid(*axes, indexing="ij")
    return ndimage.map_coordinates(image.astype(np.float64), places, order=1, mode="nearest")


def resampled_label(label: Array, spacing: tuple[float, ...], target: tuple[float, ...]) -> Array:
    """Take the nearest element: number floor(i * old / new)."""
    sides = new_sides(label.shape, spacing, target)
    return label[np.ix_(*[np.arange(new) * old // new for old, new in zip(label.shape, sides, strict=True)])]


def new_sides(sides: tuple[int, ...], spacing: tuple[float, ...], target: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(max(1, int(s * a / b + 1e-4)) for s, a, b in zip(sides, spacing, target, strict=True))


def padded(volume: Array, size: tuple[int, ...], **mode: Any) -> Array:
    missing = [max(0, wanted - side) for wanted, side in zip(size, volume.shape, strict=True)]
    return np.pad(volume, [(number // 2, number - number // 2) for number in missing], **mode)


def boxes(label: Array) -> dict[int, list[tuple[slice, ...]]]:
    """Find the two largest boxes around connected components of each class."""
    found = {}
    for value in np.unique(label[label > 0]):
        slices = ndimage.find_objects(ndimage.label(label == value)[0])
        volumes = [np.prod([s.stop - s.start for s in box]) for box in slices]
        found[int(value)] = [slices[number] for number in np.argsort(volumes, kind="stable")[::-1][:2]]
    return found


def starts(box: tuple[slice, ...], size: tuple[int, ...], sides: tuple[int, ...]) -> list[range]:
    """Give where a crop of this size may start along each axis so that it contains the box, or lies inside it."""
    ranges = []
    for part, length, side in zip(box, size, sides, strict=True):
        ends = part.start, part.stop - length
        low, high = (max(0, min(end, side - length)) for end in (min(ends), max(ends)))
        ranges.append(range(low, high + 1))
    return ranges
