"""Worker processes of feedline.torch: real processes, driven by a small parent."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info
from worker_parent import ENDED, FAILED, STORED, WHOLE, Parent

from feedline.torch import stacks
from feedline.torch.worker.item import Item
from feedline.torch.worker.main import STACK_SIGNAL
from feedline.torch.worker.seeding import preserved_generators
from feedline.worker.seeding import sample_seeder

Pair = namedtuple("Pair", ["image", "label"])


class Rows:
    """Map-style: an array, a number and a name."""

    def __getitem__(self, index: int) -> Any:
        return np.full(5, index, np.float32), index, f"row {index}"


class Calls:
    """Map-style: the result of a function of the index."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __getitem__(self, index: Any) -> Any:
        return self.function(index)


class Count(IterableDataset):
    def __init__(self, stop: int) -> None:
        self.stop = stop

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(self.stop))


def error_of(record: Any) -> Exception:
    """Give the exception of a failed record as the parent raises it."""
    assert record.status == FAILED
    with pytest.raises(Exception) as raised:  # noqa: PT011
        record.value.reraise()
    return raised.value


def test_samples_without_a_slab_are_payloads_and_propose_a_schema() -> None:
    with Parent(Rows()) as parent:
        made = parent.make([3, 4])
        assert made.statuses == [WHOLE, WHOLE]
        array, index, name = made[1].value
        assert (array.tolist(), index, name) == ([4.0] * 5, 4, "row 4")
        assert array.flags.writeable
        assert made.leaves == [(11, (5,)), (8, ())]


def test_samples_with_a_slab_lie_in_their_slots() -> None:
    with Parent(Rows()) as parent:
        schema, slab = parent.learn(0, slots=8)
        made = parent.make([7, 5], slab, first_slot=2)
        assert made.statuses == [STORED, STORED]
        assert made.values == [["row 7"], ["row 5"]]
        assert made.blob == b""
        assert slab.arrays[0][2:4, 0].tolist() == [7.0, 5.0]
        assert slab.arrays[1].tolist() == [0, 0, 7, 5, 0, 0, 0, 0]
        batch = schema.assemble_batch([array[2:4] for array in slab.arrays], made.values)
        expected = default_collate([Rows()[7], Rows()[5]])
        assert batch[0].equal(expected[0])
        assert batch[1].equal(expected[1])
        assert batch[2] == expected[2]
        assert all(record.nanoseconds > 0 for record in made.records)


def test_a_known_slab_needs_no_second_description() -> None:
    with Parent(Calls(lambda index: np.array([index]))) as parent:
        _, first = parent.learn(0, slots=4)
        _, second = parent.learn(0, slots=4, number=2)
        for slab, index in ((first, 1), (second, 2), (first, 3), (second, 4)):
            assert parent.make([index], slab, first_slot=index - 1).statuses == [STORED]
        assert first.arrays[0].ravel().tolist() == [1, 0, 3, 0]
        assert second.arrays[0].ravel().tolist() == [0, 2, 0, 4]


def test_many_slabs_need_no_file_descriptors_in_the_worker() -> None:
    with Parent(Calls(lambda index: np.array([index]))) as parent:
        _, slab = parent.learn(0, slots=1)
        before = len(os.listdir(f"/proc/{parent.pid}/fd"))
        for number in range(50):
            slab.number, slab.is_known = number, False
            assert parent.make([number], slab).statuses == [STORED]
        assert len(os.listdir(f"/proc/{parent.pid}/fd")) == before


def test_a_slab_that_cannot_be_mapped_is_an_error_that_says_so_each_time() -> None:
    with Parent(Calls(lambda index: np.array([index]))) as parent:
        _, slab = parent.learn(0, slots=1)
        slab.size = 1 << 62
        for _ in range(2):
            assert re.search(rf"cannot map the {1 << 62} bytes of a batch", str(error_of(parent.make([1], slab)[0])))
        assert parent.make([1]).values == [np.array([1])]


