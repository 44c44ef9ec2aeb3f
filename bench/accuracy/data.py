"""Small volumes with something to find: an organ and a smaller lesion in it, in noise.

In: a folder, a seed. Out: `case_N_x.npy` (float32) and `case_N_y.npy` (uint8: 0 nothing, 1 organ, 2 lesion). Training
volumes differ in size, as real ones do; those held out are all alike, so that they make one batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SIDE, MIN_SIDE, MAX_SIDE = 48, 40, 64
NOISE, ORGAN, LESION = 0.5, 1.0, 1.8


def write(folder: Path, cases: int, seed: int) -> None:
    """Write volumes of different size."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for case in range(cases):
        image, label = _volume(generator, generator.integers(MIN_SIDE, MAX_SIDE + 1, 3))
        np.save(folder / f"case_{case:03}_x.npy", image)
        np.save(folder / f"case_{case:03}_y.npy", label)


def held_out(cases: int, seed: int) -> tuple[Array, Array]:
    """Give volumes of one size: images of (case, channel, depth, height, width) and labels without the channel."""
    generator = np.random.default_rng(seed)
    volumes = [_volume(generator, np.array([SIDE] * 3)) for _ in range(cases)]
    return np.stack([image[None] for image, _ in volumes]), np.stack([label for _, label in volumes])


def _volume(generator: np.random.Generator, sides: Array) -> tuple[Array, Array]:
    organ_radii = generator.uniform(0.18, 0.30, 3) * sides
    organ_centre = generator.uniform(0.35, 0.65, 3) * sides
    lesion_radii = organ_radii * generator.uniform(0.35, 0.5)
    # The lesion sits on the rim of the organ, as tumours of the kidney do.
    direction = generator.standard_normal(3)
    lesion_centre = organ_centre + 0.6 * organ_radii * direction / np.linalg.norm(direction)
    label = np.zeros(sides, np.uint8)
    label[_ellipsoid(sides, organ_centre, organ_radii)] = 1
    label[_ellipsoid(sides, lesion_centre, lesion_radii)] = 2
    image = np.array([0.0, ORGAN, LESION], np.float32)[label]
    return image + NOISE * generator.standard_normal(tuple(sides), np.float32), label


def _ellipsoid(sides: Array, centre: Array, radii: Array) -> Array:
    places = np.ogrid[: sides[0], : sides[1], : sides[2]]
    distance = sum(((place - c) / r) ** 2 for place, c, r in zip(places, centre, radii, strict=True))
    return np.asarray(distance <= 1)
