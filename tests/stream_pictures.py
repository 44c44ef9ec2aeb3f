"""Small picture files with fixed bytes, for the cases of ``streams.py``.

No encoder library runs here, so the files are the same on every machine. PNG, BMP, PPM and PGM are written by their
definition from an integer formula. The other formats are embedded: Pillow wrote them once.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_STORED_BYTES = 65_535
"""The longest block of deflate without compression."""


def pixels(height: int, width: int, seed: int = 0, channels: int = 3, dtype: str = "uint8") -> Array:
    """Compute a picture by integers alone: gradients, and a fine pattern that resampling and jitter change visibly."""
    y, x, c = np.mgrid[0:height, 0:width, 0:channels].astype(np.uint64)
    smooth = x * (3 + seed % 5) + y * (5 + c) + 37 * c + 29 * seed
    pattern = (x * y * (seed + 1) + 11 * (x ^ y)) % 64
    values = smooth + pattern
    picture: Array = (values * 257 % 65536 if dtype == "uint16" else values % 256).astype(dtype)
    return picture


def blocks(height: int, width: int, seed: int = 0) -> Array:
    """Compute a mask: blocks of 6 x 6 pixels with the labels 0 to 4."""
    y, x = np.mgrid[0:height, 0:width] // 6
    mask: Array = ((x * 3 + y * 5 + seed) % 5).astype(np.uint8)
    return mask


def png(picture: Array) -> bytes:
    """Write grey, RGB or RGBA pixels of 8 or 16 bits as PNG. The rows use all five filters in turn."""
    height, width = picture.shape[:2]
    channels = picture.shape[2] if picture.ndim == 3 else 1
    step = channels * picture.dtype.itemsize
    rows = np.frombuffer(picture.astype(picture.dtype.newbyteorder(">")).tobytes(), np.uint8).reshape(height, -1)
    above = np.zeros_like(rows[0])
    data = bytearray()
    for number, row in enumerate(rows):
        data.append(number % 5)
        data += _filtered(number % 5, row, above, step)
        above = row
    colour_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8 * picture.dtype.itemsize, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", _stored(bytes(data))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _filtered(kind: int, row: Array, above: Array, step: int) -> bytes:
    """Apply a PNG filter: none, left, above, their mean, or Paeth's choice."""
    a, b = np.zeros(row.size, np.int64), above.astype(np.int64)
    c = np.zeros(row.size, np.int64)
    a[step:], c[step:] = row[:-step], above[:-step]
    distances = np.abs(np.stack([b - c, a - c, a + b - 2 * c]))
    paeth = np.choose(np.argmin(distances, axis=0), [a, b, c])
    predicted = [np.zeros_like(a), a, b, (a + b) // 2, paeth][kind]
    difference: Array = (row - predicted) % 256
    return difference.astype(np.uint8).tobytes()


def _stored(data: bytes) -> bytes:
    """Wrap bytes in zlib's format without compression."""
    parts = [data[start : start + MAX_STORED_BYTES] for start in range(0, len(data), MAX_STORED_BYTES)]
    out = b"\x78\x01"
    for number, part in enumerate(parts):
        out += struct.pack("<BHH", number == len(parts) - 1, len(part), len(part) ^ 0xFFFF) + part
    return out + struct.pack(">I", zlib.adler32(data))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bmp(picture: Array) -> bytes:
    """Write RGB pixels as BMP with 24 bits: rows from the bottom up, padded to four bytes."""
    height, width = picture.shape[:2]
    padding = bytes(-3 * width % 4)
    rows = b"".join(row[:, ::-1].tobytes() + padding for row in picture[::-1])
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 2835, 2835, 0, 0)
    return struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54) + info + rows


def ppm(picture: Array) -> bytes:
    """Write RGB pixels as PPM, or grey ones as PGM."""
    height, width = picture.shape[:2]
    return b"P%d\n%d %d\n255\n" % (6 if picture.ndim == 3 else 5, width, height) + picture.tobytes()