def test_a_sample_of_another_shape_is_a_payload() -> None:
    with Parent(Calls(lambda index: torch.ones(index))) as parent:
        _, slab = parent.learn(3, slots=4)
        made = parent.make([3, 2, 3], slab)
        assert made.statuses == [STORED, WHOLE, STORED]
        assert made[1].value.equal(torch.ones(2))


def test_a_worker_proposes_at_most_four_times_and_only_arrays() -> None:
    with Parent(Calls(lambda index: "text" if index < 0 else index)) as parent:
        assert parent.make([-1]).blob == b""
        assert [bool(parent.make([index]).blob) for index in range(6)] == [True] * 4 + [False] * 2


def test_pickled_indices_reach_the_dataset() -> None:
    with Parent(Calls(lambda index: (index, type(index).__name__))) as parent:
        assert parent.make(["a", (1, 2), 2**70]).values == [("a", "str"), ((1, 2), "tuple"), (2**70, "int")]
        assert parent.make([-5]).values == [(-5, "int")]


def test_a_request_larger_than_the_first_buffer_arrives() -> None:
    with Parent(Calls(lambda index: index)) as parent:
        _, slab = parent.learn(0, slots=20_000)
        assert len(parent.make(list(range(20_000)), slab).records) == 20_000
        assert slab.arrays[0].tolist() == list(range(20_000))


def test_payloads_beyond_the_first_arena_arrive() -> None:
    with Parent(Calls(lambda index: {"data": np.full(3_000_000, index, np.uint8), 1: b"x" * index})) as parent:
        for _ in range(2):
            made = parent.make([1, 2, 3])
            assert [int(value["data"].sum()) for value in made.values] == [3_000_000, 6_000_000, 9_000_000]
            assert [value[1] for value in made.values] == [b"x", b"xx", b"xxx"]


def test_an_exception_ends_the_request_and_not_the_worker() -> None:
    def fail(index: int) -> np.ndarray:
        if index == 2:
            raise KeyError("no such row")
        return np.array([index])

    with Parent(Calls(fail)) as parent:
        _, slab = parent.learn(0, slots=4)
        made = parent.make([0, 1, 2, 3], slab)
        assert made.statuses == [STORED, STORED, FAILED]
        error = error_of(made[2])
        assert isinstance(error, KeyError)
        assert str(error).startswith("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback")
        assert "no such row" in str(error)
        assert parent.make([3], slab).statuses == [STORED]


def test_an_exception_that_cannot_be_pickled_becomes_a_runtime_error() -> None:
    def fail(index: int) -> None:
        class Local(Exception):
            lock = threading.Lock()

        raise Local("inside")

    with Parent(Calls(fail)) as parent:
        error = error_of(parent.make([0])[0])
        assert type(error) is RuntimeError
        assert "inside" in str(error)


def test_a_sample_that_cannot_be_pickled_is_an_error_that_says_so() -> None:
    with Parent(Calls(lambda index: open("/dev/null"))) as parent:
        assert "cannot pickle" in str(error_of(parent.make([0])[0]))


def test_stop_iteration_of_a_map_style_dataset_is_an_error() -> None:
    with Parent(Calls(lambda index: next(iter(())))) as parent:
        assert isinstance(error_of(parent.make([0])[0]), StopIteration)


def test_a_failing_init_function_answers_every_request() -> None:
    def init(worker_id: int) -> None:
        raise ValueError(f"worker {worker_id} has no licence")

    with Parent(Rows(), worker_init_fn=init) as parent:
        for _ in range(2):
            made = parent.make([0, 1])
            assert made.statuses == [FAILED]
            assert "worker 0 has no licence" in str(error_of(made[0]))
        assert parent.call("start_epoch", None) == (True, None)


