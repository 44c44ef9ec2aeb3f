"""The cache between epochs: the same stream with less work."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save

import feedline as fl
from feedline import ops

DECODE = ops.DecodeImage()
RANDOM = [ops.RandomResizedCrop(24), ops.RandomHorizontalFlip(), ops.Normalize()]
CHAINS = {
    "random after the decoder": [DECODE, *RANDOM],
    "resized before": [DECODE, ops.Resize((40, 50)), *RANDOM],
    "resized and cropped": [DECODE, ops.Resize(40), ops.RandomCrop(24), ops.Normalize()],
    "all deterministic": [DECODE, ops.Resize((40, 50)), ops.Normalize()],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(24):
        save(tmp_path / "pictures" / f"{number:02}.jpg", natural(90 + number, 120, number), quality=85)
    return tmp_path / "pictures"


def make(root: Path, chain: list[ops.Op], **options: Any) -> fl.Loader:
    return fl.Loader(fl.folder(root), chain, batch_size=5, shuffle=True, seed=1, **options)


def stream(loader: fl.Loader, epochs: int = 3) -> list[bytes]:
    return [batch["image"].tobytes() + batch["label"].tobytes() for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("limits", [{"ram": "1GB"}, {"disk": "1GB"}, {"ram": 200_000, "disk": 400_000}], ids=str)
@pytest.mark.parametrize("form", [None, "encoded", "decoded"])
def test_law_1_the_stream_is_the_same_with_a_cache(
    root: Path, chain: list[ops.Op], limits: dict[str, Any], form: Any
) -> None:
    plain = stream(make(root, chain))
    for _ in range(2):
        loader = make(root, chain, cache=fl.cache(**limits, form=form))
        assert stream(loader) == plain
        assert loader.snapshot()["cache"]["hits"] > 0


def test_cached_samples_stay_and_only_those_that_do_not_fit_are_missed(root: Path) -> None:
    pictures = sum((90 + number) * 120 * 3 for number in range(24))
    loader = make(
        root,
        CHAINS["random after the decoder"],
        cache=fl.cache(ram=pictures // 2, form="decoded"),
        tuning=fl.tuning(prefetch_batches=2),
    )
    stream(loader, epochs=2)
    before = loader.snapshot()["cache"]
    stream(loader, epochs=20)
    after = loader.snapshot()["cache"]
    assert before["ram_samples"] == after["ram_samples"]
    assert before["ram_bytes"] == after["ram_bytes"] <= pictures // 2
    # The window reaches into the next epoch, so some of its samples are counted.
    expected = 20 * (24 - after["ram_samples"])
    assert abs(after["misses"] - before["misses"] - expected) <= 20
    assert 8 < after["ram_samples"] < 16


def test_all_that_fits_is_never_read_again(root: Path) -> None:
    loader = make(root, CHAINS["random after the decoder"], cache=fl.cache(ram="1GB", form="decoded"))
    stream(loader, epochs=2)
    read = loader.snapshot()["store"]["bytes"]
    stream(loader, epochs=3)
    assert loader.snapshot()["store"]["bytes"] == read
    # A sample at the end of the first epoch and the start of the second may be read twice at the same time.
    total = sum(path.stat().st_size for path in root.iterdir())
    assert total <= read < 1.5 * total


def test_the_disk_outlives_the_process(root: Path, run_python: Callable[..., str], own_cache: Path) -> None:
    code = """
import sys, feedline as fl
from feedline import ops
chain = [ops.DecodeImage(), ops.Resize((40, 50)), ops.RandomResizedCrop(24)]
loader = fl.Loader(fl.folder(sys.argv[1]), chain, batch_size=24, tuning=fl.tuning(prefetch_batches=1),
                   cache=fl.cache(disk="1GB", form="resized"))
