"""Files of earlier versions, in ``tests/kept``, are used. Files of an unknown version are refused or rebuilt."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streams
from kept_files import PACKED, SHELVES, STATES, UNORDERED_STATES, inputs_of_that_time, shelf
from stream_case import CASES, batch_hash, joined, measured
from stream_inputs import Inputs
from stream_runs import KEPT, delayed

import feedline as fl
from feedline import ops

MAX_BYTES = 200_000
CROP = [ops.DecodeImage(), ops.RandomResizedCrop(16)]
TOO_NEW = 99


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    inputs = inputs_of_that_time(tmp_path_factory.mktemp("inputs"))
    yield inputs
    inputs.close()


def kept_state(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((KEPT / "states.json").read_text())[name]
    return kept


def bytes_of(loader: fl.Loader) -> list[str]:
    with loader:
        return [batch_hash(batch) for _ in range(streams.EPOCHS) for batch in loader]


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) < MAX_BYTES


@pytest.mark.parametrize("name", STATES)
def test_law_4_a_kept_state_gives_the_rest_of_its_stream(inputs: Inputs, name: str) -> None:
    with CASES[name].open(inputs, 2) as loader:
        loader.load_state_dict(kept_state(name)["state"])
        rest = [batch_hash(batch) for _ in range(streams.EPOCHS) for batch in loader]
    assert joined(rest) == streams.committed()[name]["resumed"]


@pytest.mark.parametrize("name", UNORDERED_STATES)
def test_law_4_a_kept_state_without_a_fixed_order_gives_each_sample_that_is_left(inputs: Inputs, name: str) -> None:
    kept = kept_state(name)
    with CASES[name].open(inputs, 2) as loader:
        loader.load_state_dict(kept["state"])
        rest = [index for batch in loader for index in batch["index"].tolist()]
        assert sorted(rest + kept["received"]) == list(range(len(loader.source)))
        assert rest


@pytest.mark.parametrize("name", ["shuffle.all", "carousel"])
def test_a_state_of_a_later_format_is_refused_and_says_what_to_do(inputs: Inputs, name: str) -> None:
    state = kept_state(name)["state"]
    versions = rf"the state has format {TOO_NEW}, but this version reads format {state['feedline']}"
    words = versions + "; use the version .* set_epoch"
    with CASES[name].open(inputs, 1) as loader, pytest.raises(fl.StateError, match=words):
        loader.load_state_dict(state | {"feedline": TOO_NEW})


def kept_shard(folder: Path, version: int | None = None) -> Path:
    """Copy the packed shard and its index, whose version stands in bytes 8 to 12."""
    for name in PACKED[:2]:
        shutil.copy(KEPT / "pack" / name, folder)
    if version is not None:
        index = folder / PACKED[1]
        index.write_bytes(with_version(index.read_bytes(), version))
    return folder / PACKED[0]


def with_version(index: bytes, version: int) -> bytes:
    return index[:8] + version.to_bytes(4, "little") + index[12:]


def shard_stream(shard: Path) -> list[str]:
    return bytes_of(fl.Loader(fl.tar(shard), CROP, batch_size=2, shuffle=True, num_workers=1))


def test_a_kept_shard_index_is_used(tmp_path: Path, own_cache: Path) -> None:
    source = fl.tar(kept_shard(tmp_path))
    # Only the index has the names of the classes. A rebuilt one would be in the cache folder.
    assert source.classes == ["class-00", "class-01", "class-02"]
    with fl.Loader(source, CROP, batch_size=4, num_workers=1) as loader:
        list(loader)
        seek = loader.snapshot()["seek_index"]
    assert (seek["made"], seek["used"] >= 4) == (0, True)
    assert not (own_cache / "shards").exists()


def test_a_shard_index_of_a_later_version_is_made_again(
    tmp_path: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = shard_stream(kept_shard(tmp_path))
    shard = kept_shard(tmp_path, version=TOO_NEW)
    with caplog.at_level(logging.INFO, logger="feedline"):
        assert shard_stream(shard) == expected
    assert "rebuilt indexes that were stale or damaged" in caplog.text
    assert len(list((own_cache / "shards").iterdir())) == 1


@pytest.mark.parametrize("version", [None, TOO_NEW])
def test_a_kept_index_in_the_cache_folder_is_used_or_made_again(
    inputs: Inputs, own_cache: Path, version: int | None
) -> None:
    shard = inputs.bare_shards / "part-0.tar"
    fl.tar(shard)
    place = shelf(own_cache, "shards")
    kept = (KEPT / "part-0.index").read_bytes()
    assert place.read_bytes() == kept, "the same file is written today"
    place.write_bytes(kept if version is None else with_version(kept, version))
    before = place.stat()
    assert len(fl.tar(shard)) == 6
    is_replaced = place.stat().st_ino != before.st_ino
    assert is_replaced == (version is not None)
    assert place.read_bytes() == kept


@pytest.mark.parametrize("name", SHELVES)
def test_kept_records_of_the_cache_folder_are_used(inputs: Inputs, own_cache: Path, name: str) -> None:
    kind, make = SHELVES[name]
    expected = bytes_of(make(inputs))
    place = shelf(own_cache, kind)
    for file in ("table", "records"):
        shutil.copy(KEPT / name / file, place / file)
    with make(inputs) as loader:
        assert [batch_hash(batch) for _ in range(streams.EPOCHS) for batch in loader] == expected
        counts = loader.snapshot()
    if kind == "seek":
        assert (counts["seek_index"]["made"], counts["seek_index"]["used"] > 0) == (0, True)
    else:
        assert (counts["cache"]["misses"], counts["cache"]["hits"] > 0) == (0, True)
    assert (place / "records").read_bytes() == (KEPT / name / "records").read_bytes()


@pytest.mark.parametrize("name", SHELVES)
def test_records_of_a_later_version_are_made_again(inputs: Inputs, own_cache: Path, name: str) -> None:
    kind, make = SHELVES[name]
    expected = bytes_of(make(inputs))
    place = shelf(own_cache, kind)
    for file in ("table", "records"):
        content = (KEPT / name / file).read_bytes()
        assert content[:15] == b"feedline shelf ", "the version is the next byte"
        (place / file).write_bytes(content[:15] + b"~" + content[16:])
    with make(inputs) as loader:
        assert [batch_hash(batch) for _ in range(streams.EPOCHS) for batch in loader] == expected
        counts = loader.snapshot()
    assert (counts["seek_index"]["made"] if kind == "seek" else counts["cache"]["misses"]) > 0
    assert (place / "records").read_bytes()[:16] == (KEPT / name / "records").read_bytes()[:16]


def test_a_kept_file_of_costs_is_used_and_one_of_a_later_version_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    digests = measured("planned_by_costs.default", inputs)
    assert digests == streams.committed()["planned_by_costs.default"]
    with delayed(order=fl.planned()) as plain, delayed(order=fl.planned(costs=KEPT / "costs")) as loader:
        assert loader.plan.indices(0) != plain.plan.indices(0), "the file decides"
    content = (KEPT / "costs").read_bytes()
    assert content[:15] == b"feedline costs ", "the version is the next byte"
    (tmp_path / "costs").write_bytes(content[:15] + b"~" + content[16:])
    with pytest.raises(fl.PlanError, match="damaged, or belongs to a plan"):
        delayed(order=fl.planned(costs=tmp_path / "costs"))


@pytest.mark.parametrize("version", [None, b"~"])
def test_kept_costs_in_the_cache_folder_are_used_or_measured_again(
    own_cache: Path, version: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    bytes_of(delayed(num_workers=1))
    content = (KEPT / "costs").read_bytes()
    shelf(own_cache, "costs").write_bytes(content if version is None else content[:15] + version + content[16:])
    with caplog.at_level(logging.WARNING, logger="feedline"), delayed(num_workers=1) as loader:
        known = loader.costs()
    assert (known.max() > 0.002) == (version is None)
    assert ("are measured again" in caplog.text) == (version is not None)


def test_a_kept_log_of_arrivals_is_replayed_and_one_of_a_later_version_is_refused(
    inputs: Inputs, tmp_path: Path
) -> None:
    lines = (KEPT / "run.arrivals").read_text().splitlines(keepends=True)
    with delayed(order="strict") as strict, delayed(order=fl.arrival(replay=KEPT / "run.arrivals")) as loader:
        order = strict.plan.indices(0)
        for batch, line in zip(loader, lines[1:], strict=False):
            assert batch["index"].tolist() == [order[number] for number in json.loads(line)["numbers"]]
    title = json.loads(lines[0]) | {"feedline_arrivals": TOO_NEW}
    (tmp_path / "log").write_text("".join([json.dumps(title) + "\n", *lines[1:]]))
    with pytest.raises(fl.PlanError, match="log"):
        delayed(order=fl.arrival(replay=tmp_path / "log"))


@pytest.mark.parametrize("version", [None, TOO_NEW])
def test_a_kept_journal_lets_packing_go_on_and_one_of_a_later_version_is_refused(
    inputs: Inputs, tmp_path: Path, version: int | None
) -> None:
    shard = kept_shard(tmp_path)
    recipe, finished = (KEPT / "pack/pack.jsonl").read_text().splitlines(keepends=True)
    if version is not None:
        recipe = json.dumps(json.loads(recipe) | {"format": version}) + "\n"
    (tmp_path / PACKED[2]).write_text(recipe + finished)
    before = shard.stat()
    command = [sys.executable, "-m", "feedline", "pack", str(inputs.jpegs), str(tmp_path), "--shard-size", "20kB"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == (version is None), done.stderr
    assert shard.stat() == before, "the finished shard is left as it is"
    if version is None:
        assert len(fl.tar(tmp_path)) == 24
        assert (tmp_path / "shard-000001.tar").read_bytes() == (inputs.shards / "shard-000001.tar").read_bytes()
    else:
        assert "other" in done.stderr


def test_a_kept_plan_is_read_and_one_of_a_later_version_is_refused() -> None:
    text = (KEPT / "plan.toml").read_text()
    plan = fl.Plan.from_toml(text)
    assert plan.to_toml() == text
    assert plan.ops == ["RandomCrop", "ColorJitter", "Normalize"]
    with pytest.raises(fl.PlanError, match=f"{TOO_NEW}"):
        fl.Plan.from_toml(text.replace("feedline = 1", f"feedline = {TOO_NEW}"))