def test_worker_info_is_torchs() -> None:
    def info(index: int) -> Any:
        found = get_worker_info()
        return found.id, found.num_workers, found.seed, type(found.dataset).__name__, torch.get_num_threads()

    with Parent(Calls(info), worker_id=2, num_workers=3, base_seed=40) as parent:
        assert parent.make([0]).values == [(2, 3, 42, "Calls", 1)]


def test_init_function_sees_the_worker_info() -> None:
    def init(worker_id: int) -> None:
        get_worker_info().dataset.name = f"shard {worker_id}"

    dataset = Calls(lambda index: get_worker_info().dataset.name)
    with Parent(dataset, worker_init_fn=init) as parent:
        assert parent.make([0]).values == ["shard 0"]


def draw(_: Any = None) -> tuple[float, float, float, float]:
    return random.random(), random.gauss(0, 1), float(np.random.standard_normal()), float(torch.rand(()))


class Together(Calls):
    """Map-style: draws numbers for all samples at once."""

    def __init__(self) -> None:
        super().__init__(draw)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [draw() for _ in indices]


def test_seeding_per_sample_depends_on_the_seed_alone() -> None:
    with Parent(Calls(draw)) as parent:
        first = parent.make([0, 1, 2], seeds=[5, 2**64 - 1, 5]).values
        assert first[0] == first[2] != first[1]
        assert parent.make([9], seeds=[2**64 - 1]).values == [first[1]]
    with preserved_generators():
        sample_seeder()(5)
        assert first[0] == draw()


def test_a_sample_gets_the_numbers_that_numpy_and_torch_give_for_its_seed() -> None:
    seed = 2**62 + 12345
    with Parent(Calls(draw)) as parent:
        _, _, from_numpy, from_torch = parent.make([0], seeds=[seed])[0].value
    assert from_numpy == np.random.RandomState(seed % 2**32).standard_normal()
    assert from_torch == float(torch.rand((), generator=torch.Generator().manual_seed(seed)))


def test_seeding_as_torch_gives_torchs_numbers() -> None:
    loader = torch.utils.data.DataLoader(
        [0, 1, 2], num_workers=1, collate_fn=draw, generator=torch.Generator().manual_seed(7)
    )
    base_seed = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(7)).item()
    for seeding in ("torch", None):
        with Parent(Calls(draw), seeding=seeding, base_seed=base_seed) as parent:
            assert parent.make([0, 1, 2]).values == list(loader)
            loader.generator.manual_seed(7)


@pytest.mark.parametrize("dataset", [Calls(draw), Together()], ids=["getitem", "getitems"])
def test_unit_mode_seeds_each_sample(dataset: Any) -> None:
    with Parent(dataset, mode="unit", collate_fn=list, seeding="sample") as parent:
        values = parent.make([Item([0, 1], [5, 6])])[0].value
        assert parent.make([Item([0, 1], [5, 6])])[0].value == values
    torch.manual_seed(5)
    assert values[0][3] == float(torch.rand(()))


def test_unit_mode_calls_the_collate_function_with_all_samples() -> None:
    with Parent(Rows(), mode="unit", collate_fn=lambda rows: {"x": torch.tensor([row[1] for row in rows])}) as parent:
        schema, slab = parent.learn([1, 2, 3], slots=1)
        made = parent.make([[4, 5, 6]], slab)
        assert made.statuses == [STORED]
        assert schema.assemble_item(slab.arrays, made[0].value)["x"].tolist() == [4, 5, 6]
        short = parent.make([[4, 5]], slab)
        assert short.statuses == [WHOLE]
        assert short[0].value["x"].tolist() == [4, 5]


def test_unit_mode_collates_as_torch_without_a_collate_function() -> None:
    with Parent(Rows(), mode="unit") as parent:
        item = parent.make([[1, 2]])[0].value
        expected = default_collate([Rows()[1], Rows()[2]])
        assert item[0].equal(expected[0])
        assert not item[0].is_shared()
        assert item[1].equal(expected[1])
        assert item[2] == expected[2]


