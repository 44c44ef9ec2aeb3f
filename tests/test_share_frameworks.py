"""Jobs of different frameworks on one run: torch and JAX, each in its own process, over the same memory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodes import WAIT, check_once, look

pytestmark = pytest.mark.usefixtures("nothing_left", "node")

EPOCHS = 6

# Reads epochs, one segment per batch, and logs the samples with their round and content. `as_numpy`
# gives the values that the framework sees. Each epoch starts on a line of input. The job ends with its input.
JOB = """
import hashlib, json, sys
from nodes import make

def run(as_numpy, **options):
    loader = make(share=sys.argv[1], **options)
    epochs, values, rounds = [], {}, loader.state_dict()["rounds"]
    for epoch in range(int(sys.argv[2])):
        print("ready", flush=True)
        sys.stdin.readline()
        ids = []
        for batch in loader:
            before, rounds = rounds, loader.state_dict()["rounds"]
            (round,) = (new for old, new in zip(before, rounds) if old != new)
            for index, sample in zip(batch["index"].tolist(), as_numpy(batch["data"])):
                ids.append(index)
                values[f"{index} in round {round}"] = hashlib.sha256(sample.tobytes()).hexdigest()
        epochs.append(ids)
    print(json.dumps([epochs, values]), flush=True)
    sys.stdin.read()
    loader.close()
"""

TORCH = (
    JOB
    + """
import torch

def as_numpy(data):
    assert isinstance(data, torch.Tensor)
    return data.numpy()

run(as_numpy, framework="torch")
"""
)

JAX = (
    JOB
    + """
import jax.numpy as jnp
import numpy as np

def as_numpy(data):
    seen = jnp.from_dlpack(data)
    assert seen.unsafe_buffer_pointer() == data.ctypes.data, "JAX reads the memory of the node"
    assert int(jnp.sum(seen, dtype=jnp.uint32)) == int(data.sum())
    return np.asarray(seen)

run(as_numpy)
"""
)


class Framework:
    """A job of some framework."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()[1]
        return line

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> tuple[list[list[int]], dict[str, str]]:
        epochs, values = json.loads(self.hear())
        return epochs, values

    def end(self) -> None:
        _, problem = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == 0, problem


def test_law_2_a_torch_and_a_jax_job_read_one_production_at_once(
    socket: Path, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = [Framework(start_python(code, socket, EPOCHS, stdin=subprocess.PIPE)) for code in (TORCH, JAX)]
    for _ in range(EPOCHS):
        for job in jobs:
            assert job.hear() == "ready"
        for job in jobs:
            job.go()
    results = [job.result() for job in jobs]
    (run,) = look(socket)["runs"]
    for job in jobs:
        job.end()
    for epochs, _ in results:
        assert len(epochs) == EPOCHS
        for epoch in epochs:
            check_once(epoch)
    seen: list[dict[str, Any]] = [values for _, values in results]
    common = seen[0].keys() & seen[1].keys()
    assert len(common) > len(seen[0]) / 2, "most was produced for both"
    assert all(seen[0][sample] == seen[1][sample] for sample in common)
    assert (run["jobs"], run["leased_samples"]) == (2, 2 * EPOCHS * 240)
    assert run["leased_per_produced"] > 1.5


ALIGNMENT = """
import sys
import jax.numpy as jnp
import numpy as np
import feedline as fl
from feedline import ops
from nodes import N, check_once

views = copies = 0
# A sample has 5 * 7 bytes, so batches begin at any byte.
with fl.Loader(fl.synthetic(N, (5, 7)), batch_size=4, shuffle=True, share=sys.argv[1]) as loader:
    seen = []
    for batch in loader:
        data = batch["data"]
        view = jnp.from_dlpack(data)
        is_view = view.unsafe_buffer_pointer() == data.ctypes.data
        assert is_view == (data.ctypes.data % 64 == 0)
        views, copies = views + is_view, copies + (not is_view)
        assert np.array_equal(view, data)
        seen.extend(batch["index"].tolist())
check_once(seen)
print(views, copies)
"""


def test_jax_copies_batches_that_begin_at_no_multiple_of_64_bytes(socket: Path, run_python: Callable[..., str]) -> None:
    views, copies = map(int, run_python(ALIGNMENT, socket, seconds=WAIT).split())
    assert views > 0
    assert copies > 0
