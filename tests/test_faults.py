"""A few of the kills that ``make faults`` does at random, always the same ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_law_1_streams_equal_local_loading_when_servers_nodes_and_jobs_are_killed() -> None:
    command = [sys.executable, str(Path(__file__).parent / "faults.py"), "--kills", "6", "--seed", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("6 passed, 0 failed\n")
