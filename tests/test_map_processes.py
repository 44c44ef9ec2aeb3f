"""``ops.Map`` in worker processes, and what functions may ask for."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from making import HANG_SECONDS, natural

import feedline as fl
from feedline import ops

PICTURES = np.stack([natural(10, 14, seed) for seed in range(8)])
WORKER_TYPES = ["thread", "process"]


def run(op: ops.Map, chain: tuple[ops.Op, ...] = (), epoch: int = 0, **options: Any) -> dict[str, Any]:
    """All samples of a small array after a function, as one batch."""
    source = fl.array(PICTURES, labels=np.arange(8))
    with fl.Loader(source, [op, *chain], **({"batch_size": 8, "num_workers": 2} | options)) as loader:
        loader.set_epoch(epoch)
        (batch,) = list(loader)
    return batch


def children() -> set[int]:
    """Give the processes that this one has started, in any thread."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        # A process may end while its status is read.
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{os.getpid()}\n" in status.read_text():
                found.add(int(status.parent.name))
    return found


def test_a_function_runs_in_processes_that_are_no_forks() -> None:
    pids = set(run(ops.Map(lambda image: np.int64(os.getpid()), worker_type="process"))["image"].tolist())
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2, "at most one process for each thread"


def test_no_process_is_left_when_a_loader_is_closed_or_dropped() -> None:
    before = children()
    op = ops.Map(lambda image: image + 1, worker_type="process")
    loader = fl.Loader(fl.array(PICTURES), [op], batch_size=2, num_workers=2)
    batches = iter(loader)
    next(batches)
    assert children() - before
    loader.close()
    assert children() <= before
    loader = fl.Loader(fl.array(PICTURES), [op], batch_size=2, num_workers=2)
    next(iter(loader))
    del loader
    assert children() <= before


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_law_1_rng_and_generator_depend_on_seed_epoch_and_index_only(worker_type: Any) -> None:
    def draw(label: Any, rng: np.random.Generator, generator: torch.Generator) -> np.ndarray:
        return np.array([rng.random(), torch.rand(1, generator=generator).item()])

    op = ops.Map(draw, on="label", worker_type=worker_type)
    reference = run(op, seed=3)["label"]
    assert len(np.unique(reference)) == 16, "each sample has other numbers"
    for options in ({"num_workers": 1}, {"shuffle": True}, {"batch_size": 8, "num_workers": 4}):
        batch = run(op, seed=3, **options)
        assert np.array_equal(batch["label"], reference[batch["index"]])
    assert not np.isin(run(op, seed=4)["label"], reference).any()
    assert not np.isin(run(op, seed=3, epoch=1)["label"], reference).any()
    other = run(ops.Map(draw, on="label", worker_type="thread"), seed=3)["label"]
    assert np.array_equal(other, reference), "threads and processes give the same numbers"


def test_global_generators_are_seeded_in_processes_and_left_alone_in_threads() -> None:
    def draw(label: Any) -> np.ndarray:
        return np.array([random.random(), np.random.random(), torch.rand(1).item()])

    op = ops.Map(draw, on="label", worker_type="process")
    reference = run(op, seed=3, num_workers=1)["label"]
    assert np.array_equal(run(op, seed=3, num_workers=3)["label"], reference)
    random.seed(1)
    expected = [random.random() for _ in range(8)]
    random.seed(1)
    found = run(ops.Map(lambda label: random.random(), on="label"), num_workers=1)["label"].tolist()
    assert found == expected, "an epoch of eight, in one thread"


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_a_function_gets_index_epoch_and_key_by_name(worker_type: Any) -> None:
    def tell(label: Any, *, key: str, epoch: int, index: int) -> str:
        return f"{label} {index} {epoch} {key}"

    found = run(ops.Map(tell, on="label", worker_type=worker_type), epoch=2)["label"]
    assert found == [f"{number} {number} 2 {number:08}" for number in range(8)]


def test_the_fields_of_a_function_come_first_whatever_their_names_are() -> None:
    def swap(index: Any, epoch: Any) -> Any:
        return epoch, index

    batch = run(ops.Map(swap, on=("image", "label")))
    assert np.array_equal(batch["label"], PICTURES)
    assert batch["image"].tolist() == list(range(8))


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_fields_can_be_added_and_dropped(worker_type: Any) -> None:
    op = ops.Map(lambda image, label: (image.mean(), label * 2, "text"), ("image", "label"), ("mean", "twice", "words"),
                 worker_type=worker_type)  # fmt: skip
    batch = run(op)
    assert set(batch) == {"mean", "twice", "words", "index"}
    assert np.allclose(batch["mean"], PICTURES.mean((1, 2, 3)))
    assert batch["twice"].tolist() == [2 * number for number in range(8)]
    assert batch["words"] == ["text"] * 8
    assert set(run(ops.Map(lambda label: None, "label", (), worker_type=worker_type))) == {"image", "index"}


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_a_decoder_can_follow_a_function_that_returns_bytes(worker_type: Any, tmp_path: Path) -> None:
    def encode(image: np.ndarray) -> bytes:
        import io

        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        return file.getvalue()

    batch = run(ops.Map(encode, worker_type=worker_type), (ops.DecodeImage(), ops.Resize((10, 14))))
    assert np.array_equal(batch["image"], PICTURES)


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_an_exception_keeps_its_type_its_text_and_the_line_of_the_function(worker_type: Any) -> None:
    def fail(image: np.ndarray, label: Any) -> Any:
        if label == 5:
            raise LookupError("no such picture")
        return image, label

    with pytest.raises(fl.SampleError, match="the function raised LookupError: no such picture") as caught:
        run(ops.Map(fail, on=("image", "label"), worker_type=worker_type))
    cause = caught.value.__cause__
    assert caught.value.index == 5
    assert type(cause) is LookupError
    if worker_type == "thread":
        assert cause.__traceback__.tb_frame.f_code.co_name == "fail"
    else:
        assert "in fail" in str(cause.__cause__)
        assert "function_worker" not in str(cause.__cause__), "only lines of the user"


