"""Every policy on the same pictures: `python -m bench.storage IMAGENET PHOTOS [--volumes FOLDER] [--only PART ...]`.

A storage server and a trainer as two processes over real sockets; the server's link is limited to 100 Mbit/s, where the
link bounds the job (and 500 Mbit/s for the record). Batches of 64, a step of 1 ms. Traffic is the mean of epochs 2 to
11, since the first one profiles; times are the best of five alternated runs. Storage CPU is that of the server's
process. Written to bench/results/storage.json, part by part.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from bench.parts import measure
from bench.storage import parts
from bench.storage.targets import ratios
from bench.volumes import data

VOLUMES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("imagenet", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument(
        "--volumes", type=Path, help="KiTS19 masks, of which volumes are made once, as for bench.volumes"
    )
    parser.add_argument("--only", nargs="+", choices=parts.PARTS, help="measure these; the others stay as they are")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="feedline-storage-") as name:
        volumes = given.volumes and data.make(given.volumes, Path("bench-work/volumes"), VOLUMES)[1].resolve()
        bench = parts.Bench({"imagenet": given.imagenet, "photos": given.photos}, volumes, Path(name))
        measured = {part: partial(run, bench) for part, run in parts.PARTS.items()}
        measure("storage.json", measured, given.only, ratios)


if __name__ == "__main__":
    main()
