"""Law 7 for forks: a child gets a clear error or a fresh run; the parent goes on as if nothing had happened."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from making import HANG_SECONDS

import feedline as fl


def forked(child: Callable[[], Any]) -> Any:
    """Run ``child`` after a fork; gives its result."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.write(writing, json.dumps(child()).encode())
        except BaseException as error:
            os.write(writing, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + HANG_SECONDS
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(reading, "rb") as pipe:
        return json.loads(pipe.read())


def numbers() -> fl.Loader:
    return fl.Loader(fl.array(np.arange(40)), batch_size=4, num_workers=2)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "use",
    [
        lambda loader, iterator: next(iterator), lambda loader, _: list(loader), lambda loader, _: iter(loader),
        lambda loader, _: loader.state_dict(), lambda loader, _: loader.snapshot(),
        lambda loader, _: loader.set_epoch(3),
    ],
    ids=["next", "list", "iter", "state_dict", "snapshot", "set_epoch"],
)  # fmt: skip
def test_a_loader_used_before_a_fork_raises_in_the_child_and_goes_on_in_the_parent(use: Any) -> None:
    loader = numbers()
    iterator = iter(loader)
    found = next(iterator)["data"].tolist()
    said = forked(lambda: use(loader, iterator))
    assert said.startswith("ForkError: this Loader was used before the process forked")
    assert "call feedline.Loader in the child" in said
    assert found + [value for batch in iterator for value in batch["data"].tolist()] == list(range(40))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_can_make_its_own_loader_and_drop_the_parents() -> None:
    held = [numbers()]
    iterators = [iter(held[0])]
    next(iterators[0])

    def child() -> list[int]:
        held.clear()
        iterators.clear()
        gc.collect()
        with numbers() as own:
            return [value for batch in own for value in batch["data"].tolist()]

    assert forked(child) == list(range(40))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_loader_made_but_not_used_before_a_fork_works_in_both() -> None:
    loader = numbers()
    assert forked(lambda: [value for batch in loader for value in batch["data"].tolist()]) == list(range(40))
    assert [value for batch in loader for value in batch["data"].tolist()] == list(range(40))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_closes_the_parents_loader_without_effect() -> None:
    loader = numbers()
    iterator = iter(loader)
    next(iterator)
    assert forked(lambda: loader.close()) is None
    assert len(list(iterator)) == 9