def turned(jpeg: bytes, orientation: int) -> bytes:
    """Insert an EXIF block with an orientation into a JPEG."""
    tiff = struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    block = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


_EMBEDDED = {
    "progressive.jpg": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
        "YEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wgARCAASABkD"
        "ASIAAhEBAxEB/8QAGAAAAwEBAAAAAAAAAAAAAAAAAAQFAwb/xAAYAQACAwAAAAAAAAAAAAAAAAACBAADBf/aAAwDAQACEAMQAAABntbusApN6SQo"
        "D2QSibNB/W//xAAdEAACAgEFAAAAAAAAAAAAAAAAAgEDEQQQEiEx/9oACAEBAAEFAkTqEIQ4FaEIYhTNZX7q2ZSNv//EABoRAAIDAQEAAAAAAAAA"
        "AAAAAAABAgMEMTL/2gAIAQMBAT8BhebbW1Eo9o3cif/EAB0RAAIBBAMAAAAAAAAAAAAAAAABAgMEERITMTL/2gAIAQIBAT8B596aZGbyy28C7Z//"
        "xAAdEAABAgcAAAAAAAAAAAAAAAABAhAAEiAiMnGR/9oACAEBAAY/AqriBGaesiUkaf8A/8QAHRAAAgIBBQAAAAAAAAAAAAAAAREAEFEgMUGx8f/a"
        "AAgBAQABPyFgaP8AFWswGSVPPzqm8FbZYv8A/9oADAMBAAIAAwAAABBKeL3/xAAcEQACAQUBAAAAAAAAAAAAAAAAAcERMVFxsfD/2gAIAQMBAT8Q"
        "pO42Eswe2jog/8QAGxEAAgEFAAAAAAAAAAAAAAAAAAExECFBcbH/2gAIAQIBAT8QmuOWGGJEW3Tf/8QAHRAAAgIDAAMAAAAAAAAAAAAAAAERITFR"
        "YXHB8P/aAAgBAQABPxCZtXBioxUeBW4LZioh3U4SSTqz6z2Ip0h1fJl1AqqkQtI//9k="
    ),
    "restarts.jpg": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
        "YEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAASABkD"
        "ASEAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABAUG/8QAKxAAAAUCAwUJAAAAAAAAAAAAAAECAwQFIRESExQxMlHBBiQ0QlJUYZPR/8QAGAEA"
        "AwEBAAAAAAAAAAAAAAAAAwQFAQL/xAAlEQACAgAFAwUBAAAAAAAAAAABAgADBAURgbEhJDESEyJBUaH/3QAEAAH/2gAMAwEAAhEDEQA/AI8KHmaQ"
        "ZlfAVWIO6wt33l6VY/YB/ko4a/Qz/9A1Xg+Ht6ugFsPwOjZ0EXzK/u324E//0U0yFY04FzFpiDusNpv9WDXfmApv+U//0rNeYYjIjLkOttJM1ESn"
        "FEksbWuJevTffxPuT+hZVsdQVUnaQ8f7r4pyqkjp4B/BP//T0FNItU7Fwgna6TIjbFsz7rObPm01mnHh34AWTKGRQw1Gp4iuUKHxaqw1HXgz/9TN"
        "Vci7vYvN0AsC5ELJ8CN5ke7fbgT/2Q=="
    ),
    "cmyk.jpg": (
        "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdfYmdoZz5NcXlwZHhc"
        "ZWdj/8AAFAgAEgAZBEMRAE0RAFkRAEsRAP/EABoAAAMAAwEAAAAAAAAAAAAAAAAFBgMEBwL/xAAvEAABAwIEAgcJAAAAAAAAAAAAAQIEAxIFETFB"
        "UWIGBxMUFWGBIjZVcXSRlLLR/9oADgRDAE0AWQBLAAA/AEcDYm6WF8pQ4DKfiHRuFJqXXrTscrnXK5WqrVcq+eWfqdAKSBsblLC+UwzGagUkDY3K"
        "WF8ojmM1A4mZ/C+UX2AUkDYa0sL5Rp1cys48+C5aaWPbWYmftLmmTvRLW/fzApIGxuUsL5SgmM1ApIGxmqxo0OmlSXWpUGKtqOqvRqKvDNfkI5jN"
        "QOJnjvWD/FIP5DP6L7AKSBsNKTU4IeOr33hk/SO/dgFJA2JPrFmy4Xhvc5VaPf2t3ZVFZdlZlnlrqpaTNwKSBsQdJqcEEczcDiZntTggvA//2Q=="
    ),
    "grey.jpg": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
        "YEpRUk//wAALCAASABkBAREA/8QAFgABAQEAAAAAAAAAAAAAAAAABgUE/8QAJhAAAAUCBgEFAAAAAAAAAAAAAAECAwQRIQUSExQxUTIGVGGT0f/a"
        "AAgBAQAAPwA/Ch5mkGZXoKrEHiwpMQeLA1sfgIMMhWNNC7FpiDxYbtFiMglyHW2kmdCUtRJKvVwS18N9/E+5P6LmGkWqdi8Rk9XSZEbZbZ91nNnz"
        "aazTXx5oDjBFaxA3QuiH/9k="
    ),
    "lossy.webp": (
        "UklGRrwAAABXRUJQVlA4ILAAAABQBgCdASoZABIAPu1krVAppSQisBgIATAdiWwAnTKEcDe6cZ3wAwx9wzAOcUDsPR9t46GYeotB4Ud4YAD+5e9H"
        "YgOeRiiJ19Uz3/+0ASt+yzQ/x1vo6ZOv4027hhZ3AEl+7j4OocIGb+8WAnYXRyJFP8mDTCyUiYFLXWUs4R+tiv2IP05y6TuAe2PY/yTltVjGBD/y"
        "WsM4fwKwI5qN/is/c/bxbhnuOx7ANJrgNJegAA=="
    ),
    "lossless.webp": (
        "UklGRpIAAABXRUJQVlA4TIUAAAAvGEAEED+gkI0kaMVesmNbkeNS0EYK82xp2EIjepaiNlKgvRSgC91IwArhpyCSDeq95xdPCQ3UNyYA4Htn84ec"
        "3t8fl1q9jBQU1bZNzcxfBRWIYClgmf+vBl7/5S9BRP8nIGBXrGzZMgdmwm2Hr2i1pSadm5QbwA4uJDi/EeFXRB+NC8wAAA=="
    ),
    "palette.gif": (
        "R0lGODdhGQASAIIAAMHhosGjmU/ZlE+gl8FnkE9nq70nmkgnvSwAAAAAGQASAEAIkwAPCBxI8ICBgwgTElhYYIDDAhAjQgxAsaLFigMEaNzIEYDH"
        "jwkTHoBYcGTEhShTonTIsiXLjzBjAhBQoCTBkCpRQhwgUKLEnAsttvTJ8qJRigIyalS6UabTmTZvhjyokmTUAlSBrrTa06fWlCx9ej0qNKzYAWQv"
        "JjXr0qjTtS6ZPo3Jsa7GuR4RHrDbEcDUqQcCAgA7"
    ),
    "palette.png": (
        "iVBORw0KGgoAAAANSUhEUgAAABkAAAASBAMAAABcAGiTAAAAGFBMVEXB4aLBo5lP2ZRPoJfBZ5BPZ6u9J5pIJ73j161sAAAAdElEQVR42k3MsQ1C"
        "MRRD0UMUUSAkRmA1KlZgSqQ/QfQ2SAaAhILkgytbtu/hAaOhxzlZ6kGKGUrg20UvELmjmIuEsn9z38PTNUeC9zaXgdf2+1mQlvxjsokZjUumMOrq"
        "UPtcplFHXRS5adMeb6e8cPf9Nz0fmMMrdCYD7VUAAAAASUVORK5CYII="
    ),
}

EMBEDDED = {name: base64.b64decode(text) for name, text in _EMBEDDED.items()}
"""Embedded files by name, for formats that no code here can write."""
