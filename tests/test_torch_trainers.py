"""Real trainers on `feedline.torch.DataLoader`: a job that is killed in mid-epoch and resumed equals one that was not.

The jobs are in tests/trainer_job.py. Their dataset fails if anything but a worker process makes a sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).parent / "trainer_job.py"
STEPS_BEFORE_CHECKPOINT = 4
RANKS = {"torchrun": 2, "lightning-ddp": 2}
LIMIT_SECONDS = 240


def run(trainer: str, folder: Path, *rest: str) -> int:
    command = [sys.executable, str(JOB), trainer, str(folder), *rest]
    if trainer == "torchrun":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command = [sys.executable, *launcher, *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0 or rest, done.stderr
    if rest == ("resume",):
        assert done.returncode == 0, done.stderr
    return done.returncode


def found(folder: Path, rank: int) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"rank{rank}.json").read_text())
    return result


TRAINERS = ["torchrun", "lightning", "lightning-ddp", "accelerate", "hugging-face", "timm", "keras-torch", "keras-jax"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_law_4_a_job_that_is_killed_and_resumed_sees_what_an_unbroken_one_sees(trainer: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    run(trainer, whole)
    assert run(trainer, broken, str(STEPS_BEFORE_CHECKPOINT + 1)) != 0, "it was killed"
    assert not (broken / "rank0.json").exists()
    run(trainer, broken, "resume")
    ranks = range(RANKS.get(trainer, 1))
    for rank in ranks:
        unbroken, resumed = found(whole, rank), found(broken, rank)
        assert unbroken["seen"][STEPS_BEFORE_CHECKPOINT:] == resumed["seen"]
        assert unbroken["weight"] == resumed["weight"]
        # With a collate_fn, as the Hugging Face Trainer has one, the engine counts batches.
        assert unbroken["samples"] in (sum(map(len, unbroken["seen"])), len(unbroken["seen"])), (
            "the engine delivered all"
        )
    epochs = [[sample for rank in ranks for batch in found(whole, rank)["seen"] for sample in batch]]
    assert sorted(epochs[0]) == sorted([*range(44), *range(44)]), "each sample once per epoch"
