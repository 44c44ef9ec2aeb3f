"""Files in ``tests/kept`` as an earlier version wrote them, and the plans that they belong to.

Users have such files, and a new version has to read them, or to refuse them in words. So they are never written again.
When a format changes, its old file moves to a folder named after the old version, with a test that says what becomes of
it, and ``python tests/kept_files.py NAME`` writes the new one beside it.

Records in the cache folder carry a stamp of the file that they were made from: its length and the time of its last
change. :func:`inputs_of_that_time` sets these times.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streams
from stream_case import CASES, state_after
from stream_inputs import Inputs, feedline
from stream_runs import CROPS, KEPT, RESIZED, delayed, pictures

import feedline as fl
from feedline import ops

MODIFIED_NANOSECONDS = 1_700_000_000_123_456_789
"""When the inputs of the kept records were changed last."""

STATES = (
    "shuffle.all", "sampler.weighted", "reservoir.readers", "planned_by_costs.default", "arrival_replayed",
    "rank_padded.2", "bad_samples.shuffled", "tar_with_index", "volume_crop.usual.nii", "picture_op.map_named",
)  # fmt: skip
"""Cases of ``streams.py`` whose states are kept: every order, ranks, substitutes, and several kinds of sources."""

UNORDERED_STATES = ("arrival_of_slow_samples", "carousel")
"""Cases whose kept state decides which samples remain, but not their order."""

PACKED = ("shard-000000.tar", "shard-000000.tar.index", ".pack.jsonl")
"""The files of ``feedline pack`` when it was stopped after its first shard."""


def inputs_of_that_time(root: Path) -> Inputs:
    """Make the inputs of the kept records, with their times."""
    inputs = Inputs(root)
    for folder in (inputs.jpegs, inputs.volumes[".nii"], inputs.bare_shards):
        for path in folder.rglob("*"):
            os.utime(path, ns=(MODIFIED_NANOSECONDS, MODIFIED_NANOSECONDS))
    return inputs


def seeking(inputs: Inputs) -> fl.Loader:
    """Crop pictures by their seek indexes."""
    return pictures(inputs.jpegs, CROPS, num_workers=1)


def keeping(form: Any) -> Callable[[Inputs], fl.Loader]:
    """Keep a few pictures on disk."""

    def make(inputs: Inputs) -> fl.Loader:
        source = fl.folder(inputs.jpegs).subset([0, 9, 17])
        return fl.Loader(source, RESIZED, batch_size=3, num_workers=1, cache=fl.cache(disk="1MB", form=form))

    return make


def keeping_a_volume(inputs: Inputs) -> fl.Loader:
    """Keep a volume on disk, with the foreground of its label."""
    source, chain = fl.volumes(inputs.volumes[".nii"]).subset([0]), [ops.Cast(), ops.RandomBalancedCrop(8)]
    return fl.Loader(source, chain, batch_size=1, num_workers=1, cache=fl.cache(disk="1MB", form="resized"))


SHELVES: dict[str, tuple[str, Callable[[Inputs], fl.Loader]]] = {
    "seek": ("seek", seeking),
    "samples_encoded": ("samples", keeping("encoded")),
    "samples_decoded": ("samples", keeping("decoded")),
    "samples_resized": ("samples", keeping("resized")),
    "samples_volume": ("samples", keeping_a_volume),
}
"""Kept records: the folder of the cache that they lie in, and the loader that uses them."""


def shelf(cache: Path, kind: str) -> Path:
    """Find the one folder of records that a loader has made; its name depends on the path of the inputs."""
    (found,) = (cache / kind).iterdir()
    return found


def write_states(inputs: Inputs) -> None:
    """Write the state of some cases in the middle of an epoch."""
    states: dict[str, Any] = {}
    for name in (*STATES, *UNORDERED_STATES):
        with CASES[name].open(inputs, 3) as loader:
            batches, state = state_after(loader, max(1, len(loader) // 2))
        states[name] = {"state": state}
        if name in UNORDERED_STATES:
            states[name]["received"] = [index for batch in batches for index in batch["index"].tolist()]
    (KEPT / "states.json").write_text(json.dumps(states, indent=1) + "\n")


def write_shelves(inputs: Inputs) -> None:
    """Write the records of an epoch."""
    for name, (kind, make) in SHELVES.items():
        with tempfile.TemporaryDirectory() as cache:
            os.environ["FEEDLINE_CACHE"] = cache
            with make(inputs) as loader:
                list(loader)
            shutil.copytree(shelf(Path(cache), kind), KEPT / name, dirs_exist_ok=True)


def write_shards(inputs: Inputs) -> None:
    """Write a packed shard with its index and its journal, and the indexes of shards that others wrote."""
    target = inputs.root / "packed"
    feedline("pack", inputs.jpegs, target, "--shard-size", "20kB", "--workers", 1)
    (KEPT / "pack").mkdir(exist_ok=True)
    for name in PACKED:
        content = (target / name).read_bytes()
        # The recipe, and the first finished shard.
        content = b"".join(content.splitlines(keepends=True)[:2]) if name == ".pack.jsonl" else content
        (KEPT / "pack" / name.lstrip(".")).write_bytes(content)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FEEDLINE_CACHE"] = cache
        fl.tar(inputs.bare_shards / "part-0.tar")
        shutil.copy(shelf(Path(cache), "shards"), KEPT / "part-0.index")


def write_costs(inputs: Inputs) -> None:
    """Write a file of costs."""
    with delayed(num_workers=2) as loader:
        for _ in range(2):
            list(loader)
        loader.save_costs(KEPT / "costs")


def write_arrivals(inputs: Inputs) -> None:
    """Write the log of a run in arrival order."""
    (KEPT / "run.arrivals").unlink(missing_ok=True)
    with delayed(num_workers=3, order=fl.arrival(log=KEPT / "run.arrivals")) as loader:
        for _ in range(streams.EPOCHS):
            list(loader)


def write_plan(inputs: Inputs) -> None:
    """Write a plan as a document."""
    chain = [
        ops.RandomCrop(6, padding=1, on="data"),
        ops.ColorJitter(0.2, hue=0.1, on="data"),
        ops.Normalize(on="data"),
    ]
    loader = fl.Loader(fl.synthetic(20, (8, 9, 3)), chain, batch_size=3, shuffle=True, seed=9, drop_last=True)
    (KEPT / "plan.toml").write_text(loader.plan.to_toml())


WRITERS = {
    "costs": write_costs,
    "arrivals": write_arrivals,
    "plan": write_plan,
    "shards": write_shards,
    "shelves": write_shelves,
    "states": write_states,
}


def main() -> None:
    """Write some of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=WRITERS)
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        os.environ["FEEDLINE_CACHE"] = f"{root}/cache"
        inputs = inputs_of_that_time(Path(root))
        try:
            for name in parser.parse_args().names:
                WRITERS[name](inputs)
        finally:
            inputs.close()


if __name__ == "__main__":
    main()
