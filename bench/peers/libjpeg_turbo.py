"""libjpeg-turbo alone: the whole of every picture decoded on one core, the files in memory, and nothing else done.

No contender but a measure: what a loader costs above or below the decoding that all of them rest on.
"""

from __future__ import annotations

import json
import subprocess
import time

from bench.harness import ContenderFailed, Window, machine_cpu_seconds, reason, tree_cpu_seconds
from bench.peers.peer import Peer
from bench.pipeline import Task

CARGO = ["--release", "--quiet", "--package", "feedline-codec", "--example", "decode_speed"]


def _cargo(*arguments: str) -> str:
    try:
        return subprocess.run(["cargo", *arguments], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise ContenderFailed("cargo is not installed") from None
    except subprocess.CalledProcessError as error:
        raise ContenderFailed(reason(error.stderr)) from None


def _convert(task: Task) -> None:
    _cargo("build", *CARGO)


def _contend(task: Task) -> Window:
    start, machine, own = time.perf_counter(), machine_cpu_seconds(), tree_cpu_seconds()
    said = _cargo("run", *CARGO, "--", str(task.folder), str(task.epochs), "--json")
    seconds = time.perf_counter() - start
    other = machine_cpu_seconds() - machine - (tree_cpu_seconds() - own)
    rounds = [json.loads(line) for line in said.splitlines()]
    wall, cpu = (sum(one[key] for one in rounds) / len(rounds) for key in ("wall_microseconds", "cpu_microseconds"))
    samples = sum(one["pictures"] for one in rounds)
    return Window(1e6 / wall, cpu / 1000, 0.0, samples, max(0.0, other) / seconds)


ALONE = Peer("libjpeg-turbo", "libjpeg-turbo alone, one core", "full decode only", _contend, convert=_convert)
