"""Requests and bytes of object stores: `python -m bench.object FOLDER`.

Packs the pictures, puts the shards into a bucket of a real S3-compatible server (moto) on loopback, and reads them for
a few epochs of RandomResizedCrop, once with the seek index and once without. Counts bytes and requests, both as the
loader counts them and as they come to the server; takes no times, since such servers are not fast. Written to
bench/results/object.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import feedline as fl
from bench import harness
from feedline import ops

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from buckets import Bucket, Counts, bucket_server

EPOCHS = 10
BATCH_SIZE = 50
SHARD_BYTES = 12_000_000


def _epochs(bucket: Bucket, url: str, seek_index: Any) -> dict[str, float]:
    bucket.proxy.counts = opening = Counts()
    source = fl.tar(f"{url}/*.tar")
    bucket.proxy.counts = training = Counts()
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.ToTensor(dtype="uint8")]
    loader = fl.Loader(source, chain, batch_size=BATCH_SIZE, shuffle=True, tuning=fl.tuning(seek_index=seek_index))
    received = []
    for _ in range(EPOCHS):
        for _ in loader:
            pass
        received.append(loader.snapshot()["store"]["bytes_received_epoch"])
    loader.close()
    store, samples = loader.snapshot()["store"], EPOCHS * len(source)
    return {
        "samples": len(source),
        "bytes_per_sample": sum(received) / samples,
        # Includes samples of the next epoch that were fetched ahead.
        "requests_per_sample": store["requests"] / samples,
        "retries": store["retries"],
        "opening_requests": opening.requests,
        "opening_bytes": opening.body_bytes,
        "server_bytes_over_counted": training.body_bytes / store["bytes_received"],
        "server_requests_over_counted": training.requests / store["requests"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as name, pytest.MonkeyPatch.context() as patch:
        work = Path(name)
        os.environ["FEEDLINE_CACHE"] = str(work / "cache")
        pack = ["pack", folder, work / "shards", "--shard-size", SHARD_BYTES]
        subprocess.run([sys.executable, "-m", "feedline", *map(str, pack)], check=True, capture_output=True)
        with bucket_server(patch) as bucket:
            url, shards = bucket.put(work / "shards"), len(list((work / "shards").glob("*.tar")))
            trimmed, whole = _epochs(bucket, url, "auto"), _epochs(bucket, url, "never")
    results: dict[str, Any] = {
        folder.name: {
            "pictures": len(files),
            "mean_file_bytes": sum(files) / len(files),
            "shards": shards,
            "epochs": EPOCHS,
            "seek_index": trimmed,
            "whole_samples": whole,
            "fewer_bytes": sum(files) / len(files) / trimmed["bytes_per_sample"],
        }
    }
    document = {"setup": harness.setup(), "results": results}
    print(json.dumps(document, indent=1))
    (harness.RESULTS / "object.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
