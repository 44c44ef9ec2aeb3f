"""Reading in sequence: `python -m bench.share.sequential PICTURES [--runs 3] [--only disk learning]`.

Disk: one reader in sequence, through a reservoir of a tenth of the epoch, against reads at random with 1, 2 and 4
workers, on a simulated hard disk (8 ms a seek, 150 MB/s, one head), of shards of pictures that are delivered as they
are stored. Learning: a small net on data sorted by class, with a full shuffle, with such a reservoir and several
readers, and with a small one and a single reader. Written to bench/results/share-sequential.json, part by part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import harness
from bench.parts import measure
from bench.ratio import Ratio
from bench.share import disk, learning

PARTS = ("disk", "learning")
POINT = 0.01


def _disk(pictures: Path, work: Path, runs: int) -> dict[str, Any]:
    stored = disk.write_shards(pictures, work / "pictures")
    raced = harness.race(list(disk.CONTENDERS), [str(work / "pictures")], runs, wait_seconds=0)
    return {"sample_bytes_with_headers": stored / disk.SAMPLES, "contenders": raced}


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """Give all figures that can be computed from the parts that are there."""
    if part := results.get("disk"):
        rate = {name: found["samples_per_second"] for name, found in part["contenders"].items()}
        share = rate["sequential-1"] * part["sample_bytes_with_headers"] / (disk.MB_PER_SECOND * 1e6)
        yield Ratio("one sequential reader, share of the disk's bandwidth", share, "at least", 0.95)
        for workers in disk.RANDOM_WORKERS:
            faster = rate["sequential-1"] / rate[f"random-{workers}"]
            yield Ratio(f"one sequential reader / random, {workers} workers, samples/s", faster, "at least", 10)
    if part := results.get("learning"):
        full, ours, small = (part[name] for name in part)
        allowed = max(POINT, full["standard_error"])
        yield Ratio("full shuffle, accuracy", full["mean"], "at least", 0.6)
        yield Ratio("full shuffle, accuracy", full["mean"], "at most", 0.9)
        yield Ratio("accuracy lost by a reservoir of 10 %", full["mean"] - ours["mean"], "at most", allowed)
        yield Ratio("accuracy lost by 1 % and one reader", full["mean"] - small["mean"], "at least", 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these; the others stay as they are")
    given = parser.parse_args()
    setup = {"seek_ms": disk.SEEK_MS, "mb_per_second": disk.MB_PER_SECOND}
    setup |= {"samples": disk.SAMPLES, "batch": disk.BATCH, "reservoir": disk.RESERVOIR}
    with tempfile.TemporaryDirectory(prefix="feedline-share-") as name:
        work = Path(name)
        os.environ["FEEDLINE_CACHE"] = str(work / "cache")
        measured = {
            "disk": partial(_disk, given.pictures, work, given.runs),
            "learning": partial(learning.measure, work / "points"),
        }
        measure("share-sequential.json", measured, given.only, ratios, setup)


if __name__ == "__main__":
    main()
