"""``feedline pack``: shards that the real WebDataset package and tar read, and that give the stream of their source."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from making import labels_mask, natural, save
from PIL import Image

import feedline as fl
from feedline import ops

DECODE = [ops.DecodeImage()]
CROP = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.Normalize()]


def pack(source: Path | str, target: Path, *options: str, code: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "feedline", "pack", str(source), str(target), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def everything(source: fl.Source, chain: list[ops.Op], **options: Any) -> Any:
    (batch,) = list(fl.Loader(source, chain, batch_size=len(source), **options))
    return batch


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of pictures in several formats, sizes and depths."""
    for number, (name, options) in enumerate(
        [
            ("ant/a.jpg", {"quality": 90}),
            ("ant/b.jpeg", {"quality": 80, "progressive": True}),
            ("ant/deep/c.png", {}),
            ("bee/d.webp", {"lossless": True}),
            ("bee/e.JPG", {"quality": 95}),
            ("cow/f.bmp", {}),
            ("cow/g.gif", {}),
        ]
    ):
        save(tmp_path / "mixed" / name, natural(24 + number, 40 - number, seed=number), **options)
    grey = natural(24, 24, seed=9, channels=1)
    save(tmp_path / "mixed" / "cow/h.jpg", grey)
    return tmp_path / "mixed"


def test_shards_are_ordinary_tar_files_that_webdataset_reads(mixed: Path, tmp_path: Path) -> None:
    summary = pack(mixed, tmp_path / "out")
    assert (summary["samples"], summary["shards"], summary["damaged"], summary["renamed"]) == (8, 1, 0, 0)
    shard = tmp_path / "out" / "shard-000000.tar"
    assert summary["bytes"] == shard.stat().st_size
    with tarfile.open(shard) as archive:
        for name in ("ant/b.jpeg", "ant/deep/c.png", "bee/e.JPG"):
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == (mixed / name).read_bytes()
    theirs = list(webdataset.WebDataset(str(shard), shardshuffle=False))
    assert [sample["__key__"] for sample in theirs][:5] == ["ant/a", "ant/b", "ant/deep/c", "bee/d", "bee/e"]
    assert [int(sample["cls"]) for sample in theirs] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert theirs[4]["jpg"] == (mixed / "bee/e.JPG").read_bytes()


@pytest.mark.parametrize("form", ["--as-is", "--pixels"])
def test_a_folder_and_its_shards_give_the_same_stream(mixed: Path, tmp_path: Path, form: str) -> None:
    pack(mixed, tmp_path / "out", form, "--shard-size", "9kB")
    folder, shards = fl.folder(mixed), fl.tar(tmp_path / "out/*.tar")
    assert len(list((tmp_path / "out").glob("*.tar"))) > 1
    assert shards.classes == folder.classes == ["ant", "bee", "cow"]
    options = {"batch_size": 3, "shuffle": True, "seed": 3}
    for chain in (CROP, [ops.DecodeImage(), ops.Resize((20, 20))]):
        for ours, theirs in zip(fl.Loader(shards, chain, **options), fl.Loader(folder, chain, **options), strict=True):
            assert ours["index"].tolist() == theirs["index"].tolist()
            assert ours["label"].tolist() == theirs["label"].tolist()
            assert np.array_equal(ours["image"], theirs["image"])


def test_a_picture_its_mask_and_its_label_stay_together(tmp_path: Path) -> None:
    images, masks = [], []
    for number in range(6):
        images.append(str(save(tmp_path / f"images/{number}.jpg", natural(40, 30, seed=number))))
        masks.append(str(save(tmp_path / f"masks/m{number}.png", labels_mask(40, 30, (0, 3, 9), seed=number))))
    source = fl.files({"image": images, "mask": masks}, labels=[5, 4, 3, 2, 1, 0])
    both = ("image", "mask")
    chain = [ops.DecodeImage(on=both), ops.RandomCrop(16, on=both)]
    plan = tmp_path / "plan.toml"
    plan.write_text(fl.Loader(source, chain, batch_size=2).plan.to_toml())
    for form in ("--as-is", "--pixels"):
        out = tmp_path / f"out{form}"
        pack(plan, out, form)
        shards = fl.tar(out)
        assert shards.fields == ["image", "mask", "label"]
        assert shards.key(2) == "2"
        ours, theirs = everything(shards, chain), everything(source, chain)
        for field in ("image", "mask", "label"):
            assert np.array_equal(ours[field], theirs[field])
    (first, *_) = list(webdataset.WebDataset(str(tmp_path / "out--as-is/shard-000000.tar"), shardshuffle=False))
    assert first["mask.png"] == Path(masks[0]).read_bytes()


