"""DecodeImage against Pillow, the decoder behind torchvision's datasets: within 1/255 for every kind of file."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from making import natural, save
from PIL import Image, ImageOps

import feedline as fl
from feedline import ops


def decoded(path: Path, **options: object) -> np.ndarray:
    loader = fl.Loader(fl.files({"image": [path]}), [ops.DecodeImage(**options)], batch_size=1)
    return next(iter(loader))["image"][0]


def check(path: Path, expected: np.ndarray, tolerance: int = 1, **options: object) -> None:
    found = decoded(path, **options)
    assert found.shape == expected.shape
    assert found.dtype == np.uint8
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= tolerance, f"differs by up to {difference.max()}, in {np.mean(difference > 0):.2%}"


def by_pillow(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("size", [(61, 83), (64, 64), (16, 8), (1, 1), (1, 40), (40, 1)])
@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True], ids=["baseline", "progressive"])
def test_jpeg_is_as_pillow_decodes_it(
    tmp_path: Path, size: tuple[int, int], subsampling: int, progressive: bool
) -> None:
    path = save(tmp_path / "x.jpg", natural(*size), quality=90, subsampling=subsampling, progressive=progressive)
    check(path, by_pillow(path))


@pytest.mark.parametrize("quality", [5, 50, 100])
def test_jpeg_of_any_quality_is_as_pillow_decodes_it(tmp_path: Path, quality: int) -> None:
    path = save(tmp_path / "x.jpg", natural(97, 130, seed=3), quality=quality)
    check(path, by_pillow(path))


def test_jpeg_with_restart_markers_is_as_pillow_decodes_it(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", natural(97, 130), quality=80, restart_marker_blocks=3)
    check(path, by_pillow(path))


def test_grey_jpeg_becomes_three_equal_channels(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", natural(33, 47, channels=1), quality=90)
    check(path, by_pillow(path))


def test_cmyk_jpeg_is_as_pillow_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    Image.fromarray(natural(40, 56, channels=4), mode="CMYK").save(path, quality=95)
    assert Image.open(path).mode == "CMYK"
    check(path, by_pillow(path))


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("rgb.png", "RGB", {}),
        ("grey.png", "L", {}),
        ("palette.png", "P", {}),
        ("palette_4_bits.png", "P", {"bits": 4}),
        ("one_bit.png", "1", {}),
        ("alpha.png", "RGBA", {}),
        ("grey_alpha.png", "LA", {}),
        ("rgb.bmp", "RGB", {}),
        ("grey.bmp", "L", {}),
        ("palette.bmp", "P", {}),
        ("grey.gif", "L", {}),
        ("palette.gif", "P", {}),
        ("lossless.webp", "RGB", {"lossless": True}),
        ("lossless_alpha.webp", "RGBA", {"lossless": True, "exact": True}),
    ],
)
def test_lossless_files_give_exactly_what_pillow_gives(tmp_path: Path, name: str, mode: str, options: dict) -> None:
    path = tmp_path / name
    if mode in ("RGBA", "LA"):
        pixels = natural(31, 45, channels=len(mode))
        picture = Image.fromarray(pixels if mode == "RGBA" else pixels[..., :2], mode=mode)
    elif mode == "P":
        picture = Image.fromarray(natural(31, 45)).quantize(2 ** options.get("bits", 8))
    else:
        picture = Image.fromarray(natural(31, 45)).convert(mode)
    picture.save(path, **options)
    check(path, by_pillow(path), tolerance=0)


@pytest.mark.parametrize("quality", [20, 75, 95])
def test_lossy_webp_is_as_pillow_decodes_it(tmp_path: Path, quality: int) -> None:
    path = save(tmp_path / "x.webp", natural(61, 83), quality=quality)
    check(path, by_pillow(path), tolerance=0)


def test_lossy_webp_with_alpha_drops_the_alpha(tmp_path: Path) -> None:
    path = tmp_path / "x.webp"
    Image.fromarray(natural(40, 50, channels=4), mode="RGBA").save(path, quality=90, exact=True)
    check(path, by_pillow(path), tolerance=0)


def test_interlaced_png_gives_exactly_what_was_stored(tmp_path: Path) -> None:
    pixels = natural(21, 19)
    (tmp_path / "x.png").write_bytes(adam7_png(pixels))
    assert np.array_equal(by_pillow(tmp_path / "x.png"), pixels)
    check(tmp_path / "x.png", pixels, tolerance=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_png_gives_the_high_byte(tmp_path: Path, channels: int) -> None:
    wide = np.random.default_rng(1).integers(0, 65536, (23, 31, channels), dtype=np.uint16)
    (tmp_path / "x.png").write_bytes(png(wide.astype(">u2").tobytes(), 31, 23, 16, {1: 0, 3: 2}[channels]))
    check(tmp_path / "x.png", np.broadcast_to((wide >> 8).astype(np.uint8), (23, 31, 3)), tolerance=0)


def test_an_animated_gif_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(natural(20, 30, seed)).quantize(64) for seed in (1, 2, 3)]
    path = tmp_path / "x.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    check(path, np.asarray(frames[0].convert("RGB")), tolerance=0)


def test_an_animated_webp_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(natural(20, 30, seed)) for seed in (1, 2)]
    path = tmp_path / "x.webp"
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
    check(path, natural(20, 30, 1), tolerance=0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
def test_exif_orientation_turns_as_pillow_does(tmp_path: Path, orientation: int, ending: str) -> None:
    picture = Image.fromarray(natural(30, 46))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"x.{ending}"
    picture.save(path, exif=exif, **({"quality": 95} if ending == "jpg" else {"lossless": True}))
    check(path, np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB")))


def test_exif_orientation_is_ignored_on_request(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "x.jpg", natural(30, 46), exif=exif)
    check(path, by_pillow(path), exif=False)


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_mode_grey_is_as_pillow_gives_l(tmp_path: Path, ending: str) -> None:
    path = save(tmp_path / f"x.{ending}", natural(30, 46))
    with Image.open(path) as picture:
        picture.draft("L", picture.size)  # The JPEG's own luma, not computed from clipped RGB.
        expected = np.asarray(picture.convert("L"))[..., None]
    check(path, expected, tolerance=1 if ending == "jpg" else 0, mode="grey")


def test_mode_mask_gives_palette_indices_without_a_channel_axis(tmp_path: Path) -> None:
    indices = np.random.default_rng(2).integers(0, 21, (12, 17), dtype=np.uint8)
    picture = Image.fromarray(indices, mode="P")
    picture.putpalette(np.random.default_rng(3).integers(0, 256, 63, dtype=np.uint8).tobytes())
    picture.save(tmp_path / "x.png")
    check(tmp_path / "x.png", indices, tolerance=0, mode="mask")


def test_the_format_is_known_by_content_not_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", natural(12, 14))
    check(path.rename(tmp_path / "x.jpg"), natural(12, 14), tolerance=0)


def png(rows: bytes, width: int, height: int, bits: int, colour: int, interlace: int = 0) -> bytes:
    """A PNG file of rows without filter, as Pillow cannot write it."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    if not interlace:
        stride = len(rows) // height
        rows = b"".join(b"\0" + rows[start : start + stride] for start in range(0, len(rows), stride))
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlace)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def adam7_png(pixels: np.ndarray) -> bytes:
    rows = io.BytesIO()
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        for row in pixels[y::dy, x::dx]:
            if row.size:
                rows.write(b"\0" + row.tobytes())
    return png(rows.getvalue(), pixels.shape[1], pixels.shape[0], 8, 2, interlace=1)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA"])