def test_unit_mode_without_batches_gets_one_index() -> None:
    with Parent(Rows(), mode="unit", auto_collation=False) as parent:
        array, index, name = parent.make([6])[0].value
        assert type(array) is torch.Tensor  # default_convert makes tensors of arrays.
        assert (array.tolist(), index, name) == ([6.0] * 5, 6, "row 6")


def test_getitems_gets_all_indices_at_once() -> None:
    class Many(Rows):
        def __getitems__(self, indices: list[int]) -> list[str]:
            return [f"all of {indices}"] * len(indices)

    with Parent(Many(), mode="unit") as parent:
        assert parent.make([[3, 1]]).values == [["all of [3, 1]"] * 2]


def test_an_iterable_ends_after_a_short_item_and_starts_again() -> None:
    with Parent(Count(5), mode="unit", is_iterable=True) as parent:
        for _ in range(2):
            assert [parent.make([2])[0].value.tolist() for _ in range(3)] == [[0, 1], [2, 3], [4]]
            assert parent.make([2]).statuses == [ENDED]
            assert parent.make([2]).statuses == [ENDED]
            assert parent.call("start_epoch", None) == (True, None)


def test_an_iterable_starts_again_with_a_later_epoch_and_ignores_an_earlier_one() -> None:
    with Parent(Count(5), mode="unit", is_iterable=True) as parent:
        assert parent.make([Item(4)])[0].value.tolist() == [0, 1, 2, 3]
        assert parent.make([Item(4, None, 1)])[0].value.tolist() == [0, 1, 2, 3]
        assert parent.make([Item(4, None, 0)]).statuses == [ENDED]
        assert parent.make([Item(4, None, 1)])[0].value.tolist() == [4]


def test_an_iterable_drops_a_short_item_if_asked() -> None:
    with Parent(Count(5), mode="unit", is_iterable=True, drop_last=True) as parent:
        assert [parent.make([2]).statuses for _ in range(3)] == [[WHOLE], [WHOLE], [ENDED]]


def test_an_iterable_without_batches_gives_single_samples() -> None:
    with Parent(Count(2), mode="unit", is_iterable=True, auto_collation=False) as parent:
        made = parent.make([1, 1, 1, 1])
        assert made.statuses == [WHOLE, WHOLE, ENDED]
        assert [int(record.value) for record in made.records[:2]] == [0, 1]


