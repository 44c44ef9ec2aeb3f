"""The preparation of MLPerf's 3D U-Net in NumPy, SciPy and torch, written from its description.

Offline: resample to 1.6 x 1.2 x 1.2 mm, clip, normalise, pad. Online: balanced crop, flips, cast, brightness, noise.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]

SPACING, SIZE = (1.6, 1.2, 1.2), (128, 128, 128)
LOW, HIGH, MEAN, STD, FILL = -79.0, 304.0, 101.0, 76.9, -2.2
OVERSAMPLING, FLIP, BRIGHTNESS, NOISE, PROBABILITY = 0.4, 1 / 3, 0.3, 0.1, 0.1


def prepare_case(case: Path, target: Path) -> None:
    """Do the offline part of one case and save it as `NAME_x.npy` and `NAME_y.npy`."""
    import nibabel

    scan = nibabel.load(case / "imaging.nii.gz")
    image = scan.get_fdata(dtype=np.float32)[None]
    label = np.asarray(nibabel.load(case / "segmentation.nii.gz").dataobj).astype(np.uint8)[None]
    image, label = resample(image, label, [float(side) for side in scan.header.get_zooms()[:3]])
    image = (np.clip(image, LOW, HIGH) - MEAN) / STD
    image, label = pad(image.astype(np.float32), FILL), pad(label, 0)
    target.mkdir(parents=True, exist_ok=True)
    np.save(target / f"{case.name}_x.npy", image)
    np.save(target / f"{case.name}_y.npy", label)


def resample(image: Array, label: Array, spacing: list[float]) -> Pair:
    import torch
    from torch.nn.functional import interpolate

    sides = [max(1, int(a / b * n)) for a, b, n in zip(spacing, SPACING, image.shape[1:], strict=True)]
    smooth = interpolate(torch.from_numpy(np.array(image))[None], size=sides, mode="trilinear", align_corners=True)
    nearest = interpolate(torch.from_numpy(np.array(label))[None], size=sides, mode="nearest")
    return smooth[0].numpy(), nearest[0].numpy()


def pad(volume: Array, fill: float) -> Array:
    missing = [max(0, wanted - side) for wanted, side in zip(SIZE, volume.shape[1:], strict=True)]
    return np.pad(volume, [(0, 0), *((n // 2, n - n // 2) for n in missing)], constant_values=fill)


def online(image: Array, label: Array) -> Pair:
    """Do the five random ops."""
    image, label = crop(image, label)
    for axis in (1, 2, 3):
        if random.random() < FLIP:
            image, label = np.flip(image, axis), np.flip(label, axis)
    image, label = image.astype(np.float32), label.astype(np.uint8)
    if random.random() < PROBABILITY:
        image = image * np.float32(np.random.uniform(1 - BRIGHTNESS, 1 + BRIGHTNESS))
    if random.random() < PROBABILITY:
        scale = np.random.uniform(0, NOISE)
        image = image + np.random.normal(0, scale, image.shape).astype(np.float32)
    return image, label


def crop(image: Array, label: Array) -> Pair:
    box = _box(label[0]) if random.random() < OVERSAMPLING else None
    start = []
    for axis, (side, length) in enumerate(zip(image.shape[1:], SIZE, strict=True)):
        if box is None:
            start.append(random.randint(0, side - length))
        else:
            ends = box[axis].start, box[axis].stop - length
            start.append(max(0, min(random.randint(min(ends), max(ends)), side - length)))
    region = (slice(None), *(slice(first, first + length) for first, length in zip(start, SIZE, strict=True)))
    return image[region], label[region]


def _box(label: Array) -> Any:
    """Find the components of a random class, and take one of the two with the largest box."""
    from scipy import ndimage

    classes = np.unique(label[label > 0])
    if not len(classes):
        return None
    found = ndimage.find_objects(ndimage.label(label == np.random.choice(classes))[0])
    largest = sorted(found, key=lambda box: int(np.prod([part.stop - part.start for part in box])))[-2:]
    return random.choice(largest)
