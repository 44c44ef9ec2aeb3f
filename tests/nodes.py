"""A real node and real jobs that attach to it, each in its own process, for all tests of sharing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import feedline as fl
from feedline import ops

N = 240
WAIT = 60
MEMFD = "memfd:feedline-slab"


def make(**options: Any) -> fl.Loader:
    """Give a loader of 15 segments of 16 samples. Jobs with equal values share one run."""
    chain = [ops.RandomCrop(8, on="data")]
    return fl.Loader(fl.synthetic(N, (24, 24, 3)), chain, **{"batch_size": 16, "shuffle": True, **options})


def ids_of(loader: fl.Loader) -> list[int]:
    """Read an epoch; give its samples."""
    return [index for batch in loader for index in batch["index"].tolist()]


def check_once(epoch: list[int]) -> None:
    """Give whether an epoch has each sample once."""
    assert sorted(epoch) == list(range(N))


def start_node(socket: Path, *options: str, memory: str = "64MB", **process: Any) -> subprocess.Popen[str]:
    """Start a node and wait until it listens."""
    command = [sys.executable, "-m", "feedline", "node", "--socket", str(socket), "--memory", memory, *options]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **process)
    assert started.stderr is not None
    assert "node at" in started.stderr.readline()
    return started


@contextlib.contextmanager
def serving(socket: Path, *options: str, memory: str = "64MB", **process: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a node. It must exit cleanly, unless it was killed."""
    node = start_node(socket, *options, memory=memory, **process)
    try:
        yield node
    finally:
        if node.poll() is None:
            node.terminate()
            node.communicate(timeout=WAIT)
            assert node.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process at once."""
    process.kill()
    process.communicate(timeout=WAIT)


def look(socket: Path) -> dict[str, Any]:
    """Give the output of ``feedline top``."""
    command = [sys.executable, "-m", "feedline", "--json", "top", "--socket", str(socket)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


# Reads epochs at some speed and logs its samples. After `hold` batches it keeps its batches and reads nothing
# until its input ends.
JOB = """
import json, sys, time
from nodes import make
import feedline as fl
given = json.loads(sys.argv[1])
share = fl.share(given["socket"], on_loss=given["lost"])
loader = make(batch_size=given["batch"], share=share)
print("ready", flush=True)
held = []
for epoch in range(given["epochs"]):
    ids = []
    for batch in loader:
        ids.extend(batch["index"].tolist())
        time.sleep(given["pause"])
        print("batch", flush=True)
        if len(held) < given["hold"]:
            held.append(batch)
            if len(held) == given["hold"]:
                print("holding", flush=True)
                sys.stdin.read()
    print(json.dumps(ids), flush=True)
"""


class Job:
    """A training process that shares."""

    def __init__(
        self,
        socket: Path,
        batch: int = 16,
        pause: float = 0.0,
        epochs: int = 3,
        lost: str = "raise",
        hold: int = 0,
    ) -> None:
        given = dict(socket=str(socket), batch=batch, pause=pause, epochs=epochs, lost=lost, hold=hold)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, json.dumps(given)],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=Path(__file__).parent,
        )  # fmt: skip

    def wait_for(self, line: str) -> None:
        """Read output up to this line."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said.strip() == line:
                return
        raise AssertionError(f"the job ended without {line!r}: {self.process.communicate()[1]}")

    def epochs(self) -> list[list[int]]:
        """Wait for the end, and give the samples of each epoch. A job that holds its batches continues first."""
        said, problem = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == 0, problem
        return [json.loads(line) for line in said.splitlines() if line.startswith("[")]


def processes_with(text: Path) -> list[int]:
    """Give the processes whose command line names a path, except this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # Other processes may end meanwhile.
        with contextlib.suppress(OSError):
            if str(text).encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
    return found


def leavings(folder: Path) -> set[str]:
    """Give possible leftovers of sharing: on this machine, in this process, and of processes that use ``folder``."""
    return {
        *(str(path) for path in Path("/dev/shm").iterdir()),
        *(str(path) for path in Path(tempfile.gettempdir()).glob("feedline-*")),
        *(f"process {number}" for number in processes_with(folder)),
        *(f"process {number} is dead and not waited for" for number in dead_children()),
        *(f"descriptor {name}" for name in memory_open()),
        *(f"mapped {line}" for line in Path("/proc/self/maps").read_text().splitlines() if MEMFD in line),
    }


def dead_children() -> Iterator[int]:
    """Give zombie children of this process: ended, but not waited for."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            if (state, parent) == ("Z", str(os.getpid())):
                yield int(path.parent.name)


def memory_open() -> Iterator[str]:
    """Give the descriptors of a node's memory that this process has open."""
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if MEMFD in str(path.readlink()):
                yield path.name
