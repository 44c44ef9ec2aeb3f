"""The generators of ``random``, NumPy and torch: seeded as torch seeds its workers, saved and restored.

:mod:`feedline.worker.seeding` seeds them before each sample.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.worker import _generate_state


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Seed the generators exactly as a worker of torch's DataLoader does. Returns the worker's seed."""
    seed = base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker_id))
    return seed


@dataclass(frozen=True)
class GeneratorStates:
    """The states of the three generators."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @staticmethod
    def now() -> GeneratorStates:
        """Return the current states."""
        return GeneratorStates(random.getstate(), np.random.get_state(), torch.default_generator.get_state())

    def restore(self) -> None:
        """Continue from these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.default_generator.set_state(self.torch)


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restore the caller's generators at the end. For samples that are prepared in the training process."""
    states = GeneratorStates.now()
    try:
        yield
    finally:
        states.restore()
