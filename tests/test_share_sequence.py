"""Jobs that share what is read in sequence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import folder_of
from nodes import look

import feedline as fl
from feedline import ops, testing

pytestmark = pytest.mark.usefixtures("nothing_left", "node")


def test_law_2_with_a_reservoir_segments_are_read_in_sequence_and_come_once_an_epoch(
    tmp_path: Path, socket: Path
) -> None:
    folder_of(tmp_path / "pictures", 120)
    command = [sys.executable, "-m", "feedline", "pack", str(tmp_path / "pictures"), str(tmp_path / "shards")]
    subprocess.run([*command, "--shard-size", "100kB"], check=True, capture_output=True)
    shards = fl.tar(testing.slow_disk(tmp_path / "shards" / "*.tar", seek_ms=0.1, mb_per_second=1000))
    chain = [ops.DecodeImage(), ops.Resize((8, 8))]

    def loader(**options: Any) -> fl.Loader:
        shuffle = fl.reservoir(0.2, readers=2, block="1MB")
        return fl.Loader(shards, chain, batch_size=8, shuffle=shuffle, **options)

    with loader() as own:
        wanted = {
            int(i): image.copy() for batch in own for i, image in zip(batch["index"], batch["image"], strict=True)
        }
    with loader(share=str(socket)) as first, loader(share=str(socket)) as second:
        for _ in range(2):
            for one in (first, second):
                got = {}
                order = []
                for batch in one:
                    got.update(zip(batch["index"].tolist(), batch["image"].copy(), strict=True))
                    order += batch["index"].tolist()
                assert sorted(order) == list(range(120)) != order
                assert all(np.array_equal(got[index], wanted[index]) for index in wanted)
        (run,) = look(socket)["runs"]
        reservoir, produced = run["engine"]["reservoir"], run["produced_samples"]
        assert 0 < reservoir["reads"] < produced / 2, "neighbours are read together"
        assert reservoir["bytes"] <= reservoir["peak_bytes"]
