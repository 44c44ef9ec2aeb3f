"""`feedline.keras` in the real Keras, with the torch and the JAX backend. The cases are in tests/keras_cases.py.

Each backend has a process of its own: a process can have only one, and both import JAX, which forbids forked workers.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from keras_cases import CASES

LIMIT_SECONDS = 300


@functools.cache
def found(backend: str) -> dict[str, str | None]:
    command = [sys.executable, str(Path(__file__).parent / "keras_cases.py"), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    result: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_keras(case: object, backend: str) -> None:
    failure = found(backend)[case.__name__]  # type: ignore[attr-defined]
    assert failure is None, failure
