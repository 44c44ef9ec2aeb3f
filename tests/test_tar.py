"""Tar shards: files of the WebDataset package are read, opening is fast, and indexes are saved and checked."""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from making import labels_mask, natural
from PIL import Image

import feedline as fl
from feedline import ops

DECODE = [ops.DecodeImage(), ops.Resize((16, 16))]


def encoded(seed: int, form: str = "png", size: tuple[int, int] = (24, 32)) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(natural(*size, seed=seed)).save(buffer, format=form)
    return buffer.getvalue()


def write_shards(folder: Path, count: int, per_shard: int = 3, **more: Callable[[int], Any]) -> list[bytes]:
    """Write ``count`` shards with the real WebDataset package; gives all pictures in order."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for shard in range(count):
        with webdataset.TarWriter(str(folder / f"train-{shard:06}.tar"), encoder=True) as sink:
            for number in range(shard * per_shard, (shard + 1) * per_shard):
                pictures.append(encoded(number))
                others = {name.replace("__", "."): value(number) for name, value in more.items()}
                sink.write({"__key__": f"dir/{number:05}", "png": pictures[-1], "cls": number % 7, **others})
    return pictures


def everything(source: fl.Source, chain: list[ops.Op] | None = None, **options: Any) -> dict[str, Any]:
    (batch,) = list(fl.Loader(source, DECODE if chain is None else chain, batch_size=len(source), **options))
    return batch


def test_shards_of_webdataset_are_read_sample_by_sample(tmp_path: Path) -> None:
    pictures = write_shards(tmp_path / "set", 4)
    source = fl.tar(tmp_path / "set" / "*.tar")
    assert source.fields == ["image", "label"]
    assert len(source) == 12
    assert source.key(5) == "dir/00005"
    batch = everything(source, [], ragged=("image",))
    assert [bytes(image) for image in batch["image"]] == pictures
    assert batch["label"].tolist() == [number % 7 for number in range(12)]
    assert batch["label"].dtype == np.int64


def test_the_stream_is_the_one_that_webdataset_gives(tmp_path: Path) -> None:
    write_shards(tmp_path, 3)
    urls = sorted(str(path) for path in tmp_path.glob("*.tar"))
    theirs = list(webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8").to_tuple("__key__", "png", "cls"))
    batch = everything(fl.tar(tmp_path), [ops.DecodeImage()], fields=("key", "image", "label"))
    assert batch[0] == [key for key, _, _ in theirs]
    assert np.array_equal(batch[1], np.stack([image for _, image, _ in theirs]))
    assert batch[2].tolist() == [label for _, _, label in theirs]


def test_masks_texts_and_other_extensions_are_fields(tmp_path: Path) -> None:
    def mask(number: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(labels_mask(24, 32, (0, 1, 7), seed=number)).save(buffer, format="png")
        return buffer.getvalue()

    write_shards(tmp_path, 2, mask__png=mask, json=lambda n: {"n": n}, txt=lambda n: f"picture {n} é", npy=np.arange)
    source = fl.tar(tmp_path)
    assert source.fields == ["image", "json", "mask", "npy", "txt", "label"]
    chain = [ops.DecodeImage(on=("image", "mask")), ops.Resize((16, 16), on=("image", "mask"))]
    batch = everything(source, chain, ragged=("npy",))
    assert batch["mask"].shape == (6, 16, 16)
    assert set(np.unique(batch["mask"])) == {0, 1, 7}
    assert batch["txt"] == [f"picture {number} é" for number in range(6)]
    assert [json.loads(text) for text in batch["json"]] == [{"n": number} for number in range(6)]
    assert np.load(io.BytesIO(bytes(batch["npy"][4]))).tolist() == [0, 1, 2, 3]


def test_order_shuffle_resume_and_parts_work_as_for_any_source(tmp_path: Path) -> None:
    write_shards(tmp_path, 4)
    source = fl.tar(tmp_path)
    options = {"batch_size": 3, "shuffle": True, "seed": 5}
    whole = [batch["index"].tolist() for batch in fl.Loader(source, DECODE, **options)]
    loader = fl.Loader(source, DECODE, **options)
    stream = iter(loader)
    first = [next(stream)["index"].tolist() for _ in range(2)]
    rest = fl.Loader(fl.tar(tmp_path), DECODE, **options)
    rest.load_state_dict(loader.state_dict())
    assert first + [batch["index"].tolist() for batch in rest] == whole
    parts = source.split({"train": 0.75, "val": 0.25})
    ids = [everything(part)["index"].tolist() for part in parts.values()]
    assert sorted(ids[0] + ids[1]) == list(range(12))
    balanced = fl.Loader(source, DECODE, batch_size=14, sampler=fl.class_balanced(num_samples=14))
    assert next(iter(balanced))["label"].shape == (14,)


def test_a_plan_over_shards_is_written_and_read(tmp_path: Path) -> None:
    write_shards(tmp_path, 2)
    for shards in (tmp_path / "*.tar", [tmp_path / "train-000000.tar", str(tmp_path / "train-000001.tar")]):
        plan = fl.Loader(fl.tar(shards), DECODE, batch_size=2).plan
        again = fl.Plan.from_toml(plan.to_toml())
        assert again.fingerprints == plan.fingerprints
        assert len(list(fl.Loader.from_plan(again))) == 3


def test_the_index_is_kept_in_the_cache_folder_and_made_again_when_a_shard_changes(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path, 2)
    fl.tar(tmp_path)
    kept = sorted((own_cache / "shards").iterdir())
    assert len(kept) == 2
    before = [path.read_bytes() for path in kept]
    fl.tar(tmp_path)
    assert [path.read_bytes() for path in kept] == before
    write_shards(tmp_path, 2, per_shard=5)
    assert len(fl.tar(tmp_path)) == 10
    monkeypatch.setenv("FEEDLINE_CACHE", "")
    kept[0].unlink()
    assert len(everything(fl.tar(tmp_path))["label"]) == 10
    assert not kept[0].exists()


def test_without_the_variable_the_cache_is_among_those_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "set", 1)
    monkeypatch.delenv("FEEDLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    fl.tar(tmp_path / "set")
    assert len(list((tmp_path / "caches/feedline/shards").iterdir())) == 1


def test_fields_that_some_samples_lack_are_left_out_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with webdataset.TarWriter(str(tmp_path / "x.tar")) as sink:
        sink.write({"__key__": "a", "png": encoded(1), "json": {}})
        sink.write({"__key__": "b", "png": encoded(2), "cls": 3})
    with caplog.at_level(logging.INFO, logger="feedline"):
        source = fl.tar(tmp_path / "x.tar")
    assert source.fields == ["image"]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "json" in warning.getMessage()
    assert "cls" in warning.getMessage()


def test_a_thousand_shards_with_indexes_give_the_first_batch_at_once(tmp_path: Path) -> None:
    write_shards(tmp_path, 1)
    first = (tmp_path / "train-000000.tar").read_bytes()
    for number in range(1, 1000):
        (tmp_path / f"train-{number:06}.tar").write_bytes(first)
    fl.tar(tmp_path)
    started = time.monotonic()
    loader = fl.Loader(fl.tar(tmp_path), DECODE, batch_size=64, shuffle=True)
    batch = next(iter(loader))
    seconds = time.monotonic() - started
    assert batch["image"].shape[0] == 64
    assert seconds < 2.0, f"{seconds} s"
    assert len(os.listdir("/proc/self/fd")) < 600, "few files are open at a time"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"\x1f\x8b" + bytes(1000)), "compressed with gzip.*decompress"),
        (lambda path: path.write_bytes(b"no tar file" * 100), "no header at byte 0"),
        (lambda path: path.write_bytes(bytes(2048)), "no samples"),
        (lambda path: None, "x.tar"),
    ],
)
def test_files_that_are_not_shards_are_refused_by_name(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "x.tar")
    with pytest.raises(fl.SourceError, match=words):
        fl.tar(tmp_path / "x.tar")


def test_wrong_arguments_say_what_is_taken(tmp_path: Path) -> None:
    with pytest.raises(fl.SourceError, match="no shards match"):
        fl.tar(tmp_path / "*.tar")
    with pytest.raises(fl.SourceError, match="at least one"):
        fl.tar([])
    for wrong in (5, [1], [None]):
        with pytest.raises(fl.SourceError, match="tar\\(\\) takes"):
            fl.tar(wrong)  # type: ignore[arg-type]


def test_a_cut_shard_is_refused_and_names_with_every_kind_of_header_are_read(tmp_path: Path) -> None:
    names = ["a/1.png", f"{'long/' * 60}2.png", f"{'é' * 120}.png"]
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / "x.tar"
        with tarfile.open(path, "w", format=form) as archive:
            for name in names[: 1 if form == tarfile.USTAR_FORMAT else 3]:
                member = tarfile.TarInfo(name)
                member.size = len(encoded(1))
                archive.addfile(member, io.BytesIO(encoded(1)))
        source = fl.tar(path)
        assert [f"{source.key(number)}.png" for number in source.indices] == names[: len(source)]
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(fl.SourceError, match="ends at byte 2000"):
        fl.tar(path)
