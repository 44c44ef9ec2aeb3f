"""Runs one contender once: `python -m bench.torch_loader.contender KIND CONTENDER ARGUMENTS`."""

from __future__ import annotations

import os
import sys

import torch

from bench.torch_loader import memory, slow_samples, speed, starts
from bench.torch_loader.setting import report

KINDS = {
    "speed": speed.contend,
    "slow": slow_samples.contend,
    "epoch-start": starts.contend_for_epochs,
    "first-batch": starts.contend_for_first_batch,
    "memory": memory.contend,
}


def main() -> None:
    torch.set_num_threads(1)
    kind, *arguments = sys.argv[1:]
    report(KINDS[kind](*arguments))
    sys.stdout.flush()
    # Worker processes are ended by the parent. What their end takes is not measured here.
    os._exit(0)


if __name__ == "__main__":
    main()
