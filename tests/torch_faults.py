"""Faults of worker processes at random moments: `torch_faults.py [--kills 100] [--cycles 1000] [--seed 0]`.

Kills: a worker gets SIGKILL at a random moment of an epoch. With `on_error="raise"` the trainer gets an error that
names the worker, or the epoch was already complete. With `on_error="restart"` each sample still comes exactly once,
with the bytes of an undisturbed epoch. Cycles: loaders are started and left at random batches. Afterwards no child
process, no thread, no shared memory and no file descriptor is left.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import torch
from torch.utils.data import Dataset

from feedline.torch import DataLoader

LIMIT_SECONDS = 60


class Noise(Dataset[Any]):
    """Samples that take up to two milliseconds."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, str]:
        noise = torch.rand(64)
        time.sleep(float(noise[0]) * 0.002)
        return noise, index, f"sample {index}"


def epoch(loader: DataLoader[Any]) -> list[tuple[int, float]]:
    return [(int(i), float(n.sum())) for noise, index, _ in loader for n, i in zip(noise, index, strict=True)]


def kill_one(rng: random.Random, reference: list[tuple[int, float]], on_error: Any) -> str:
    """Kill a worker in an epoch. Return what happened."""
    loader = DataLoader(
        Noise(len(reference)), batch_size=8, shuffle=True, num_workers=3, seed=1, on_error=on_error,
        persistent_workers=rng.random() < 0.5, native=False,
    )  # fmt: skip
    batches = iter(loader)
    found = [next(batches)]
    engine = batches._engine
    victim = rng.choice(engine.workers).process
    timer = threading.Timer(rng.random() * 0.1, os.kill, (victim.pid, signal.SIGKILL))
    timer.start()
    try:
        found += list(batches)
    except RuntimeError as error:
        is_named = on_error == "raise" and "SIGKILL" in str(error) and str(victim.pid) in str(error)
        if not is_named:
            raise
        return "named"
    finally:
        timer.join()
        del batches, engine
    pairs = [(int(i), float(n.sum())) for noise, index, _ in found for n, i in zip(noise, index, strict=True)]
    assert pairs == reference, "the epoch differs from an undisturbed one"
    return "complete"


def children() -> list[int]:
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == own and fields[0] != "Z":
                found.append(int(name))
    return found


def left_behind() -> tuple[int, int, int, int]:
    """Count child processes, threads, shared memory files and file descriptors."""
    gc.collect()
    return (
        len(children()),
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/dev/shm")),
        len(os.listdir("/proc/self/fd")),
    )


def settled(before: tuple[int, ...]) -> tuple[int, ...]:
    """Wait until no more is left than before."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(now > then for now, then in zip(left_behind(), before, strict=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left_behind()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    reference = epoch(DataLoader(Noise(240), batch_size=8, shuffle=True, num_workers=2, seed=1, native=False))
    before = left_behind()
    passed = failed = 0
    outcomes: dict[str, int] = {}
    for number in range(options.kills):
        on_error = "restart" if number % 2 else "raise"
        try:
            outcome = f"{on_error}: {kill_one(rng, reference, on_error)}"
            passed += 1
        except Exception as error:  # Counted, and the run goes on.
            outcome, failed = f"{on_error}: {type(error).__name__}", failed + 1
            print(f"kill {number}: {error!r}", file=sys.stderr)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(outcomes)
    for number in range(options.cycles):
        loader = DataLoader(Noise(40), batch_size=4, num_workers=rng.randint(1, 2), seed=number, native=False)
        for taken, _ in enumerate(loader):
            if taken >= rng.randint(0, 5):
                break
        # A batch that is kept keeps its memory, and the descriptor of it.
        del loader, _
        passed += 1
    after = settled(before)
    if any(now > then for now, then in zip(after, before, strict=True)):
        failed += 1
        print(f"left behind (processes, threads, shared memory, descriptors): {before} before, {after} now")
        subprocess.run(["ls", "-l", f"/proc/{os.getpid()}/fd"])
    else:
        passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
