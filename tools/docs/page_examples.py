"""The examples of pages, and how they run.

In: Markdown pages, each with Python blocks that build on each other. Out: for each page one program. Every line of it
has the number that it has on the page, so a traceback names the page's line.

Two comments on a page control the runner. Readers do not see them:

    <!-- setup            code that runs before the blocks that follow, such as a model that the page does not show
    model = ...
    -->
    <!-- not run: reason -->       the next block needs what a test does not have, such as another company's library

Always true: a block is run, or the page gives a reason. A comment about an array's dtype and shape is checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*$")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->")
SETUP = re.compile(r"<!-- setup\n(?P<code>.*?)-->", re.DOTALL)
PROMISE = re.compile(r"""^\s*(?P<value>batch\["\w+"\])\s+# (?P<dtype>\w+) (?P<shape>\[[\d, ]+\])""")
"""A comment with the dtype and shape of an array, as in `batch["label"]   # int64 [64]`. The program checks it."""
SECONDS = 600
"""A limit against hangs: the slowest page takes a tenth of it."""


@dataclass(frozen=True)
class Block:
    """A Python block of a page."""

    line: int
    """The number of its first line of code, from 1 on."""
    code: str
    is_run: bool


def pages() -> list[Path]:
    """Give the pages whose examples run: the README and all of docs/ except the decisions."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "adr" not in page.parts)]


def blocks(text: str) -> list[Block]:
    """Give the Python blocks of a page."""
    found: list[Block] = []
    lines = text.splitlines()
    start: int | None = None
    is_python, reason = False, False
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if start is None:
            if fence:
                start, is_python = number + 1, fence["language"] == "python"
            elif line.strip():
                reason = bool(NOT_RUN.search(line))
        elif fence and not fence["language"]:
            if is_python:
                found.append(Block(start + 1, textwrap.dedent("\n".join(lines[start:number])), not reason))
            start, reason = None, False
    return found


def setups(text: str) -> list[Block]:
    """Give the code in comments that runs before the following blocks."""
    return [Block(text.count("\n", 0, match.start()) + 2, match["code"], True) for match in SETUP.finditer(text)]


def program(text: str) -> str:
    """Give a page's blocks as one program; every line keeps its number."""
    lines = [""] * (text.count("\n") + 2)
    for block in [*setups(text), *blocks(text)]:
        if block.is_run:
            for number, line in enumerate(block.code.splitlines(), start=block.line - 1):
                lines[number] = with_check(line)
    return "\n".join(lines) + "\n"


def with_check(line: str) -> str:
    """Give a line with a check of its comment, if the comment describes an array."""
    if (said := PROMISE.match(line)) is None:
        return line
    value, dtype, shape = said["value"], said["dtype"], said["shape"]
    return f"{said[0].split('#')[0].rstrip()}; assert (str({value}.dtype), list({value}.shape)) == ('{dtype}', {shape})"


def run_page(page: Path, folder: Path) -> None:
    """Run the examples of a page in a folder made by :func:`prepare`. If they fail, raise with their output."""
    path = folder / f"{page.stem.replace('-', '_')}_page.py"
    path.write_text(program(page.read_text()))
    run([sys.executable, path.name], folder)


def prepare(folder: Path) -> None:
    """Make the data that examples read: pictures in data/, the same in shards/, volumes in kits19/data."""
    import nibabel
    import numpy as np

    for name in ("train", "val", "all"):
        command = [sys.executable, "-m", "feedline", "synth", f"data/{name}", "--images", "256", "--classes", "4"]
        run([*command, "--size", "64-128"], folder)
    run([sys.executable, "-m", "feedline", "pack", "data/train", "shards"], folder)
    for case in range(4):
        place = folder / f"kits19/data/case_{case}"
        place.mkdir(parents=True)
        image = np.full((40, 48, 44), 100 + case, np.int16)
        label = (np.indices(image.shape).sum(axis=0) % 3 == 0).astype(np.uint8)
        for name, values in (("imaging", image), ("segmentation", label)):
            nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 1.0, 1.0, 1.0])), place / f"{name}.nii.gz")
    np.save(folder / "x.npy", np.arange(64 * 8 * 8 * 3, dtype=np.uint8).reshape(64, 8, 8, 3))


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder, with a cache and a node of its own."""
    own = {"FEEDLINE_CACHE": str(folder / "cache"), "FEEDLINE_NODE": str(folder / "node" / "socket")}
    (folder / "node").mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEEDLINE_")} | own
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} in {folder}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
