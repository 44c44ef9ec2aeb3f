"""The benchmark of reading in sequence: its shards are what it says, and the committed run reaches its targets."""

from __future__ import annotations

import json
from pathlib import Path

import feedline as fl
from bench import harness
from bench.share import learning, sequential


def test_the_committed_run_reaches_every_target() -> None:
    results = json.loads((harness.RESULTS / "share-sequential.json").read_text())["results"]
    found = list(sequential.ratios(results))
    assert len(found) == 8
    assert [ratio.name for ratio in found if ratio.verdict != "yes"] == []


def test_data_to_learn_from_is_sorted_by_class_and_cut_into_many_blocks(tmp_path: Path) -> None:
    block = learning.write_shards(tmp_path / "points")
    loader = fl.Loader(fl.tar(tmp_path / "points"), batch_size=200, ragged=("bin",))
    labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == sorted(labels)
    assert len(set(labels)) == learning.CLASSES >= 20
    assert block * learning.BLOCKS <= sum(path.stat().st_size for path in (tmp_path / "points").glob("*.tar"))
