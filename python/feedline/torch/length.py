"""The lengths of datasets and samplers, which need not have one."""

from __future__ import annotations

from typing import Any

UNKNOWN_LENGTH = 1 << 40


def length_of(sized: Any) -> int:
    """Return ``len(sized)``, or :data:`UNKNOWN_LENGTH`."""
    try:
        return len(sized)
    except TypeError:
        return UNKNOWN_LENGTH
