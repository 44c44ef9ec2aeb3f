"""The build backend: maturin's, after a check for a Rust toolchain.

Without one, maturin would try to download it, and fail with an error that does not name what is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import build_editable, build_sdist, build_wheel  # noqa: F401

_LEAST = re.search(r'rust-version = "([\d.]+)"', (Path(__file__).parent.parent / "Cargo.toml").read_text())


def _check_rust() -> None:
    least = _LEAST[1] if _LEAST else "1.95"
    cargo = shutil.which("cargo")
    if cargo is None:
        problem = "cargo was not found"
    else:
        told = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"rustc (\d+)\.(\d+)", told)
        if found and (int(found[1]), int(found[2])) >= tuple(map(int, least.split(".")[:2])):
            return
        problem = f"found {told.strip() or 'no rustc'}"
    sys.exit(
        f"\nfeedline is built from source here, which needs Rust {least} or later, but {problem}.\n"
        f"Install Rust (see rustup.rs), or install a wheel instead: pip install feedline\n"
    )


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Refuse at once where the build could not succeed."""
    _check_rust()
    return list(maturin.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Refuse at once where the build could not succeed."""
    _check_rust()
    return list(maturin.get_requires_for_build_editable(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """Refuse at once where the build could not succeed."""
    _check_rust()
    return list(maturin.get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """Let maturin do it."""
    return str(maturin.prepare_metadata_for_build_wheel(directory, config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