def test_tiff_is_as_pillow_decodes_it(tmp_path: Path, mode: str, compression: str) -> None:
    path = tmp_path / "x.tif"
    picture = Image.fromarray(natural(90, 70)).convert(mode)
    # The predictor of libtiff, which stores differences of neighbours.
    differences = {317: 2} if compression in ("tiff_lzw", "tiff_adobe_deflate") and mode not in ("P", "1") else {}
    picture.save(path, compression=compression, tiffinfo=differences)
    check(path, by_pillow(path), tolerance=0)
    if mode in ("L", "P", "1"):
        check(path, np.asarray(picture.convert("L") if mode == "1" else picture), tolerance=0, mode="mask")


def test_16_bits_of_a_tiff_lose_their_low_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    values = np.arange(40 * 50, dtype=np.uint16).reshape(40, 50) * 32
    Image.fromarray(values).save(path, compression="tiff_lzw")
    check(path, (values >> 8).astype(np.uint8)[..., None], tolerance=0, mode="grey")


def test_a_tiff_is_turned_by_its_orientation(tmp_path: Path) -> None:
    path = tmp_path / "x.tiff"
    picture = natural(30, 50)
    Image.fromarray(picture).save(path, tiffinfo={274: 6})
    check(path, np.rot90(picture, -1), tolerance=0)
    check(path, picture, tolerance=0, exif=False)


def test_a_folder_has_tiff_pictures(tmp_path: Path) -> None:
    for name in ("a.tif", "b.TIFF"):
        save(tmp_path / "all" / name, natural(20, 30))
    assert len(fl.folder(tmp_path / "all")) == 2


def deep_file(path: Path, channels: int) -> np.ndarray:
    """A PNG or TIFF of 16 bits, and its values. Pillow writes only grey ones, so a PNG of colours is made by hand."""
    values = np.random.default_rng(channels).integers(0, 1 << 16, (40, 50, channels), np.uint16)
    path.parent.mkdir(parents=True, exist_ok=True)
    if channels == 1:
        Image.fromarray(values[..., 0]).save(path)
        return values
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 50, 40, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return values