def test_a_killed_worker_is_named_with_its_signal_and_its_sample() -> None:
    def die(image: np.ndarray, index: int) -> np.ndarray:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return image

    op = ops.Map(die, worker_type="process")
    with pytest.raises(fl.SampleError, match="signal 9") as caught:
        run(op)
    assert caught.value.index == 3
    batch = run(op, on_error=fl.substitute(max_fraction=0.5))
    others = [number for number in range(8) if number != 3]
    assert np.array_equal(batch["image"][others], PICTURES[others]), "another worker makes the other samples"


def test_law_7_a_loader_with_a_stuck_function_closes() -> None:
    op = ops.Map(lambda image: time.sleep(10 * HANG_SECONDS) or image, worker_type="process")
    before = children()
    loader = fl.Loader(fl.array(PICTURES), [op], batch_size=8, num_workers=1)
    batches = loader.consumers(1)[0]
    del batches
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < HANG_SECONDS
    deadline = time.monotonic() + HANG_SECONDS
    while not children() <= before:
        assert time.monotonic() < deadline


def test_a_function_that_cannot_be_sent_is_named_with_its_line() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(fl.PlanError, match=r"test_map_processes.py:\d+ cannot be sent to a worker process.*lock"):
        run(ops.Map(lambda image: (lock, image)[1], worker_type="process"))


def test_declared_shapes_are_held() -> None:
    op = ops.Map(lambda image: image.astype("float32"), shapes={"image": ("float32", (10, 14, 3))})
    assert run(op)["image"].dtype == np.float32
    wrong = ops.Map(lambda image: image.astype("float64"), shapes={"image": ("float32", (10, 14, 3))})
    with pytest.raises(
        fl.SampleError, match=r"returned a float64 tensor \[10, 14, 3\] for field \"image\", but the op"
    ):
        run(wrong)
    for shapes in ({"image": "float32"}, {"image": ("floaty", (1,))}, {"image": ("float32", (-1,))}):
        with pytest.raises(fl.PlanError, match="shape"):
            run(ops.Map(lambda image: image, shapes=shapes))  # type: ignore[arg-type]
    with pytest.raises(fl.PlanError, match="which the function does not return"):
        run(ops.Map(lambda image: image, shapes={"mask": ("uint8", (1,))}))


def test_a_plan_keeps_every_parameter_of_a_function() -> None:
    chain = [ops.Map("mapped:invert", worker_type="process", shapes={"image": ("uint8", (10, 14, 3))}, version=3)]
    loader = fl.Loader(fl.array(PICTURES), chain, batch_size=8, num_workers=1)
    text = ops.Map("mapped:invert", worker_type="process", shapes={"image": ("uint8", (10, 14, 3))}, version=3)
    assert text._to_native()["worker_type"] == "process"
    source = fl.synthetic(8, (10, 14, 3))
    plan = fl.Loader(source, [ops.Map("mapped:invert", on="data", out="image", worker_type="process",
                                      shapes={"image": ("uint8", (10, 14, 3))})], batch_size=8).plan  # fmt: skip
    again = fl.Plan.from_toml(plan.to_toml(), allow_functions=True)
    assert again.to_toml() == plan.to_toml()
    (one,), (other,) = list(fl.Loader.from_plan(again)), list(fl.Loader.from_plan(plan))
    assert np.array_equal(one["image"], other["image"])
    loader.close()


def test_results_of_a_deterministic_function_are_cached() -> None:
    chain = [ops.Map(lambda image: image.astype("float32"), deterministic=True, worker_type="process")]
    loader = fl.Loader(fl.array(PICTURES), chain, batch_size=4, cache=fl.cache(ram="10MB"), num_workers=1)
    for _ in range(3):
        found = np.concatenate([batch["image"] for batch in loader])
        assert np.array_equal(found, PICTURES.astype("float32"))
    assert loader.snapshot()["cache"]["hits"] >= 8
    loader.close()


@pytest.mark.parametrize("worker_type", WORKER_TYPES)
def test_arguments_that_a_partial_has_set_keep_their_values(worker_type: Any) -> None:
    def tell(label: Any, index: int) -> int:
        return index

    found = run(ops.Map(partial(tell, index=7), on="label", worker_type=worker_type))["label"]
    assert found.tolist() == [7] * 8


def test_a_function_that_differs_between_epochs_is_not_deterministic() -> None:
    with pytest.raises(fl.PlanError, match="asks for 'rng', which differs each epoch"):
        run(ops.Map(lambda image, rng: image, deterministic=True))


def test_a_function_that_exits_is_a_bad_sample() -> None:
    def leave(image: np.ndarray) -> np.ndarray:
        raise SystemExit(3)

    with pytest.raises(fl.SampleError, match="the function raised SystemExit: 3"):
        run(ops.Map(leave, worker_type="process"))