def test_pixels_are_plain_pictures_that_any_tool_opens(mixed: Path, tmp_path: Path) -> None:
    turned = Image.fromarray(natural(30, 50, seed=4))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(mixed / "ant/turned.png", exif=exif)
    pack(mixed, tmp_path / "out", "--pixels")
    with tarfile.open(tmp_path / "out/shard-000000.tar") as archive:
        archive.extractall(tmp_path / "files", filter="data")
    with Image.open(mixed / "ant/deep/c.png") as theirs, Image.open(tmp_path / "files/ant/deep/c.ppm") as ours:
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    with Image.open(tmp_path / "files/ant/turned.ppm") as picture:
        assert picture.size == (30, 50)
    with Image.open(tmp_path / "files/cow/h.pgm") as picture:
        assert (picture.mode, picture.size) == ("L", (24, 24))


def test_max_side_makes_large_pictures_smaller_and_leaves_others_as_they_are(tmp_path: Path) -> None:
    large = save(tmp_path / "in/large.jpg", natural(200, 300, seed=1), quality=95)
    small = save(tmp_path / "in/small.jpg", natural(60, 64, seed=2))
    mask = save(tmp_path / "in/large_mask.png", labels_mask(200, 300, (0, 3, 9)))
    plan = tmp_path / "plan.toml"
    source = fl.files({"image": [large, small], "mask": [mask, mask]})
    plan.write_text(fl.Loader(source, [], batch_size=2, ragged=("image", "mask")).plan.to_toml())
    summary = pack(plan, tmp_path / "out", "--max-side", "64")
    assert summary["resized"] == 3
    raw = everything(fl.tar(tmp_path / "out"), [], ragged=("image", "mask"))
    assert bytes(raw["image"][1]) == small.read_bytes()
    decoded = everything(fl.tar(tmp_path / "out"), [ops.DecodeImage(on=("image", "mask"))], ragged=("image",))
    assert decoded["image"][0].shape == (43, 64, 3)
    assert decoded["mask"].shape == (2, 43, 64)
    assert set(np.unique(decoded["mask"])) <= {0, 3, 9}
    with Image.open(large) as picture:
        picture.resize((64, 43), Image.Resampling.BILINEAR).save(tmp_path / "theirs.jpg", quality=92)
    with Image.open(tmp_path / "theirs.jpg") as picture:
        expected = np.asarray(picture, np.float64)
    assert np.abs(decoded["image"][0] - expected).mean() < 1.5


