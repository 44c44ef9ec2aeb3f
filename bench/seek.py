"""Seek indexes, shards and approximate decoding on real pictures: `python -m bench.seek FOLDER ...`.

For each folder: how fast `feedline index` is and how large the indexes are; whether crops cut out by index are those of
a full decode; how much less is read of packed shards; how fast `feedline pack` is against `tar`; how far approximate
pixels are from exact ones. Last, the time to the first batch of a thousand shards. Written to bench/results/seek.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import feedline as fl
from bench import harness
from feedline import ops

CACHE = "FEEDLINE_CACHE"
CROPS_PER_PICTURE = 40
EPOCHS = 8
RUNS = 3


def _command(*arguments: object) -> Any:
    command = [sys.executable, "-m", "feedline", "--json", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _crops(folder: Path) -> Any:
    example = ["cargo", "run", "-q", "--release", "-p", "feedline-codec", "--example", "seek_speed", "--"]
    ended = subprocess.run(
        [*example, str(folder), str(CROPS_PER_PICTURE), "--json"], check=True, capture_output=True, text=True
    )
    return json.loads(ended.stdout)


def _fresh_cache(work: Path, number: int) -> None:
    os.environ[CACHE] = str(work / f"cache-{number}")


def _index(folder: Path, work: Path) -> dict[str, float]:
    best: dict[str, float] = {"pictures_per_second": 0.0}
    for number in range(RUNS):
        _fresh_cache(work, number)
        report = _command("index", folder)
        if report["pictures_per_second"] > best["pictures_per_second"]:
            best = {
                "pictures_per_second": report["pictures_per_second"],
                "index_share": report["index_bytes"] / report["walked_bytes"],
                "served_share": report["made"] / report["pictures"],
            }
    return best


def _pack(folder: Path, work: Path) -> dict[str, float]:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    pack, tar = [], []
    for number in range(RUNS):
        start = time.perf_counter()
        subprocess.run(["tar", "cf", work / f"plain-{number}.tar", "-C", folder, "."], check=True)
        subprocess.run(["sync", work / f"plain-{number}.tar"], check=True)
        tar.append(time.perf_counter() - start)
        pack.append(_command("pack", folder, work / f"shards-{number}")["seconds"])
    return {"pack_mb_per_second": size / 1e6 / min(pack), "tar_and_sync_mb_per_second": size / 1e6 / min(tar)}


def _images(source: fl.Source, fast: bool = False) -> tuple[np.ndarray, int]:
    chain = [ops.DecodeImage(fast=fast), ops.RandomResizedCrop(224), ops.ToTensor(dtype="uint8")]
    loader = fl.Loader(source, chain, batch_size=50)
    images = np.concatenate([batch["image"] for batch in loader])
    return images, loader.snapshot()["store"]["bytes"]


def _bytes_read(folder: Path, work: Path) -> float:
    """Compares the bytes of whole files with those read from shards, over a few epochs of RandomResizedCrop."""
    read = []
    for source, seek_index in ((fl.folder(folder), "never"), (fl.tar(str(work / "shards-0" / "*.tar")), "auto")):
        chain = [ops.DecodeImage(), ops.RandomResizedCrop(224)]
        loader = fl.Loader(
            source, chain, batch_size=len(source), tuning=fl.tuning(prefetch_batches=1, seek_index=seek_index)
        )
        for _ in range(EPOCHS):
            for _ in loader:
                pass
        snapshot = loader.snapshot()
        # Per decoded sample, because some samples of the next epoch are read ahead.
        read.append(snapshot["store"]["bytes"] / snapshot["ops"][0]["samples"])
    whole, trimmed = read
    return whole / trimmed


def _approximate(folder: Path) -> dict[str, float]:
    exact, _ = _images(fl.folder(folder))
    fast, _ = _images(fl.folder(folder), fast=True)
    error = exact.astype(np.int16) - fast
    square = (error.astype(np.float64) ** 2).mean(axis=(1, 2, 3))
    decibels = 10 * np.log10(255**2 / np.maximum(square, 1e-9))
    changed = square > 0
    return {
        "psnr_of_all_db": float(10 * np.log10(255**2 / square.mean())),
        "psnr_worst_picture_db": float(decibels[changed].min()),
        "max_difference": int(np.abs(error).max()),
        "p99_9_difference": float(np.percentile(np.abs(error), 99.9)),
    }


def _thousand_shards(work: Path) -> dict[str, float]:
    _command("synth", work / "small", "--images", 1000, "--size", "64-96")
    _command("pack", work / "small", work / "many", "--shard-size", 2048)
    shards = len(list((work / "many").glob("*.tar")))
    code = (
        "import time, sys; import feedline as fl; from feedline import ops; start = time.perf_counter();"
        "loader = fl.Loader(fl.tar(sys.argv[1]), [ops.DecodeImage(), ops.RandomResizedCrop(64), ops.Normalize()],"
        "batch_size=64, shuffle=True); next(iter(loader)); print(time.perf_counter() - start)"
    )
    pattern = str(work / "many" / "*.tar")
    command = [sys.executable, "-c", code, pattern]
    times = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(RUNS)]
    return {"shards": shards, "first_batch_seconds": min(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    results: dict[str, Any] = {}
    for folder in parser.parse_args().folders:
        with tempfile.TemporaryDirectory(prefix="feedline-bench-") as name:
            work = Path(name)
            results[folder.name] = {
                "index": _index(folder, work),
                "crops": _crops(folder.resolve()),
                "pack": _pack(folder, work),
                "fewer_bytes_read": _bytes_read(folder, work),
                "approximate": _approximate(folder),
            }
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as name:
        _fresh_cache(Path(name), 0)
        results["thousand_shards"] = _thousand_shards(Path(name))
    document = {"setup": harness.setup(), "results": results}
    print(json.dumps(document, indent=1))
    (harness.RESULTS / "seek.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
