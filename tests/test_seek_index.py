"""Only the data that a crop needs is read and decoded, and the pixels are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save
from PIL import Image

import feedline as fl
from feedline import ops

CHAIN = [ops.DecodeImage(), ops.RandomResizedCrop(32), ops.RandomHorizontalFlip(), ops.Normalize()]
BASELINE = 14
"""Pictures of :func:`flavours` that have a seek index."""


def flavours(root: Path) -> Path:
    """Pictures of every flavour that Pillow writes, and some that have no index."""
    sizes = [(91, 130), (64, 48), (33, 200), (150, 71)]
    number = 0
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        for options in ({}, {"optimize": True}, {"restart_marker_rows": 1}, {"restart_marker_blocks": 3}):
            picture = natural(*sizes[number % 4], seed=number)
            save(root / f"{number:02}.jpg", picture, quality=80 + number, subsampling=subsampling, **options)
            number += 1
    save(root / "grey.jpg", natural(70, 90, 50, channels=1), quality=90)
    turned = Image.Exif()
    turned[0x0112] = 6
    save(root / "turned.jpg", natural(80, 120, 51), quality=85, exif=turned)
    save(root / "progressive.jpg", natural(80, 120, 52), quality=85, progressive=True)
    save(root / "lossless.png", natural(80, 120, 53))
    save(root / "other.webp", natural(80, 120, 54), lossless=True)
    return root


def stream(root: Path, chain: Sequence[ops.Op] = CHAIN, epochs: int = 3, **options: Any) -> list[bytes]:
    loader = fl.Loader(fl.folder(root), chain, batch_size=5, shuffle=True, seed=7, **options)
    return [batch["image"].tobytes() for _ in range(epochs) for batch in loader]


def test_law_1_the_stream_is_the_same_without_index_while_it_is_made_and_with_it(tmp_path: Path) -> None:
    root = flavours(tmp_path / "pictures")
    plain = stream(root, tuning=fl.tuning(seek_index="never"))
    assert stream(root) == plain
    assert stream(root) == plain, "with the indexes of the run before"
    assert stream(root, num_workers=1) == plain


def test_law_8_crops_are_those_of_a_full_decode(tmp_path: Path) -> None:
    root = flavours(tmp_path / "pictures")
    source = fl.folder(root)
    whole = fl.Loader(source, [ops.DecodeImage()], batch_size=1, ragged=("image",))
    pictures = {int(batch["index"][0]): batch["image"][0] for batch in whole}
    for chain in ([ops.DecodeImage(), ops.RandomCrop((20, 30))], [ops.DecodeImage(), ops.CenterCrop(24)]):
        loader = fl.Loader(source, chain, batch_size=1)
        for epoch in range(4):
            for batch in loader:
                index, crop = int(batch["index"][0]), batch["image"][0]
                height, width = pictures[index].shape[:2]
                place = dict(loader.plan.resolve(1, index=index, width=width, height=height, epoch=epoch))
                top, left = int(place["top"]), int(place["left"])
                expected = pictures[index][top : top + crop.shape[0], left : left + crop.shape[1]]
                np.testing.assert_array_equal(crop, expected, err_msg=source.key(index))


def test_the_first_epoch_makes_the_indexes_and_later_ones_read_less(tmp_path: Path) -> None:
    root = flavours(tmp_path / "pictures")
    loader = fl.Loader(fl.folder(root), CHAIN, batch_size=17, tuning=fl.tuning(prefetch_batches=1), drop_last=True)
    next(iter(loader))
    first = loader.snapshot()
    assert first["seek_index"]["made"] == BASELINE
    assert first["seek_index"]["not_seekable"] == 3
    assert first["seek_index"]["busy_seconds"] > 0
    size = sum(path.stat().st_size for path in root.iterdir())
    assert 0 < first["seek_index"]["made_bytes"] < size / 4
    again = fl.Loader(fl.folder(root), CHAIN, batch_size=17, tuning=fl.tuning(prefetch_batches=1), drop_last=True)
    next(iter(again))
    second = again.snapshot()
    assert (second["seek_index"]["made"], second["seek_index"]["not_seekable"]) == (0, 0)
    assert second["seek_index"]["used"] >= BASELINE
    # Read-ahead into the next epoch varies, so bytes are compared per read.
    first_mean, second_mean = (store["bytes"] / store["reads"] for store in (first["store"], second["store"]))
    assert second_mean < first_mean


def test_parts_of_a_source_share_its_indexes(tmp_path: Path, own_cache: Path) -> None:
    root = flavours(tmp_path / "pictures")
    assert fl._feedline.run_cli(["feedline", "index", str(root)]) == 0
    for part in fl.folder(root).split({"train": 0.5, "val": 0.5}).values():
        loader = fl.Loader(part, CHAIN, batch_size=len(part))
        next(iter(loader))
        assert loader.snapshot()["seek_index"]["made"] == 0
        assert loader.snapshot()["seek_index"]["used"] > 0


def test_a_picture_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    root = flavours(tmp_path / "pictures")
    stream(root)
    for number, path in enumerate(sorted(root.glob("*.jpg"))):
        size = path.stat().st_size
        save(path, natural(90, 110, 100 + number), quality=60)
        # The length is the same, so only the time shows the change.
        path.write_bytes(path.read_bytes().ljust(size, b"\0") if path.stat().st_size < size else path.read_bytes())
        os.utime(path, ns=(time.time_ns(), time.time_ns() + number))
    assert stream(root) == stream(root, tuning=fl.tuning(seek_index="never"))


def test_a_damaged_cache_changes_nothing(tmp_path: Path, own_cache: Path) -> None:
    root = flavours(tmp_path / "pictures")
    plain = stream(root, tuning=fl.tuning(seek_index="never"))
    stream(root)
    random = np.random.default_rng(3)
    kept = [path for path in (own_cache / "seek").rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"table", "records"}
    for _ in range(6):
        for path in kept:
            content = bytearray(path.read_bytes())
            for place in random.integers(0, len(content), 60):
                content[place] ^= 1 << int(random.integers(8))
            path.write_bytes(content)
        assert stream(root, epochs=1) == plain[: len(plain) // 3]
    for path in kept:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert stream(root) == plain


def test_damage_below_the_crop_is_not_looked_for_and_damage_in_it_is_an_error(tmp_path: Path) -> None:
    picture = save(tmp_path / "pictures" / "cut.jpg", natural(400, 300, 1), quality=90)
    whole = np.asarray(Image.open(picture))
    picture.write_bytes(picture.read_bytes()[: picture.stat().st_size // 2])
    loader = fl.Loader(fl.folder(picture.parent), [ops.DecodeImage(), ops.CenterCrop(40)], batch_size=1)
    with pytest.raises(fl.SampleError, match="end too early"):
        next(iter(loader))
    top = fl.Loader(fl.folder(picture.parent), [ops.DecodeImage(), ops.RandomCrop(16)], batch_size=1, seed=0)
    found = 0
    for epoch in range(40):
        place = dict(top.plan.resolve(1, index=0, width=300, height=400, epoch=epoch))
        if place["top"] < 100:
            top.set_epoch(epoch)
            crop = next(iter(top))["image"][0]
            y, x = int(place["top"]), int(place["left"])
            np.testing.assert_array_equal(crop, whole[y : y + 16, x : x + 16])
            found += 1
    assert found > 3


def test_without_a_cache_folder_nothing_is_made_and_all_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = flavours(tmp_path / "pictures")
    plain = stream(root, tuning=fl.tuning(seek_index="never"))
    monkeypatch.setenv("FEEDLINE_CACHE", "")
    assert stream(root) == plain
    loader = fl.Loader(fl.folder(root), CHAIN, batch_size=5)
    next(iter(loader))
    assert loader.snapshot()["seek_index"]["made"] == 0


def test_where_the_cache_folder_cannot_be_written_indexes_stay_in_memory_and_one_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = flavours(tmp_path / "pictures")
    plain = stream(root, tuning=fl.tuning(seek_index="never"))
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path / "file"))
    assert stream(root) == plain
    caplog.clear()
    with fl.Loader(fl.folder(root), CHAIN, batch_size=5, cache=fl.cache(disk="1MB")) as loader:
        for _ in range(2):
            list(loader)
    with fl.Loader(fl.folder(root), CHAIN, batch_size=5) as loader:
        for _ in range(2):
            list(loader)
        assert loader.snapshot()["seek_index"]["made"] == BASELINE
        assert loader.snapshot()["seek_index"]["used"] >= BASELINE
    warnings = [record.getMessage() for record in caplog.records if "FEEDLINE_CACHE" in record.getMessage()]
    assert len(warnings) == 2, f"one for each loader: {warnings}"


def test_a_process_killed_while_it_makes_indexes_leaves_a_sound_cache(
    tmp_path: Path, start_python: Callable[..., subprocess.Popen[str]], own_cache: Path
) -> None:
    root = flavours(tmp_path / "pictures")
    plain = stream(root, tuning=fl.tuning(seek_index="never"), epochs=1)
    code = """
