"""A storage server in its own process, and its processor time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import harness


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address = process, address

    def url(self, path: str) -> str:
        """Give the address of something below its root."""
        return f"feedline://{self.address}/{path}"

    def cpu_seconds(self) -> float:
        """Give the processor time of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / harness.TICKS


@contextmanager
def serving(root: Path, cache: Path, mbps: float | None = None, cpus: float | None = None) -> Iterator[Server]:
    """Serve a folder as long as the context lasts."""
    command = [sys.executable, "-m", "feedline", "storage", "--root", str(root), "--listen", "127.0.0.1:0"]
    command += [] if mbps is None else ["--link-mbps", str(mbps)]
    command += [] if cpus is None else ["--cpus", str(cpus)]
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        said = process.stderr.readline()
        found = re.search(r"feedline://([\d.]+:\d+)", said)
        if found is None:
            raise SystemExit(f"the storage server did not start: {said}")
        yield Server(process, found[1])
    finally:
        process.terminate()
        process.wait(10)
