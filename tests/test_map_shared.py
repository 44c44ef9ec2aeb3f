"""Jobs that share the results of Python functions: a real node calls them in processes of their interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import mapped
import numpy as np
import pytest
import torch
from nodes import check_once, look

import feedline as fl
from feedline import ops
from feedline.worker.code_hash import code_hash

pytestmark = pytest.mark.usefixtures("nothing_left")
N = 240


def shared(fn: Any, socket: Path, **options: Any) -> fl.Loader:
    return fl.Loader(
        fl.synthetic(N, (6, 6, 3)), [ops.Map(fn, on="data", **options)], batch_size=16, shuffle=True, share=socket
    )


def samples(loader: fl.Loader) -> dict[int, np.ndarray]:
    """Read an epoch. Give the sample of each index."""
    found = {}
    order = []
    for batch in loader:
        order += batch["index"].tolist()
        found |= dict(zip(batch["index"].tolist(), batch["data"], strict=True))
    check_once(order)
    return found


def runs(socket: Path) -> int:
    return len(look(socket)["runs"])


def test_law_1_jobs_share_the_samples_of_a_function_whose_shapes_are_learnt(
    socket: Path, node: subprocess.Popen[str]
) -> None:
    def scale(data: np.ndarray) -> np.ndarray:
        return data.astype("float32") / 255

    with shared(scale, socket) as first, shared(scale, socket) as second:
        one, other = samples(first), samples(second)
        assert runs(socket) == 1
    alone = fl.Loader(fl.synthetic(N, (6, 6, 3)), [ops.Map(scale, on="data")], batch_size=N)
    (batch,) = list(alone)
    for index in range(N):
        assert one[index].dtype == np.float32
        assert np.array_equal(one[index], batch["data"][index])
        assert np.array_equal(one[index], other[index])


def test_random_numbers_of_shared_functions_are_those_of_the_run(socket: Path, node: subprocess.Popen[str]) -> None:
    def draw(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.random(3)

    shapes = {"data": ("float64", (3,))}
    with shared(draw, socket, shapes=shapes) as first:
        one = samples(first)
    assert len({value.tobytes() for value in one.values()}) == N, "each sample has its own"


def test_jobs_with_other_code_do_not_share(socket: Path, node: subprocess.Popen[str]) -> None:
    def with_number(number: int) -> Any:
        return lambda data: data + np.uint8(number)

    with shared(with_number(1), socket) as first, shared(with_number(2), socket) as second:
        one, other = samples(first), samples(second)
        assert runs(socket) == 2
    for index in range(N):
        assert np.array_equal(one[index] + np.uint8(1), other[index])


def test_functions_run_under_the_nodes_user_outside_the_node(socket: Path, node: subprocess.Popen[str]) -> None:
    def tell(data: np.ndarray) -> np.ndarray:
        return np.array([os.getpid(), os.getppid(), os.getuid()], np.int64)

    with shared(tell, socket) as loader:
        found = np.stack(list(samples(loader).values()))
    assert node.pid not in found[:, 0]
    assert set(found[:, 1]) == {node.pid}, "processes of the node"
    assert set(found[:, 2]) == {os.getuid()}


def test_samples_of_other_shapes_are_not_shared_and_the_warning_says_so(
    socket: Path, node: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    with shared(lambda data: "text", socket) as loader:
        assert "prepares its samples itself" in caplog.text
        assert next(iter(loader))["data"] == ["text"] * 16


CONSTANT = 3


def _uses_constant(image: Any) -> Any:
    return image + CONSTANT


def _calls(image: Any) -> Any:
    return mapped.invert(image)


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, image: Any) -> Any:
        return image * self.factor


def test_the_hash_of_a_function_follows_what_it_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hashes = [
        code_hash(lambda image: image + 1),
        code_hash(lambda image: image + 2),
        code_hash(lambda image, by=3: image + by),
        code_hash(_uses_constant),
        code_hash(_calls),
        code_hash(Scale(1)),
        code_hash(Scale(2)),
        code_hash(np.sqrt),
        code_hash(torch.nn.Flatten()),
    ]
    assert len(set(hashes)) == len(hashes)
    assert code_hash(Scale(1)) == hashes[5]
    monkeypatch.setattr("test_map_shared.CONSTANT", 4)
    assert code_hash(_uses_constant) != hashes[3]
    other = tmp_path / "mapped.py"
    other.write_text(Path(mapped.__file__).read_text() + "\n# changed\n")
    monkeypatch.setattr(mapped, "__file__", str(other))
    assert code_hash(_calls) != hashes[4], "the file of a module that it names"


def test_the_hash_sees_attributes_locks_wrappers_and_repeats() -> None:
    def with_scale(number: int) -> Any:
        class Scaled:
            scale = number

            def __call__(self, data: Any) -> Any:
                return data * self.scale

        return Scaled()

    def locked(number: int) -> Any:
        scale = Scale(number)
        scale.lock = threading.Lock()  # type: ignore[attr-defined]
        return scale

    def cached(number: int) -> Any:
        helper = lru_cache(lambda value: value + number)
        return lambda data: helper(int(data))

    for make in (with_scale, locked, cached):
        assert code_hash(make(1)) != code_hash(make(2)), make.__name__
    assert code_hash(with_scale(1)) == code_hash(with_scale(1))
    one, other = object(), object()
    assert code_hash(partial(max, one, other, one)) != code_hash(partial(max, one, other, other))


def test_the_hash_is_the_same_in_another_process() -> None:
    program = (
        "import sys; sys.path[:] = sys.argv[1].split(':'); import test_map_shared as it; "
        "from feedline.worker.code_hash import code_hash; print(code_hash(it._calls), code_hash(it.Scale(2)))"
    )
    command = [sys.executable, "-c", program, ":".join(sys.path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert found == [code_hash(_calls), code_hash(Scale(2))]