def test_damaged_pictures_are_reported_and_kept_or_skipped(pictures: Callable[..., Path], tmp_path: Path) -> None:
    root = pictures(6, classes=("a", "b"))
    (root / "a/0000.png").write_bytes(b"no picture")
    whole = save(root / "b/cut.jpg", natural(64, 64)).read_bytes()
    (root / "b/cut.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "b/empty.jpg").write_bytes(b"")
    names = ["a/0000.png", "b/cut.jpg", "b/empty.jpg"]
    for form in ("--as-is", "--pixels"):
        kept = pack(root, tmp_path / f"kept{form}", form)
        assert [picture["name"] for picture in kept["damaged_pictures"]] == names
        assert (kept["samples"], kept["skipped"]) == (8, 0)
        source = fl.tar(tmp_path / f"kept{form}")
        raw = everything(source, [], ragged=("image",))
        assert bytes(raw["image"][6]) == (root / "b/cut.jpg").read_bytes()
        skipped = pack(root, tmp_path / f"skipped{form}", form, "--damaged", "skip")
        assert [picture["name"] for picture in skipped["damaged_pictures"]] == names
        assert (skipped["samples"], skipped["skipped"], skipped["damaged"]) == (5, 3, 3)
        assert len(everything(fl.tar(tmp_path / f"skipped{form}"), DECODE)["label"]) == 5


def test_names_with_dots_and_doubles_get_keys_of_their_own(tmp_path: Path) -> None:
    for number, name in enumerate(["v1.0/photo.2024.01.jpg", "v1.0/photo.png", "v1.0/photo.jpg", "v1.0/photo_png.jpg"]):
        save(tmp_path / "in" / name, natural(16, 16, seed=number))
    summary = pack(tmp_path / "in", tmp_path / "out")
    assert summary["renamed"] == 3
    source = fl.tar(tmp_path / "out")
    keys = [source.key(number) for number in range(4)]
    assert keys == ["v1.0/photo_2024_01", "v1.0/photo", "v1.0/photo_png", "v1.0/photo_png_jpg"]
    theirs = webdataset.WebDataset(str(tmp_path / "out/shard-000000.tar"), shardshuffle=False)
    assert [sample["__key__"] for sample in theirs] == keys


def test_shards_are_packed_again_into_other_shards(mixed: Path, tmp_path: Path) -> None:
    pack(mixed, tmp_path / "first", "--shard-size", "9kB")
    pack(f"{tmp_path}/first/*.tar", tmp_path / "second")
    pack(tmp_path / "second", tmp_path / "third", "--shard-size", "9kB")
    names = sorted(path.name for path in (tmp_path / "first").glob("*.tar"))
    assert names == sorted(path.name for path in (tmp_path / "third").glob("*.tar"))
    first, third = fl.tar(tmp_path / "first"), fl.tar(tmp_path / "third")
    ours, theirs = (everything(source, [], ragged=("image",)) for source in (third, first))
    assert [bytes(image) for image in ours["image"]] == [bytes(image) for image in theirs["image"]]
    assert ours["label"].tolist() == theirs["label"].tolist()
    plans = [fl.Loader(source, CROP, batch_size=2).plan.fingerprints["values"] for source in (first, third)]
    assert plans[0] == plans[1], "the identity of samples does not depend on how they are divided"
    assert third.classes == ["ant", "bee", "cow"]


def test_a_second_run_has_nothing_to_do_and_other_options_are_refused(mixed: Path, tmp_path: Path) -> None:
    first = pack(mixed, tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    second = pack(mixed, tmp_path / "out")
    assert (second["samples"], second["resumed_samples"], second["bytes"]) == (8, 8, first["bytes"])
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    refused = pack(mixed, tmp_path / "out", "--pixels", code=1)
    assert "content was" in refused["error"]
    save(mixed / "ant/new.png", natural(8, 8))
    assert "another source" in pack(mixed, tmp_path / "out", code=1)["error"]
    assert "not empty" in pack(mixed, mixed, code=1)["error"]


def test_fields_that_are_not_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    plan = tmp_path / "plan.toml"
    plan.write_text(fl.Loader(fl.array(str(tmp_path / "x.npy")), [], batch_size=2).plan.to_toml())
    assert 'field \\"data\\" is a float32 tensor' in json.dumps(pack(plan, tmp_path / "out", code=1)["error"])
    assert "no such file" in pack(tmp_path / "nothing", tmp_path / "out", code=1)["error"]


def test_pictures_that_changed_since_are_packed_again(tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / "pictures" / f"{number}.jpg", natural(40, 50, number), quality=85)
    assert pack(tmp_path / "pictures", tmp_path / "shards", "--shard-size", "6kB")["resumed_samples"] == 0
    again = pack(tmp_path / "pictures", tmp_path / "shards", "--shard-size", "6kB")
    assert again["resumed_samples"] == 6
    save(tmp_path / "pictures" / "4.jpg", natural(40, 50, 99), quality=85)
    changed = pack(tmp_path / "pictures", tmp_path / "shards", "--shard-size", "6kB")
    assert 0 < changed["resumed_samples"] < 5
    shards = everything(fl.tar(str(tmp_path / "shards")), CROP)
    np.testing.assert_array_equal(shards["image"], everything(fl.folder(tmp_path / "pictures"), CROP)["image"])


def test_two_runs_do_not_pack_into_one_folder(tmp_path: Path, start_python: Callable[..., Any]) -> None:
    save(tmp_path / "pictures" / "0.jpg", natural(40, 50, 0))
    pack(tmp_path / "pictures", tmp_path / "shards")
    code = """
import fcntl, sys
with open(sys.argv[1]) as journal:
    fcntl.flock(journal, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read() or __import__("time").sleep(30)
"""
    other = start_python(code, tmp_path / "shards" / ".pack.jsonl")
    assert other.stdout.readline() == "locked\n"
    assert "another process" in pack(tmp_path / "pictures", tmp_path / "shards", code=1)["error"]