def test_an_iterable_whose_iterator_fails_is_an_error() -> None:
    class Broken(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such stream")

    with Parent(Broken(), mode="unit", is_iterable=True) as parent:
        assert isinstance(error_of(parent.make([2])[0]), OSError)


def test_a_data_pipe_shuffles_by_the_shared_seed() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    pipe = IterableWrapper(range(50)).shuffle()
    options = {"mode": "unit", "is_iterable": True, "auto_collation": False}
    orders = []
    for worker_id, seed in ((0, 5), (1, 5), (0, 6)):
        with Parent(pipe, worker_id=worker_id, shared_seed=seed, **options) as parent:
            orders.append(parent.make([1] * 50).values)
            assert parent.call("start_epoch", 5) == (True, None)
            orders.append(parent.make([1] * 50).values)
    assert sorted(orders[0]) == list(range(50))
    assert orders[0] == orders[1] == orders[2] == orders[3] == orders[5] != orders[4]


def test_an_error_of_a_call_comes_back() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    with Parent(IterableWrapper(range(3)).shuffle()) as parent:
        is_ok, wrapper = parent.call("start_epoch", "no number")
        assert not is_ok
        with pytest.raises(RuntimeError, match="in DataLoader worker process 0"):
            wrapper.reraise()
        assert parent.call("no_such_function", None)[0] is False


def test_progress_names_the_sample_in_work(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    def wait_for_file(index: int) -> int:
        while index == 2 and not (tmp_path / "go").exists():
            time.sleep(0.005)
        return index

    with Parent(Calls(wait_for_file)) as parent:
        parent.send_make([0, 1, 2, 3])
        wait_until(lambda: parent.progress() == 2, "the worker is at sample 2")
        (tmp_path / "go").touch()
        assert parent.made().values == [0, 1, 2, 3]


def test_a_stuck_worker_tells_its_python_stack(wait_until: Callable[..., None]) -> None:
    def stuck_in_here(index: int) -> None:
        time.sleep(3600)

    with Parent(Calls(stuck_in_here)) as parent:
        parent.send_make([0])

        # The signal may arrive before the worker has got the request.
        def stack() -> str:
            os.kill(parent.pid, STACK_SIGNAL)
            return os.pread(parent.fds[1], 1 << 20, 0).decode()

        wait_until(lambda: "stuck_in_here" in stack(), "the stack names the function")
        parent.worker.process.kill()


def test_a_process_that_took_the_number_of_an_ended_worker_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    opened = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", lambda number: done.append("opened") or opened(number))

    class Ended:
        def is_alive(self) -> bool:
            done.append("asked")
            return False

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        Ended.pid = other.pid  # type: ignore[attr-defined]
        assert not stacks._send_stack_signal(Ended())  # type: ignore[arg-type]
        assert other.poll() is None
        other.communicate(b"\n")
    # In this order, so that a worker that is alive has the number for which the descriptor was opened.
    assert done == ["opened", "asked"]
    assert other.returncode == 0


def test_a_worker_ignores_interrupts() -> None:
    with Parent(Calls(lambda index: os.kill(os.getpid(), signal.SIGINT))) as parent:
        assert parent.make([0]).values == [None]


def test_a_worker_ends_when_its_socket_closes() -> None:
    with Parent(Rows()) as parent:
        parent.make([0])
    assert parent.worker.process.exitcode == 0


def test_an_item_is_stored_in_its_order_in_memory() -> None:
    def item(index: int) -> Any:
        pixels = torch.arange(24.0).reshape(2, 3, 4) + index
        return {"tensor": pixels.permute(2, 0, 1), "array": np.asfortranarray(pixels.numpy())}

    with Parent(Calls(item), mode="unit", auto_collation=False, collate_fn=lambda value: value) as parent:
        schema, slab = parent.learn(0, slots=1)
        made = parent.make([1], slab)
        assert made.statuses == [STORED]
        found, expected = schema.assemble_item(slab.arrays, made.values[0]), item(1)
        assert found["tensor"].stride() == expected["tensor"].stride()
        assert found["array"].strides == expected["array"].strides
        assert torch.equal(found["tensor"], expected["tensor"])
        assert np.array_equal(found["array"], expected["array"])


def test_output_of_a_dataset_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with Parent(Calls(lambda index: sys.stdout.write("from the worker"))) as parent:
        parent.make([0])
    assert "from the worker" in capfd.readouterr().out


def test_a_worker_that_exits_closes_its_socket() -> None:
    with Parent(Calls(lambda index: os._exit(3))) as parent:
        parent.send_make([0])
        with pytest.raises(EOFError):
            parent.made()
        parent.worker.process.join()
        assert parent.worker.process.exitcode == 3


def test_named_tuples_and_nested_samples_come_back_as_torch_collates_them() -> None:
    def nested(index: int) -> Any:
        return {"pair": Pair(torch.full((2, 2), index), index), "more": [np.float32(index), (True, f"s{index}")]}

    with Parent(Calls(nested)) as parent:
        schema, slab = parent.learn(0, slots=3)
        made = parent.make([0, 1, 2], slab)
        assert made.statuses == [STORED] * 3
        batch = schema.assemble_batch(slab.arrays, made.values)
        assert repr(batch) == repr(default_collate([nested(index) for index in range(3)]))
        assert type(batch["pair"]) is Pair
