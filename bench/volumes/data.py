"""The volumes of the benchmark, made once from real masks.

In: a folder of KiTS19 masks (`case_x/segmentation.nii.gz`), whose shapes and spacings are true. Out: beside each mask a
CT made from it (air, a body with noise, brighter where the mask is), as int16 `.nii.gz`; and the same volumes after the
offline part, as `.npy`. What is there already is not made again.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.volumes import mlperf

Array = np.ndarray[Any, Any]


def make(masks: Path, work: Path, cases: int) -> tuple[Path, Path]:
    """Give the folder of `.nii.gz` volumes and that of the prepared `.npy` ones."""
    found = sorted(path.parent for path in masks.glob("case_*/segmentation.nii.gz"))[:cases]
    if not found:
        raise SystemExit(f"no case_*/segmentation.nii.gz in {masks}")
    raw, prepared = work / f"raw-{len(found)}", work / f"prepared-{len(found)}"
    for number, case in enumerate(found):
        target = raw / case.name
        if not (target / "complete").exists():
            print(f"  making {case.name} ({number + 1}/{len(found)})", file=sys.stderr)
            _make_case(case, target, number)
        if not (prepared / f"{case.name}_y.npy").exists():
            mlperf.prepare_case(target, prepared)
    return raw, prepared


def _make_case(case: Path, target: Path, seed: int) -> None:
    import nibabel

    target.mkdir(parents=True, exist_ok=True)
    content = (case / "segmentation.nii.gz").read_bytes()
    (target / "segmentation.nii.gz").write_bytes(content)
    mask = nibabel.load(case / "segmentation.nii.gz")
    label = np.asarray(mask.dataobj).astype(np.uint8)
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape(label.shape)
    header.set_zooms(mask.header.get_zooms()[:3])
    header["vox_offset"], header["magic"] = 352, b"n+1"
    with gzip.open(target / "imaging.nii.gz", "wb", compresslevel=1) as file:
        file.write(header.binaryblock + b"\0" * 4)
        generator = np.random.default_rng(seed)
        # The first axis is the fastest in the file: planes of the last one follow each other.
        for place in range(label.shape[2]):
            file.write(_plane(label[:, :, place], place / label.shape[2], generator).tobytes(order="F"))
    (target / "complete").touch()


def _plane(label: Array, depth: float, generator: np.random.Generator) -> Array:
    rows = np.linspace(-1, 1, label.shape[1], dtype=np.float32)[None, :]
    body = np.broadcast_to(rows**2 + (2 * depth - 1) ** 2 < 0.7, label.shape)
    noise = generator.standard_normal(label.shape, dtype=np.float32) * 18
    return np.where(body, 40 + 60 * label + noise, -1000).astype(np.int16)
