"""Random numbers of user code: the generators of ``random``, NumPy and torch.

In: a seed. Out: generators in a state that depends on nothing else. Workers seed them once at their start and, in mode
``"sample"``, before each sample, so that a sample does not depend on the worker that prepares it.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.worker import _generate_state

from feedline import _feedline

Seeder = Callable[[int], None]


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Seed the generators exactly as a worker of torch's DataLoader does. Returns the worker's seed."""
    seed = base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker_id))
    return seed


def sample_seeder() -> Seeder:
    """Return a function that seeds the generators for one sample with a 64-bit seed. It takes about 3 us.

    ``torch.manual_seed`` would add 100 us for devices that workers do not use.
    """
    seed_python, seed_torch = _python_seeder(), torch.default_generator.manual_seed
    # The function `np.random.seed` only calls this method.
    seed_numpy: Any = getattr(np.random.seed, "__self__", None) or getattr(np.random.mtrand, "_rand", np.random)
    seed_numpy = seed_numpy.seed

    def seed_sample(seed: int) -> None:
        seed_python(seed)
        seed_numpy(seed & 0xFFFFFFFF)
        seed_torch(seed)

    return seed_sample


def _python_seeder() -> Seeder:
    """Return a function that seeds Python's ``random``.

    ``random.seed`` takes 3 us. So the state is written where CPython keeps it: behind the header of its object, first
    the place in the state, then its words. Where it is not there, ``random.setstate`` sets the same state.
    """

    def seed_slowly(seed: int) -> None:
        words = _feedline.random_words(seed)
        random.setstate((3, (*words, len(words)), None))

    generator: Any = getattr(random, "_inst", None)
    address = id(generator) + object.__basicsize__
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if type(generator) is not random.Random or not has_lock:
        return seed_slowly
    states = GeneratorStates.now()
    words = _feedline.random_words(1)
    seed_slowly(1)
    found = list((ctypes.c_uint32 * (1 + len(words))).from_address(address))
    states.restore()
    # An attribute of the class in Python, which the type stubs do not have.
    gauss: Any = generator
    if found != [len(words), *words]:
        return seed_slowly
    seed_random = _feedline.seed_random

    def seed_quickly(seed: int) -> None:
        seed_random(address, seed)
        gauss.gauss_next = None

    return seed_quickly


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
