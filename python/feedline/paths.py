"""Paths that users give: ``~`` is expanded, and names that are not UTF-8 are escaped."""

from __future__ import annotations

import os
import re

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""What a function takes as a path: what :func:`os.fspath` takes."""

_LOOKS_ESCAPED = re.compile(r"\\(?=x(?:5c|[89a-f][0-9a-f]))")


def path_text(path: AnyPath) -> str:
    r"""Give a path as text that leads back to its file.

    ``~`` at its beginning becomes the home folder. A byte that is not UTF-8 becomes ``\xNN``, such as ``caf\xe9.jpg``;
    a backslash that would read as such an escape becomes ``\x5c``. URLs stay as they are.
    """
    given = os.fspath(path)
    if b"://" in os.fsencode(given):
        return os.fsdecode(given)
    parts: list[str] = []
    rest = os.fsencode(os.path.expanduser(given))
    while rest:
        try:
            valid, invalid, rest = rest.decode(), b"", b""
        except UnicodeDecodeError as error:
            valid, invalid, rest = rest[: error.start].decode(), rest[error.start : error.end], rest[error.end :]
        parts.append(_LOOKS_ESCAPED.sub(r"\\x5c", valid))
        parts.extend(f"\\x{byte:02x}" for byte in invalid)
    return "".join(parts)


def is_path(value: object) -> bool:
    """Tell whether a value is a path rather than a list of them."""
    return isinstance(value, (str, bytes, os.PathLike))


def optional_path(path: str | os.PathLike[str] | None) -> str | None:
    """Give a path with ``~`` expanded; ``None`` stays ``None``."""
    return None if path is None else os.path.expanduser(os.fspath(path))
