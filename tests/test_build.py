"""Building from source: a missing tool is reported before the build starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent.parent / "tools"
HOOKS = ("get_requires_for_build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist")


def call(hook: str, path: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import build_backend; print(build_backend.{hook}())"
    environment = {"PATH": path}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)


def test_without_rust_every_build_says_what_to_install(tmp_path: Path) -> None:
    for hook in HOOKS:
        done = call(hook, str(tmp_path))
        assert done.returncode == 1
        assert "needs Rust 1." in done.stderr
        assert "cargo was not found" in done.stderr
        assert "pip install feedline" in done.stderr
        assert "Traceback" not in done.stderr


def test_with_an_old_rust_a_build_names_its_version(tmp_path: Path) -> None:
    for name, answer in (("cargo", "cargo 1.60.0"), ("rustc", "rustc 1.60.0 (old)")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / name).chmod(0o755)
    done = call(HOOKS[0], f"{tmp_path}:/bin:/usr/bin")
    assert done.returncode == 1
    assert "but found rustc 1.60.0 (old)" in done.stderr
