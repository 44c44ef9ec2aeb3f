"""Makes the files of other formats, once, from a folder of JPEG files.

In: a folder. Out: a folder with the same pictures in another format, and masks of their sizes. Pillow writes them, so
none is made by the code that is measured. Always true: a folder with a stamp is complete.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

LABELS, CELLS = 21, 12
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "png": (".png", {}),
    "webp": (".webp", {"quality": 80}),
    "progressive": (".jpg", {"quality": 85, "progressive": True}),
    "tiff": (".tif", {"compression": "tiff_adobe_deflate"}),
}
MASKS = "masks"


def made(pictures: Path, work: Path, name: str) -> Path:
    """The folder of a format, or of the masks. It is made if it is not there."""
    folder = work / f"{pictures.resolve().name}-{name}"
    paths = [path for path in sorted(pictures.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]
    stamp, content = folder.with_suffix(".complete"), f"{pictures.resolve()} {len(paths)}"
    if stamp.exists() and stamp.read_text() == content:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"  making {name}", file=sys.stderr)
    write = _write_mask if name == MASKS else _writer(name)
    for path in paths:
        with Image.open(path) as picture:
            write(picture, folder / path.stem)
    stamp.write_text(content)
    return folder


def _writer(name: str) -> Callable[[Any, Path], None]:
    ending, options = FORMATS[name]
    return lambda picture, path: picture.convert("RGB").save(f"{path}{ending}", **options)


def _write_mask(picture: Any, path: Path) -> None:
    """Areas of labels. Their edges follow the brightness of the picture, so that they compress like real masks."""
    small = np.asarray(picture.convert("L").resize((CELLS * 4, CELLS * 4)), np.uint16) // 40
    areas = np.arange(CELLS * CELLS).reshape(CELLS, CELLS).repeat(4, 0).repeat(4, 1)
    labels = Image.fromarray(((small * 5 + areas // 3) % LABELS).astype(np.uint8))
    labels.resize(picture.size, Image.Resampling.NEAREST).save(f"{path}.png")
