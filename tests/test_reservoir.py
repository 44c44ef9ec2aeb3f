"""Sequential shuffle: shards are read in sequence, each sample comes once, a resume is exact, even after kill -9."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buckets import Bucket, bucket_server
from making import HANG_SECONDS, natural, save

import feedline as fl
from feedline import ops, testing

SAMPLES, CLASSES = 120, 6
CROP = [ops.DecodeImage(), ops.RandomResizedCrop(12), ops.Normalize()]
RESERVOIR = fl.reservoir(20, readers=3, block="20kB")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures sorted by class, packed into a few shards with their indexes."""
    root = tmp_path_factory.mktemp("reservoir")
    for number in range(SAMPLES):
        name = f"class{number * CLASSES // SAMPLES}/{number:04}.jpg"
        save(root / "plain" / name, natural(48, 64, seed=number), quality=85)
    size = sum(path.stat().st_size for path in (root / "plain").rglob("*.jpg"))
    pack = ["pack", root / "plain", root / "shards", "--shard-size", size // 4]
    subprocess.run([sys.executable, "-m", "feedline", *map(str, pack)], check=True, capture_output=True)
    assert len(list((root / "shards").glob("*.tar"))) > 2
    return root / "shards"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket_server(monkeypatch) as server:
        yield server


def loader_over(place: Any, **options: Any) -> fl.Loader:
    return fl.Loader(fl.tar(place), CROP, **({"batch_size": 7, "shuffle": RESERVOIR, "seed": 2} | options))


def contents(batches: Any) -> list[tuple[bytes, ...]]:
    return [tuple(array.tobytes() for array in batch.values()) for batch in batches]


def ids(batches: Any) -> list[int]:
    return [int(index) for batch in batches for index in batch["index"]]


def test_law_2_every_epoch_has_each_sample_once_in_another_order(shards: Path) -> None:
    loader = loader_over(shards)
    epochs = [ids(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in epochs)
    assert epochs[1] == loader.plan.indices(1)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_law_3_the_stream_does_not_depend_on_threads(shards: Path, workers: int) -> None:
    assert contents(loader_over(shards, num_workers=workers)) == contents(loader_over(shards, num_workers=3))


def test_law_1_samples_are_those_of_a_full_shuffle(shards: Path) -> None:
    def prepared(**options: Any) -> dict[int, bytes]:
        batches = list(loader_over(shards, **options))
        return {
            int(i): image.tobytes()
            for batch in batches
            for i, image in zip(batch["index"], batch["image"], strict=True)
        }

    assert prepared() == prepared(shuffle=True)


def test_a_plan_keeps_the_reservoir(shards: Path) -> None:
    loader = loader_over(shards)
    text = loader.plan.to_toml()
    assert 'kind = "reservoir"' in text
    assert contents(fl.Loader.from_plan(fl.Plan.from_toml(text))) == contents(loader)


def test_law_2_ranks_divide_an_epoch(shards: Path) -> None:
    for world in (2, 3, 8):
        seen: list[int] = []
        for rank in range(world):
            for batch in loader_over(shards, rank=rank, world_size=world):
                padded = batch.get("padded", np.zeros(len(batch["index"]), bool))
                seen += [int(index) for index, padding in zip(batch["index"], padded, strict=True) if not padding]
        assert sorted(seen) == list(range(SAMPLES))


@pytest.mark.parametrize("received", [0, 1, 8, 16, 17])
def test_law_4_a_resume_gives_the_rest(shards: Path, received: int) -> None:
    whole = contents(loader_over(shards))
    first = loader_over(shards, num_workers=2)
    batches = iter(first)
    begin = [next(batches) for _ in range(received)]
    state = json.loads(json.dumps(first.state_dict()))
    second = loader_over(shards, num_workers=5)
    second.load_state_dict(state)
    assert contents(begin) + contents(second) == whole


CHILD = """
import json, os, sys
import feedline as fl
from feedline import ops
loader = fl.Loader(fl.tar(sys.argv[1]), [ops.DecodeImage(), ops.RandomResizedCrop(12), ops.Normalize()],
                   batch_size=7, shuffle=fl.reservoir(20, readers=3, block="20kB"), seed=2)
if len(sys.argv) > 3:
    loader.load_state_dict(json.loads(open(sys.argv[2]).read().splitlines()[-1])["state"])
with open(sys.argv[2], "a") as log:
    for batch in loader:
        log.write(json.dumps({"ids": batch["index"].tolist(), "state": loader.state_dict()}) + "\\n")
        log.flush()
        if len(sys.argv) == 3:
            print("batch", flush=True)
            sys.stdin.readline()
"""


def test_law_4_a_job_killed_with_kill_9_goes_on_where_it_was(shards: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = [sys.executable, "-c", CHILD, str(shards), str(log)]
    child = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    for _ in range(5):
        child.stdout.readline()
        child.stdin.write("\n")
        child.stdin.flush()
    child.stdout.readline()
    child.kill()
    child.wait()
    subprocess.run([*run, "resume"], check=True, timeout=60)
    received = [index for line in log.read_text().splitlines() for index in json.loads(line)["ids"]]
    assert received == loader_over(shards).plan.indices(0)


def test_law_4_within_an_epoch_the_world_size_has_to_stay(shards: Path) -> None:
    loader = loader_over(shards, rank=1, world_size=2)
    begin = loader.state_dict()
    next(iter(loader))
    other = loader_over(shards, rank=0, world_size=3)
    with pytest.raises(fl.StateError, match="over 2 ranks, but this loader has world_size 3"):
        other.load_state_dict(loader.state_dict())
    other.load_state_dict(begin)
    with pytest.raises(fl.StateError, match="shuffle"):
        loader_over(shards, shuffle=fl.reservoir(21)).load_state_dict(begin)


def test_shards_in_a_bucket_give_the_same_stream_in_few_requests(bucket: Bucket, shards: Path) -> None:
    loader = loader_over(bucket.put(shards))
    assert contents(loader) == contents(loader_over(shards))
    snapshot = loader.snapshot()
    assert 0 < snapshot["reservoir"]["reads"] < SAMPLES
    assert snapshot["store"]["bytes_received"] >= snapshot["reservoir"]["read_bytes"]
    loader.close()


def test_law_7_a_bucket_that_never_answers_does_not_keep_a_loader_from_closing(bucket: Bucket, shards: Path) -> None:
    loader = loader_over(bucket.put(shards))
    next(iter(loader))
    bucket.proxy.fault = lambda method, path: "hang"
    loader.set_epoch(7)
    threading.Timer(0.3, loader.close).start()
    start = time.monotonic()
    with pytest.raises(fl.ClosedError):
        ids(loader)
    assert time.monotonic() - start < HANG_SECONDS


def test_faults_of_a_bucket_cost_time_and_nothing_else(bucket: Bucket, shards: Path) -> None:
    loader = loader_over(bucket.put(shards))
    numbers = iter(range(10**9))
    bucket.proxy.fault = lambda method, path: {0: "503", 2: "cut"}.get(next(numbers) % 4)
    assert contents(loader) == contents(loader_over(shards))


def test_shards_of_a_storage_server_give_the_same_stream(serve: Callable[..., Any], shards: Path) -> None:
    _, address = serve(shards.parent)
    assert contents(loader_over(f"feedline://{address}/{shards.name}")) == contents(loader_over(shards))


def test_a_slow_disk_gives_the_same_bytes_later(shards: Path) -> None:
    slow = testing.slow_disk(shards, seek_ms=1, mb_per_second=20)
    assert contents(loader_over(slow)) == contents(loader_over(shards))
    plain = loader_over(slow, shuffle=True)
    assert contents(plain) == contents(loader_over(shards, shuffle=True))
    folder = fl.folder(testing.slow_disk(shards.parent / "plain", seek_ms=0, mb_per_second=1000))
    assert len(folder) == SAMPLES
    with pytest.raises(fl.PlanError, match="cannot read"):
        testing.slow_disk(shards, mb_per_second=0)


def test_a_disk_that_seeks_slowly_is_read_much_faster_in_sequence(shards: Path) -> None:
    def seconds(**options: Any) -> float:
        disk = testing.slow_disk(shards, seek_ms=20, mb_per_second=100)
        with loader_over(disk, num_workers=1, **options) as loader:
            begun = time.monotonic()
            assert len(ids(loader)) == SAMPLES
            return time.monotonic() - begun

    assert seconds(shuffle=fl.reservoir(20, readers=1)) < seconds(shuffle=True) / 2


def test_held_samples_are_reported_and_freed(shards: Path) -> None:
    loader = loader_over(shards, tuning=fl.tuning(prefetch_batches=2))
    assert loader_over(shards, shuffle=True).snapshot()["reservoir"] is None
    batches = iter(loader)
    next(batches)
    held = loader.snapshot()["reservoir"]
    assert held["size"] == 20
    assert held["samples"] >= 10
    assert 0 < held["bytes"] <= held["peak_bytes"]
    del batches
    assert loader.snapshot()["reservoir"]["bytes"] == 0


@pytest.mark.parametrize(
    ("shuffle", "words"),
    [
        (fl.reservoir(0), "size is 0"),
        (fl.reservoir(1.5), "size is 1.5"),
        (fl.reservoir("many"), "size is 'many'"),  # type: ignore[arg-type]
        (fl.reservoir(readers=0), "readers is 0"),
        (fl.reservoir(block="much"), "shuffle is .*'block': 'much'"),
        ("yes", "shuffle is 'yes'; it must be True, False or fl.reservoir"),
    ],
)
def test_wrong_reservoirs_are_refused(shards: Path, shuffle: Any, words: str) -> None:
    with pytest.raises(fl.PlanError, match=words):
        loader_over(shards, shuffle=shuffle)


def test_sources_without_anything_to_read_in_sequence_say_what_to_do(pictures: Callable[..., Path]) -> None:
    for source in (fl.folder(pictures(4)), fl.synthetic(4, 3)):
        with pytest.raises(fl.PlanError, match=r"feedline pack .* fl\.tar"):
            fl.Loader(source, batch_size=2, shuffle=RESERVOIR, ragged=("image",) if "image" in source.fields else ())


def test_a_cache_beside_a_reservoir_is_refused(shards: Path) -> None:
    with pytest.raises(fl.PlanError, match="cache is given with a reservoir"):
        loader_over(shards, cache=fl.cache(ram="1MB"))


def test_a_reservoir_that_hardly_fits_into_memory_is_warned_of(
    shards: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("feedline.environment.memory_bytes", lambda: 100_000)
    with caplog.at_level(logging.WARNING, logger="feedline"):
        next(iter(loader_over(shards, shuffle=fl.reservoir(1.0))))
    assert "use a smaller reservoir" in caplog.text


def test_a_damaged_sample_fails_by_name_and_can_be_replaced(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    copy.mkdir()
    for path in shards.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    last = sorted(copy.glob("*.tar"))[-1]
    loader = loader_over(copy, on_error=fl.substitute(0.5))
    source_len = last.stat().st_size
    with last.open("r+b") as file:
        file.truncate(source_len // 2)
    seen = ids(loader)
    assert len(seen) == SAMPLES
    snapshot = loader.snapshot()
    assert 0 < snapshot["substituted"] < SAMPLES // 2
    assert all(last.name in entry["reason"] for entry in snapshot["substitutes"])
    with pytest.raises((fl.SampleError, fl.SourceError), match=last.name):
        ids(loader_over(copy))


def test_the_command_reports_the_quality_of_a_shuffle(shards: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(loader_over(shards, shuffle=fl.reservoir(3, readers=1)).plan.to_toml())
    run = [sys.executable, "-m", "feedline", "shuffle", str(plan), "--json"]
    report = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    assert "sorted by class" in report["warning"]
    assert report["plan"]["labels"]["classes_per_batch"] < report["full"]["labels"]["classes_per_batch"]