import sys, feedline as fl
from feedline import ops
loader = fl.Loader(fl.folder(sys.argv[1]), [ops.DecodeImage(), ops.RandomResizedCrop(32)], batch_size=1)
for _ in loader:
    print("batch", flush=True)
"""
    for stop in (1, 3, 7):
        process = start_python(code, root)
        assert process.stdout is not None
        for _ in range(stop):
            process.stdout.readline()
        process.kill()
        process.wait()
        assert stream(root, epochs=1) == plain


def test_fast_pixels_are_near_the_exact_ones_and_not_the_default(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    for number in range(8):
        save(root / f"{number}.jpg", natural(600, 700, number), quality=90, subsampling=("4:4:4", "4:2:0")[number % 2])
    chain = [ops.RandomResizedCrop(48), ops.ToTensor(dtype="uint8")]
    exact, fast, again = (
        np.concatenate([batch["image"] for batch in fl.Loader(fl.folder(root), [decode, *chain], batch_size=4)])
        for decode in (ops.DecodeImage(), ops.DecodeImage(fast=True), ops.DecodeImage(fast=True))
    )
    np.testing.assert_array_equal(fast, again)
    error = exact.astype(float) - fast
    assert np.abs(error).max() > 0, "approximate means another result"
    assert 10 * np.log10(255**2 / np.mean(error**2)) > 30


def test_the_command_reports_what_it_did(tmp_path: Path, own_cache: Path) -> None:
    root = flavours(tmp_path / "pictures")
    command = [sys.executable, "-m", "feedline", "--json"]
    for made, known in ((BASELINE, 0), (0, BASELINE + 3)):
        done = subprocess.run([*command, "index", str(root)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["made"], report["known"], report["pictures"]) == (made, known, BASELINE + 3)
    done = subprocess.run([*command, "cache", "clear"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert not list(own_cache.iterdir())


def test_indexes_that_cannot_be_kept_are_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = flavours(tmp_path / "pictures")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path / "file"))
    done = subprocess.run(
        [sys.executable, "-m", "feedline", "index", str(root)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "cannot write to the cache folder" in done.stderr
