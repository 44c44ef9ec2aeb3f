"""Law 1: the same bytes with SIMD and without, also inside the JPEG library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from making import natural, save

STREAM = """
import hashlib, sys
import feedline as fl
from feedline import ops
chain = [ops.DecodeImage(), ops.RandomResizedCrop(40), ops.RandomHorizontalFlip(), ops.Normalize()]
digest = hashlib.sha256()
for batch in fl.Loader(fl.folder(sys.argv[1]), chain, batch_size=4, shuffle=True, seed=3):
    digest.update(batch["image"].tobytes())
print(digest.hexdigest())
"""


def digest(root: Path, **environment: str) -> str:
    command = [sys.executable, "-c", STREAM, str(root)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_law_1_jpeg_pixels_are_the_same_without_simd(tmp_path: Path) -> None:
    """libjpeg-turbo itself reads the variable that disables its SIMD code."""
    for number, subsampling in enumerate(["4:4:4", "4:2:2", "4:2:0"] * 4):
        save(
            tmp_path / f"{number}.jpg", natural(90 + number, 120 - number, number), quality=85, subsampling=subsampling
        )
    assert digest(tmp_path) == digest(tmp_path, JSIMD_FORCENONE="1")
