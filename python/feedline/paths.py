"""Paths that users give: ``~`` is expanded, and names that are not UTF-8 are escaped."""

from __future__ import annotations

import os
import re

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""All types that :func:`os.fspath` accepts."""

_LOOKS_ESCAPED = re.compile(r"\\(?=x(?:5c|[89a-f][0-9a-f]))")


def path_text(path: AnyPath) -> str:
    r"""Return a path as text from which its file can be found again.

    ``~`` at its beginning becomes the home folder. A byte that is not UTF-8 becomes ``\xNN``, such as ``caf\xe9.jpg``;
    a backslash that would read as such an escape becomes ``\x5c``. URLs stay as they are.
    """
    given = os.fspath(path)
    if b"://" in os.fsencode(given):
        return os.fsdecode(given)
    parts: list[str] = []
    # fsencode turns the surrogates of undecodable names back into their bytes.
    rest = os.fsencode(os.path.expanduser(given))
    while rest:
        try:
            valid, invalid, rest = rest.decode(), b"", b""
        except UnicodeDecodeError as error:
            # Decode up to the bad bytes, escape these, and continue behind them.
            valid, invalid, rest = rest[: error.start].decode(), rest[error.start : error.end], rest[error.end :]
        parts.append(_LOOKS_ESCAPED.sub(r"\\x5c", valid))
        parts.extend(f"\\x{byte:02x}" for byte in invalid)
    return "".join(parts)


def is_path(value: object) -> bool:
    """Return whether a value is a path rather than a list of paths."""
    return isinstance(value, (str, bytes, os.PathLike))


def optional_path(path: str | os.PathLike[str] | None) -> str | None:
    """Return a path with ``~`` expanded; ``None`` stays ``None``."""
    return None if path is None else os.path.expanduser(os.fspath(path))
