"""Gives each peer a virtual environment of its own, below `bench/.venvs`.

In: what a peer installs. Out: its interpreter, or `NotInstallable` with the reason. Always true: an environment whose
stamp agrees with its description is complete; the environment that runs the benchmarks is never changed. Peers that
need torch see the one that is there already, through a `.pth` file: it is larger than all peers together.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from bench.harness import reason

VENVS = Path(__file__).parent.parent / ".venvs"
INSTALL_LIMIT_SECONDS = 1800


class NotInstallable(Exception):
    """A peer cannot be installed here; the text says why."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs: packages of PyPI, the torch that is there, Debian packages to build it."""

    name: str
    packages: tuple[str, ...]
    sees_torch: bool = True
    system_packages: tuple[str, ...] = ()

    def python(self) -> str:
        """The interpreter of the environment, which is made first if need be."""
        folder = VENVS / self.name
        stamp = folder / "complete"
        # Neither an environment nor the torch that it sees may have moved since.
        content = f"{self} {folder} {sysconfig.get_path('purelib')}"
        if not (stamp.exists() and stamp.read_text() == content):
            shutil.rmtree(folder, ignore_errors=True)
            self._make(folder)
            stamp.write_text(content)
        return str(folder / "bin/python")

    def _make(self, folder: Path) -> None:
        print(f"  installing {', '.join(self.packages)}", file=sys.stderr)
        _install_system_packages(self.system_packages)
        venv.create(folder, with_pip=True)
        if self.sees_torch:
            packages = folder / "lib" / Path(sysconfig.get_path("purelib")).parent.name / "site-packages"
            (packages / "torch_that_is_there.pth").write_text(sysconfig.get_path("purelib") + "\n")
        # setuptools is there for source packages of the time when every environment had it.
        _run(f"{folder}/bin/pip", "install", "--quiet", "--no-input", "setuptools", "wheel")
        _run(f"{folder}/bin/pip", "install", "--quiet", "--no-input", *self.packages)


def _install_system_packages(packages: tuple[str, ...]) -> None:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\n", *packages]
    if not packages or shutil.which("dpkg-query") is None:
        return
    answer = subprocess.run(query, capture_output=True, text=True)
    if answer.returncode == 0 and set(answer.stdout.split()) == {"installed"}:
        return
    if os.geteuid() != 0:
        raise NotInstallable(f"needs {', '.join(packages)}, which only root can install")
    _run("apt-get", "update", "--quiet=2")
    _run("apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *packages)


def _run(*command: str) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment, timeout=INSTALL_LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"not installed within {INSTALL_LIMIT_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        raise NotInstallable(reason(error.stderr) or f"{command[0]} ended with code {error.returncode}") from None
