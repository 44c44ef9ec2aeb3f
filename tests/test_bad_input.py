"""Bad input: a clear error that names the sample, nothing lost, nothing hangs."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save
from PIL import Image

import feedline as fl
from feedline import ops

DECODE = [ops.DecodeImage(), ops.Resize((16, 16))]


def bomb_png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with almost no data."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def cut(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def check_bad(root: Path, bad: Path, words: str, op: str | None = "DecodeImage", **options: Any) -> fl.SampleError:
    """Check that reading ``root`` delivers all batches before that of ``bad``, then raises an error that names it."""
    source = fl.folder(root)
    key = str(bad.relative_to(root))
    number = [source.key(index) for index in source.indices].index(key)
    loader = fl.Loader(source, DECODE, batch_size=2, **options)
    received: list[int] = []
    with pytest.raises(fl.SampleError, match=words) as caught:  # noqa: PT012
        for batch in loader:
            received += batch["index"].tolist()
    error = caught.value
    assert received == list(range(number // 2 * 2)), "what comes before the bad sample is delivered"
    assert (error.index, error.key, error.path, error.op) == (number, key, str(bad), op)
    assert key in str(error)
    assert error.reason in str(error)
    return error


def spoil(root: Path, name: str, content: bytes) -> Path:
    """Put a bad picture in the middle of good ones."""
    bad = root / name
    bad.write_bytes(content)
    return bad


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.SourceError, match=r"no pictures in .*the folder is empty.*\.jpg"):
        fl.folder(tmp_path)


def test_a_folder_without_pictures_says_how_many_files_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.csv").write_text("x")
    with pytest.raises(fl.SourceError, match="2 files of other kinds"):
        fl.folder(tmp_path)


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(8, 8))
    with pytest.raises(fl.SourceError, match=r"x\.png"):
        fl.folder(path)


def test_a_dangling_link_is_a_bad_sample_or_not_listed(pictures: Callable[..., Path]) -> None:
    root = pictures(6, classes=())
    (root / "0002x.png").symlink_to(root / "nowhere")
    check_bad(root, root / "0002x.png", "(?i)no such file|not found|does not exist", op=None)


def test_a_folder_with_the_name_of_a_picture_is_no_sample(pictures: Callable[..., Path]) -> None:
    root = pictures(4, classes=())
    (root / "0002x.jpg").mkdir()
    with pytest.raises(fl.SourceError, match=r"0002x\.jpg"):
        fl.folder(root)
    assert len(fl.folder(root, allow_empty=True)) == 4


def test_a_path_that_is_a_folder_is_a_bad_sample(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").mkdir()
    loader = fl.Loader(fl.files({"image": [tmp_path / "x.jpg"]}), DECODE, batch_size=1)
    with pytest.raises(fl.SampleError, match=r"x\.jpg.*a folder") as caught:
        list(loader)
    assert caught.value.op is None


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_jpeg_is_a_bad_sample(pictures: Callable[..., Path], keep: float, progressive: bool) -> None:
    root = pictures(6, classes=())
    bad = save(root / "0002x.jpg", natural(100, 120), quality=90, progressive=progressive)
    cut(bad, keep)
    check_bad(root, bad, "JPEG data end too early")


@pytest.mark.parametrize("ending", ["png", "webp", "bmp", "gif"])
def test_a_truncated_picture_of_any_kind_is_a_bad_sample(pictures: Callable[..., Path], ending: str) -> None:
    root = pictures(6, classes=())
    bad = save(root / f"0002x.{ending}", natural(60, 80))
    cut(bad, 0.6)
    check_bad(root, bad, "(end too early|damaged)")


def test_damaged_bytes_inside_a_jpeg_never_take_the_process_down(tmp_path: Path) -> None:
    good = save(tmp_path / "good.jpg", natural(48, 64), quality=80).read_bytes()
    random = np.random.default_rng(0)
    paths = []
    for number in range(60):
        data = bytearray(good)
        for place in random.integers(2, len(good), 8):
            data[place] = random.integers(0, 256)
        paths.append(tmp_path / f"{number}.jpg")
        paths[-1].write_bytes(data)
    for path in paths:
        try:
            batches = list(fl.Loader(fl.files({"image": [path]}), DECODE, batch_size=1))
            assert batches[0]["image"].shape == (1, 16, 16, 3)
        except fl.SampleError as error:
            assert error.path == str(path)  # noqa: PT017


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("0002x.jpg", b"", "the file is empty"),
        ("0002x.jpg", b"just some text", "not a JPEG, PNG, WebP, TIFF, BMP, GIF or PNM file"),
        ("0002x.jpg", b"\xff\xd8\xff", "JPEG"),
        ("0002x.png", b"\x89PNG\r\n\x1a\n", "PNG"),
        ("0002x.webp", b"RIFF\0\0\0\0WEBP", "WebP"),
        ("0002x.gif", b"GIF89a", "GIF"),
        ("0002x.bmp", b"BM", "BMP"),
        ("0002x.jpg", b"<html>404</html>", "not a JPEG"),
        ("0002x.png", bomb_png(0, 5), "size is 0 x 5"),
        ("0002x.png", bomb_png(40_000, 40_000), "40000 x 40000 pixels .*178956970.*max_pixels"),
        ("0002x.png", bomb_png(2**31 - 1, 2**31 - 1), "max_pixels"),
        ("0002x.png", bomb_png(10_000, 10_000), "end too early|damaged"),
    ],
    ids=[
        "zero bytes", "text", "only JPEG magic", "only PNG magic", "only WebP magic", "only GIF magic",
        "only BMP magic",
        "a web page", "no height", "too many pixels", "most pixels", "a promise not kept",
    ],
)  # fmt: skip
def test_bytes_that_are_no_picture_are_a_bad_sample(
    pictures: Callable[..., Path], name: str, content: bytes, words: str
) -> None:
    root = pictures(6, classes=())
    check_bad(root, spoil(root, name, content), words)


def test_a_picture_of_20000x20000_is_refused_by_default_and_read_if_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("1", (20_000, 20_000)).save(path)
    loader = fl.Loader(fl.files({"image": [path]}), [ops.DecodeImage(mode="grey"), ops.CenterCrop(8)], batch_size=1)
    with pytest.raises(
        fl.SampleError, match="20000 x 20000 pixels are more than the limit of 178956970; raise max_pixels"
    ):
        list(loader)
    chain = [ops.DecodeImage(mode="grey", max_pixels=400_000_000), ops.CenterCrop(8)]
    (batch,) = list(fl.Loader(fl.files({"image": [path]}), chain, batch_size=1))
    assert batch["image"].shape == (1, 8, 8, 1)


def test_the_limit_on_pixels_can_be_set(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(10, 10))
    source = fl.files({"image": [path]})
    with pytest.raises(fl.SampleError, match="10 x 10 pixels are more than the limit of 99"):
        list(fl.Loader(source, [ops.DecodeImage(max_pixels=99)], batch_size=1))
    assert len(list(fl.Loader(source, [ops.DecodeImage(max_pixels=100)], batch_size=1))) == 1


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (200, 1)])
def test_tiny_pictures_go_through_the_training_chain(tmp_path: Path, size: tuple[int, int]) -> None:
    for ending in ("png", "jpg"):
        path = save(tmp_path / f"x.{ending}", natural(*size))
        chain = [ops.DecodeImage(), ops.RandomResizedCrop(24), ops.RandomHorizontalFlip(), ops.Normalize()]
        (batch,) = list(fl.Loader(fl.files({"image": [path] * 20}), chain, batch_size=20))
        assert batch["image"].shape == (20, 3, 24, 24)
        assert np.isfinite(batch["image"]).all()


def test_a_file_deleted_after_listing_is_a_bad_sample(pictures: Callable[..., Path]) -> None:
    root = pictures(6, classes=())
    source = fl.folder(root)
    (root / "0003.png").unlink()
    loader = fl.Loader(source, DECODE, batch_size=1)
    received = []
    with pytest.raises(fl.SampleError, match=r"0003\.png.*could not be loaded") as caught:  # noqa: PT012
        for batch in loader:
            received += batch["index"].tolist()
    assert (received, caught.value.index, caught.value.op) == ([0, 1, 2], 3, None)


def test_a_file_truncated_after_listing_is_a_bad_sample(pictures: Callable[..., Path]) -> None:
    root = pictures(6, classes=())
    source = fl.folder(root)
    cut(root / "0003.png", 0.5)
    with pytest.raises(fl.SampleError, match=r"0003\.png.*DecodeImage.*end too early"):
        list(fl.Loader(source, DECODE, batch_size=6))


def test_an_array_truncated_after_opening_is_a_bad_sample_not_a_crash(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 1000)))
    source = fl.array(tmp_path / "x.npy")
    cut(tmp_path / "x.npy", 0.5)
    loader = fl.Loader(source, batch_size=1)
    received = []
    with pytest.raises(fl.SampleError, match=r"x\.npy"):  # noqa: PT012
        for batch in loader:
            received.append(batch)
    assert len(received) == 4


def test_a_stuck_loader_raises_again_and_goes_on_once_the_file_is_good(pictures: Callable[..., Path]) -> None:
    root = pictures(6, classes=())
    good = (root / "0003.png").read_bytes()
    (root / "0003.png").write_bytes(b"")
    loader = fl.Loader(fl.folder(root), DECODE, batch_size=2)
    iterator = iter(loader)
    assert next(iterator)["index"].tolist() == [0, 1]
    for _ in range(2):
        with pytest.raises(fl.SampleError, match="0003"):
            next(iterator)
    with pytest.raises(fl.SampleError, match="0003"):
        next(iter(loader))
    assert (loader.epoch, loader.state_dict()["batches"]) == (0, 1)
    (root / "0003.png").write_bytes(good)
    assert [batch["index"].tolist() for batch in loader] == [[2, 3], [4, 5]]
    assert loader.epoch == 1


def test_an_op_chain_that_does_not_type_check_says_which_op_needs_what(pictures: Callable[..., Path]) -> None:
    source = fl.folder(pictures(2))
    with pytest.raises(fl.PlanError) as caught:
        fl.Loader(source, [ops.Normalize(), ops.DecodeImage()], batch_size=2)
    assert str(caught.value) == "Normalize needs pixels, but comes before DecodeImage"
    for chain, words in (
        ([ops.Normalize()], r'Normalize needs pixels, but field "image" is encoded bytes; add DecodeImage\(\)'),
        ([], r'field "image" is still encoded; add ops.DecodeImage\(\), or ask for the bytes with ragged='),
        ([ops.DecodeImage(), ops.DecodeImage()], "DecodeImage needs encoded bytes"),
        ([ops.DecodeImage(), ops.Normalize(), ops.Resize(4)], 'Resize needs pixels, but field "image" is'),
        ([ops.DecodeImage(), ops.Grayscale(), ops.ColorJitter(0.5)], "ColorJitter needs RGB pixels"),
        ([ops.DecodeImage(), ops.Resize(4, on="mask")], 'Resize works on field "mask"'),
    ):
        with pytest.raises(fl.PlanError, match=words):
            fl.Loader(source, chain, batch_size=2)


def test_an_image_and_a_mask_of_other_sizes_are_a_bad_sample(tmp_path: Path) -> None:
    source = fl.files(
        {
            "image": [save(tmp_path / "a.png", natural(20, 30))],
            "mask": [save(tmp_path / "b.png", natural(20, 31, 0, 1))],
        }
    )
    both = ("image", "mask")
    with pytest.raises(fl.SampleError, match=r'"image" and "mask" differ in size .30x20 and 31x20'):
        list(fl.Loader(source, [ops.DecodeImage(on=both), ops.RandomCrop(8, on=both)], batch_size=1))


def test_a_colour_picture_as_mask_is_a_bad_sample(tmp_path: Path) -> None:
    source = fl.files({"mask": [save(tmp_path / "a.png", natural(20, 30))]})
    with pytest.raises(fl.SampleError, match="a mask needs one channel, but this PNG contains RGB colour"):
        list(fl.Loader(source, [ops.DecodeImage(on="mask")], batch_size=1))


def test_a_crop_larger_than_the_picture_is_a_bad_sample_that_says_both_sizes(pictures: Callable[..., Path]) -> None:
    loader = fl.Loader(fl.folder(pictures(2)), [ops.DecodeImage(), ops.RandomCrop((25, 10))], batch_size=2)
    with pytest.raises(fl.SampleError, match=r"RandomCrop.*10x25 does not fit in a picture of 32x24"):
        list(loader)


def test_shapes_that_differ_name_the_op_to_add_and_ragged_gives_a_list(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{n}.png", natural(10 + n, 12)) for n in range(4)]
    source = fl.files({"image": paths}, labels=range(4))
    loader = fl.Loader(source, [ops.DecodeImage()], batch_size=4)
    with pytest.raises(
        fl.RaggedError, match=r'"image" has shape \[10, 12, 3\].*\[11, 12, 3\].*ops.RandomResizedCrop.*ragged='
    ):
        list(loader)
    (batch,) = list(fl.Loader(source, [ops.DecodeImage()], batch_size=4, ragged=("image",)))
    assert isinstance(batch["image"], list)
    assert all(np.array_equal(found, natural(10 + n, 12)) for n, found in enumerate(batch["image"]))
    assert batch["label"].tolist() == [0, 1, 2, 3]


def test_ragged_gives_the_encoded_bytes_of_an_undecoded_field(pictures: Callable[..., Path]) -> None:
    source = fl.folder(root := pictures(4))
    (batch,) = list(fl.Loader(source, batch_size=4, ragged=("image",)))
    for index, data in enumerate(batch["image"]):
        assert data.tobytes() == (root / source.key(index)).read_bytes()


def test_a_pipe_named_like_a_picture_is_a_bad_sample_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.jpg")
    loader = fl.Loader(fl.folder(tmp_path), DECODE, batch_size=1)
    with pytest.raises(fl.SampleError, match="pipe or device"):
        list(loader)


def test_a_file_larger_than_the_machine_is_a_bad_sample_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    with open(tmp_path / "huge.jpg", "wb") as file:
        file.truncate(8 << 40)
    loader = fl.Loader(fl.folder(tmp_path), DECODE, batch_size=1)
    with pytest.raises(fl.SampleError, match="the machine has"):
        list(loader)


def test_a_batch_that_no_machine_can_hold_is_refused() -> None:
    with pytest.raises(fl.PlanError, match="batch_size is 1099511627776; it must be at most 4194304"):
        fl.Loader(fl.synthetic(1 << 40, (1 << 24,)), batch_size=1 << 40)
    with pytest.raises(fl.PlanError, match="bytes is 70368744177664; it must be at most 1099511627776"):
        fl.Loader(fl.synthetic(1 << 40, (1 << 24,)), batch_size=1 << 22, fields=("data",))
    loader = fl.Loader(fl.synthetic(1 << 40, (1 << 20,)), batch_size=1 << 19)
    with pytest.raises(fl.OutOfMemoryError, match="batch_size"):
        next(iter(loader))
