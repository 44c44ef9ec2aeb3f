"""The files that the cases of ``streams.py`` read, and the servers that some of them need.

All files are made below one folder. Their bytes come from formulas, from ``stream_pictures.py`` and from
``feedline synth``, whose arithmetic is exact, so they do not depend on the machine or on other libraries. Servers start
when a case first needs them and end with :meth:`Inputs.close`.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tarfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nodes import WAIT, serving
from stream_pictures import EMBEDDED, blocks, bmp, pixels, png, ppm, turned
from volumes import write

Array = npt.NDArray[Any]

JPEGS = 24
"""Pictures of the folder that most cases read, in three classes."""


def feedline(*arguments: object) -> None:
    """Run the command; it has to succeed."""
    command = [sys.executable, "-m", "feedline", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT)


def numbers(count: int, *shape: int, dtype: str = "uint8") -> Array:
    """Compute an array of ``count`` samples by integers alone; the values fit into every element type."""
    size = int(np.prod((count, *shape)))
    values = np.arange(size, dtype=np.uint64) * np.uint64(2_654_435_761) % np.uint64(1 << 32) >> np.uint64(25)
    return values.reshape(count, *shape).astype(dtype)


def volume(seed: int, sides: tuple[int, int, int]) -> tuple[Array, Array]:
    """Compute an image of int16 and its label: one box of class 1, and two of class 2."""
    z, y, x = np.mgrid[0 : sides[0], 0 : sides[1], 0 : sides[2]]
    image = ((z * 31 + y * 17 + x * 7 + (z * y * (seed + 1) ^ x) * 5) % 400 - 150).astype(np.int16)
    label = np.zeros(sides, np.uint8)
    label[3 : 7 + seed % 2, 4:9, 5:12] = 1
    label[9:12, 1:4, 2:5] = label[10:14, 9:13, 12:16] = 2
    return image, label


class Inputs:
    """Paths of all inputs; each part is made when it is first used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open = contextlib.ExitStack()
        self._nodes = 0

    def close(self) -> None:
        """End the servers."""
        self._open.close()

    @cached_property
    def jpegs(self) -> Path:
        """A folder of JPEG pictures of different sizes, in three classes."""
        folder = self.root / "jpegs"
        feedline("synth", folder, "--images", JPEGS, "--classes", 3, "--size", "40-90", "--seed", 5)
        return folder

    @cached_property
    def formats(self) -> Path:
        """A flat folder with a picture of every format and of many of its kinds."""
        folder = self.root / "formats"
        folder.mkdir()
        wide = {"rgba": 4, "rgb": 3, "grey_alpha": 2}
        made = {f"{name}.png": png(pixels(18, 25, channels, channels)) for name, channels in wide.items()}
        made["grey.png"] = png(pixels(17, 26, 5, 1)[..., 0])
        made["deep.png"] = png(pixels(19, 22, 6, 3, "uint16"))
        made["deep_grey.png"] = png(pixels(19, 23, 7, 1, "uint16")[..., 0])
        made["plain.bmp"] = bmp(pixels(16, 21, 8))
        made["plain.ppm"] = ppm(pixels(15, 24, 9))
        made["plain.pgm"] = ppm(pixels(15, 24, 10, 1)[..., 0])
        first = sorted(self.jpegs.rglob("*.jpg"))[0].read_bytes()
        made |= {f"turned{side}.jpg": turned(first, side) for side in (2, 6, 7)}
        for name, content in (made | EMBEDDED).items():
            (folder / name).write_bytes(content)
        return folder

    @cached_property
    def damaged(self) -> Path:
        """The folder of JPEGs with one file that is not a picture and one that is truncated."""
        folder = self.root / "damaged"
        for number, path in enumerate(sorted(self.jpegs.rglob("*.jpg"))):
            copy = folder / path.relative_to(self.jpegs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            copy.write_bytes({4: b"no picture", 15: content[: len(content) // 3]}.get(number, content))
        return folder

    @cached_property
    def masked(self) -> dict[str, list[Path]]:
        """Pictures with their masks, as lists of files."""
        folder = self.root / "masked"
        folder.mkdir()
        lists: dict[str, list[Path]] = {"image": [], "mask": []}
        for number in range(10):
            sides = (30 + number, 44 - number)
            for name, content in (("image", pixels(*sides, number)), ("mask", blocks(*sides, number))):
                lists[name].append(folder / f"{name}{number}.png")
                lists[name][-1].write_bytes(png(content))
        return lists

    @cached_property
    def two_sizes(self) -> list[Path]:
        """Files of two sizes, which planned order separates."""
        folder = self.root / "two_sizes"
        folder.mkdir()
        paths = [folder / f"{number:02}.bin" for number in range(40)]
        for number, path in enumerate(paths):
            path.write_bytes(numbers(1, 20_000 if number % 10 == 3 else 300 + number).tobytes())
        return paths

    @cached_property
    def array(self) -> Path:
        """An array of small pictures as a ``.npy`` file."""
        path = self.root / "array.npy"
        np.save(path, numbers(20, 14, 12, 3))
        return path

    @cached_property
    def shards(self) -> Path:
        """The JPEGs packed into several shards, with their indexes."""
        feedline("pack", self.jpegs, self.root / "shards", "--shard-size", "20kB")
        return self.root / "shards"

    @cached_property
    def bare_shards(self) -> Path:
        """Two tar files without an index, with fields of every kind."""
        folder = self.root / "bare_shards"
        folder.mkdir()
        for shard in range(2):
            with tarfile.open(folder / f"part-{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
                for number in range(shard * 6, shard * 6 + 6):
                    members = {
                        "png": png(pixels(20 + number, 28, number)),
                        "mask.png": png(blocks(20 + number, 28, number)),
                        "cls": b"%d" % (number % 4),
                        "txt": f"picture {number} é".encode(),
                        "bin": numbers(1, 5 + number).tobytes(),
                    }
                    for extension, content in members.items():
                        member = tarfile.TarInfo(f"dir/{number:03}.{extension}")
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
        return folder

    @cached_property
    def volumes(self) -> dict[str, Path]:
        """Folders of volumes with labels, by the ending of their files."""
        folders = {ending: self.root / f"volumes{ending}" for ending in (".nii", ".nii.gz", ".npy")}
        headers: dict[str, dict[str, Any]] = {
            ".nii": {"spacing": (2.0, 1.0, 1.5), "scale": (0.5, -10.0)},
            ".nii.gz": {"spacing": (1.0, 1.5, 0.75), "order": ">"},
            ".npy": {},
        }
        for ending, folder in folders.items():
            for number in range(5):
                image, label = volume(number, (16 + number, 18, 20))
                image = image if ending == ".nii" else image.astype(np.float32) / (4 if ending == ".npy" else 8)
                write(folder / f"case_{number}/imaging{ending}", image, **headers[ending])
                write(folder / f"case_{number}/segmentation{ending}", label, **{**headers[ending], "scale": (0, 0)})
        return folders

    @cached_property
    def storage(self) -> str:
        """The address of a storage server over all inputs, such as ``feedline://127.0.0.1:1234``."""
        command = [sys.executable, "-m", "feedline", "storage", "--root", str(self.root), "--listen", "127.0.0.1:0"]
        process = self._open.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        self._open.callback(process.kill)
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"feedline://[\d.:]+", line)
        assert found, line
        return found.group()

    @cached_property
    def node(self) -> str:
        """The socket of a node."""
        return self.new_node()

    def new_node(self) -> str:
        """Start another node and return its socket."""
        self._nodes += 1
        socket = self.root / f"node{self._nodes}" / "node.sock"
        self._open.enter_context(serving(socket))
        return str(socket)

    @cached_property
    def bucket(self) -> str:
        """The URL of the packed shards in an S3-compatible server."""
        from buckets import bucket_server

        patch = self._open.enter_context(pytest.MonkeyPatch.context())
        return self._open.enter_context(bucket_server(patch)).put(self.shards)
