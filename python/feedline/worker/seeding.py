"""Seeds the generators of user code before a sample: those of ``random``, NumPy and, if it was imported, torch.

In: a seed. Out: generators in a state that depends on nothing else, so that a sample does not depend on the worker
that prepares it.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline import _feedline

Seeder = Callable[[int], None]


def sample_seeder() -> Seeder:
    """Return a function that seeds the generators for one sample with a 63-bit seed. It takes about 3 us.

    ``torch.manual_seed`` would add 100 us for devices that workers do not use.
    """
    seed_python = _python_seeder()
    # The function `np.random.seed` only calls this method.
    seed_numpy: Any = getattr(np.random.seed, "__self__", None) or getattr(np.random.mtrand, "_rand", np.random)
    seed_numpy = seed_numpy.seed
    modules = sys.modules
    seed_torch = _torch_seeder(modules["torch"]) if "torch" in modules else None

    def seed_sample(seed: int) -> None:
        nonlocal seed_torch
        seed_python(seed)
        seed_numpy(seed & 0xFFFFFFFF)
        if seed_torch is not None:
            seed_torch(seed)
        elif "torch" in modules:
            seed_torch = _torch_seeder(modules["torch"])
            seed_torch(seed)

    return seed_sample


def _torch_seeder(torch: Any) -> Seeder:
    seeder: Seeder = torch.default_generator.manual_seed
    return seeder


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
    before = random.getstate()
    words = _feedline.random_words(1)
    seed_slowly(1)
    found = list((ctypes.c_uint32 * (1 + len(words))).from_address(address))
    random.setstate(before)
    # An attribute of the class in Python, which the type stubs do not have.
    gauss: Any = generator
    if found != [len(words), *words]:
        return seed_slowly
    seed_random = _feedline.seed_random

    def seed_quickly(seed: int) -> None:
        seed_random(address, seed)
        gauss.gauss_next = None

    return seed_quickly