@pytest.mark.parametrize(("ending", "channels"), [("png", 1), ("png", 3), ("tif", 1)])
def test_uint16_keeps_all_bits(tmp_path: Path, ending: str, channels: int) -> None:
    path = tmp_path / f"x.{ending}"
    values = deep_file(path, channels)
    mode = "grey" if channels == 1 else "rgb"
    source = fl.files({"image": [path]})
    found = decoded(path, mode=mode, dtype="uint16")
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, values)
    # Law 8: a crop of the file has the pixels of the whole one.
    chain: list[ops.Op] = [ops.DecodeImage(mode=mode, dtype="uint16"), ops.CenterCrop((20, 30))]
    for flip, expected in (
        ([], values[10:30, 10:40]),
        ([ops.RandomHorizontalFlip(p=1.0)], values[10:30, 10:40][:, ::-1]),
        ([ops.RandomVerticalFlip(p=1.0)], values[10:30, 10:40][::-1]),
    ):
        batch = next(iter(fl.Loader(source, [*chain, *flip], batch_size=1)))
        np.testing.assert_array_equal(batch["image"][0], expected)
    padded = [chain[0], ops.CenterCrop(60)]
    batch = next(iter(fl.Loader(source, padded, batch_size=1)))["image"][0]
    np.testing.assert_array_equal(batch, np.pad(values, ((10, 10), (5, 5), (0, 0))))
    for dtype in ("float32", "float16"):
        for layout in ("CHW", "HWC"):
            numbers = ops.Normalize(mean=[0.4] * channels, std=[0.3] * channels, dtype=dtype, layout=layout)
            batch = next(iter(fl.Loader(source, [*chain, numbers], batch_size=1)))["image"]
            found = np.asarray(batch[0], dtype=np.float32)
            expected = (values[10:30, 10:40].astype(np.float32) / 65535 - 0.4) / 0.3
            found = found if layout == "HWC" else np.moveaxis(found, 0, -1)
            np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == "float32" else 2e-3)


def test_uint16_stretches_8_bits_and_leaves_masks(tmp_path: Path) -> None:
    picture = natural(30, 40)
    path, mask = save(tmp_path / "x.png", picture), save(tmp_path / "m.png", natural(30, 40, channels=1))
    assert (decoded(path, dtype="uint16") == picture.astype(np.uint16) * 257).all()
    jpeg = save(tmp_path / "x.jpg", natural(61, 83), quality=90)
    assert (decoded(jpeg, dtype="uint16") == decoded(jpeg).astype(np.uint16) * 257).all()
    both = ("image", "mask")
    loader = fl.Loader(
        fl.files({"image": [path], "mask": [mask]}),
        [ops.DecodeImage(on=both, dtype="uint16")],
        batch_size=1,
        ragged=both,
    )
    batch = next(iter(loader))
    assert (batch["image"][0].dtype, batch["mask"][0].dtype) == (np.uint16, np.uint8)


def test_uint16_samples_come_from_a_cache_and_functions_get_them(tmp_path: Path) -> None:
    root = tmp_path / "all"
    values = {f"{number}.tif": deep_file(root / f"{number}.tif", 1) for number in range(4)}
    chain: list[ops.Op] = [ops.DecodeImage(mode="grey", dtype="uint16"), ops.RandomCrop(16)]
    plain, cached = (
        [
            b["image"].tobytes()
            for loader in [fl.Loader(fl.folder(root), chain, batch_size=2, cache=cache)]
            for _ in range(3)
            for b in loader
        ]
        for cache in (None, fl.cache(ram="1GB"))
    )
    assert plain == cached
    doubled = [chain[0], ops.CenterCrop(16), ops.Map(lambda image: (image.astype(np.uint32) // 2).astype(np.uint16))]
    batch = next(iter(fl.Loader(fl.folder(root), doubled, batch_size=4)))
    np.testing.assert_array_equal(batch["image"][0], values["0.tif"][12:28, 17:33] // 2)


@pytest.mark.parametrize(
    "op",
    [
        ops.Resize(8),
        ops.RandomResizedCrop(8),
        ops.ColorJitter(0.1),
        ops.Grayscale(),
        ops.RandomErasing(),
        ops.ToTensor("uint8"),
    ],
    ids=lambda op: type(op).__name__,
)
def test_ops_that_need_8_bits_say_so(tmp_path: Path, op: ops.Op) -> None:
    path = save(tmp_path / "x.png", natural(30, 40))
    with pytest.raises(ValueError, match=r"needs .*pixels.*16 bits"):
        fl.Loader(fl.files({"image": [path]}), [ops.DecodeImage(dtype="uint16"), op], batch_size=1, ragged=("image",))