next(iter(loader))
print(loader.snapshot()["ops"][0]["samples"])
"""
    assert int(run_python(code, root)) == 24, "all are decoded once"
    assert int(run_python(code, root)) == 0, "none is decoded again"


def test_a_changed_picture_or_op_is_noticed(root: Path) -> None:
    def images(size: int) -> list[bytes]:
        chain = [DECODE, ops.Resize((size, 50)), ops.RandomHorizontalFlip()]
        return stream(make(root, chain, cache=fl.cache(disk="1GB", form="resized")), epochs=2)

    def plain(size: int) -> list[bytes]:
        return stream(make(root, [DECODE, ops.Resize((size, 50)), ops.RandomHorizontalFlip()]), epochs=2)

    assert images(40) == plain(40)
    assert images(30) == plain(30)
    time.sleep(0.01)
    save(root / "03.jpg", natural(93, 120, 99), quality=85)
    assert images(40) == plain(40)


def test_a_damaged_disk_changes_nothing(root: Path, own_cache: Path) -> None:
    chain = CHAINS["resized before"]
    plain = stream(make(root, chain))
    config = fl.cache(disk="1GB", form="resized")
    stream(make(root, chain, cache=config))
    kept = [path for path in (own_cache / "samples").rglob("*") if path.is_file()]
    random = np.random.default_rng(5)
    for path in kept:
        content = bytearray(path.read_bytes())
        for place in random.integers(0, len(content), 200):
            content[place] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
    assert stream(make(root, chain, cache=config)) == plain


def test_the_disk_stays_below_its_limit_and_is_cleared_by_the_command(root: Path, own_cache: Path) -> None:
    stream(make(root, CHAINS["all deterministic"], cache=fl.cache(disk=50_000)))
    records = sum(path.stat().st_size for path in (own_cache / "samples").rglob("records"))
    assert 0 < records <= 50_000
    assert fl._feedline.run_cli(["feedline", "cache", "clear"]) == 0
    assert not (own_cache / "samples").exists()


def test_the_form_is_chosen_by_what_it_saves_per_byte(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="feedline"):
        stream(make(root, [DECODE, ops.Resize((8, 8)), ops.RandomHorizontalFlip()], cache=fl.cache(ram="1GB")))
    chosen = [record.getMessage() for record in caplog.records if "chose what the cache keeps" in record.getMessage()]
    assert len(chosen) == 1
    assert "resized" in chosen[0], "a tiny result of much work"


def test_a_cache_that_could_keep_nothing_is_refused(root: Path) -> None:
    with pytest.raises(fl.PlanError, match="ram"):
        fl.cache()
    with pytest.raises(fl.PlanError, match="form"):
        fl.cache(ram="1GB", form="raw")  # type: ignore[arg-type]
    with pytest.raises(fl.PlanError, match="cache"):
        make(root, [DECODE], cache="1GB")
    with pytest.raises(fl.PlanError, match="deterministic"):
        make(root, [DECODE, *RANDOM], cache=fl.cache(ram="1GB", form="resized"))


def test_law_1_approximate_pixels_and_damaged_files_are_the_same_with_a_cache(root: Path) -> None:
    for path in list(root.iterdir())[::4]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    options: dict[str, Any] = {"on_error": fl.substitute(1.0)}
    for decode in (ops.DecodeImage(), ops.DecodeImage(fast=True)):
        chain = [decode, ops.RandomResizedCrop(8), ops.Normalize()]
        plain = stream(make(root, chain, **options))
        for form in (None, "encoded", "decoded"):
            if form == "decoded" and decode.fast:
                with pytest.raises(fl.PlanError, match="encoded"):
                    make(root, chain, cache=fl.cache(ram="1GB", form=form), **options)
                continue
            cached = make(root, chain, cache=fl.cache(ram="1GB", disk="1GB", form=form), **options)
            assert stream(cached) == plain, f"{decode} {form}"


def test_a_file_replaced_while_its_sample_is_made_is_not_kept_under_its_new_stamp(root: Path) -> None:
    path = root / "00.jpg"
    save(path, np.full((40, 40, 3), 10, np.uint8))

    def replace(image: np.ndarray) -> np.ndarray:
        if image.mean() < 100:
            save(path, np.full((40, 40, 3), 200, np.uint8))
        return image

    chain = [DECODE, ops.Map(replace, deterministic=True), ops.Resize((8, 8)), ops.RandomHorizontalFlip()]
    means = []
    for _ in range(3):
        source = fl.files({"image": [path]})
        loader = fl.Loader(
            source,
            chain,
            batch_size=1,
            tuning=fl.tuning(prefetch_batches=1),
            cache=fl.cache(disk="1GB", form="resized"),
        )
        means.append(float(next(iter(loader))["image"].mean()))
        loader.close()
    assert means[0] < 100
    assert means[1] > 150
    assert means[2] > 150


def test_a_full_cache_is_not_tried_again(root: Path) -> None:
    loader = make(root, CHAINS["random after the decoder"], cache=fl.cache(ram=100_000, form="decoded"))
    stream(loader, epochs=4)
    snapshot = loader.snapshot()
    # Whole pictures are decoded only while the cache has room. After that, crops read parts of files again.
    assert snapshot["seek_index"]["used"] > 24


def test_the_limit_of_the_disk_is_for_all_chains_together(root: Path, own_cache: Path) -> None:
    for size in (20, 24, 28, 32):
        chain = [DECODE, ops.Resize((size, 30)), ops.RandomHorizontalFlip()]
        stream(make(root, chain, cache=fl.cache(disk=60_000, form="resized")), epochs=1)
    kept = sum(path.stat().st_size for path in (own_cache / "samples").rglob("records"))
    assert 0 < kept <= 60_000 + 4 * 16


def test_clearing_leaves_what_is_not_ours(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path))
    assert fl._feedline.run_cli(["feedline", "pack", str(root), str(tmp_path / "shards")]) == 0
    stream(make(root, CHAINS["random after the decoder"]), epochs=1)
    shards = {path.name for path in (tmp_path / "shards").iterdir()}
    assert fl._feedline.run_cli(["feedline", "cache", "clear"]) == 0
    assert {path.name for path in (tmp_path / "shards").iterdir()} == shards
    assert not (tmp_path / "seek").exists()


def test_a_disk_cache_without_a_folder_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_CACHE", "")
    with pytest.raises(fl.PlanError, match="FEEDLINE_CACHE"):
        make(root, [DECODE, *RANDOM], cache=fl.cache(disk="1GB"))
    with pytest.raises(fl.PlanError, match="ram"):
        make(root, [DECODE, *RANDOM], cache=fl.cache(ram=0))
