"""Starting and ending the worker processes of feedline.torch with each start method."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from making import HANG_SECONDS
from worker_parent import FAILED, STORED, WHOLE, Parent

import feedline
from feedline.torch.processes import WorkerStarter, choose_context, end_workers
from feedline.torch.worker.main import WorkerConfig
from feedline.torch.worker.packing import PackedConfig, UnsendableError

METHODS = ["fork", "forkserver", "spawn"]
OTHERS = METHODS[1:]
Pair = namedtuple("Pair", ["image", "label"])


class Calls:
    """Map-style: the result of a function of the dataset and the index."""

    def __init__(self, function: Callable[[Any, Any], Any], **attributes: Any) -> None:
        self.function = function
        self.__dict__.update(attributes)

    def __getitem__(self, index: Any) -> Any:
        return self.function(self, index)


class Unloadable:
    def __init__(self) -> None:
        self.state = 1

    def __setstate__(self, state: Any) -> None:
        raise OSError("no such database")

    def __getitem__(self, index: int) -> int:
        return index


def resident(process: int, name: str) -> int:
    """Give the private bytes of a process in mappings of a file."""
    total, is_wanted = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            is_wanted = name in line
        elif is_wanted and line.startswith("Private_"):
            total += int(line.split()[1]) * 1024
    return total


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("method", METHODS)
def test_every_start_method_serves_lambdas_and_local_classes(method: str) -> None:
    class Local:
        def __getitem__(self, index: int) -> Any:
            return Pair(np.full(3, index), index)

    with Parent(Local(), method, worker_init_fn=lambda worker_id: None) as parent:
        _, slab = parent.learn(0, slots=2)
        assert parent.make([4, 5], slab).statuses == [STORED, STORED]
        assert slab.arrays[0][:, 0].tolist() == [4, 5]
    with Parent([1, 2, 3], method, mode="unit", collate_fn=lambda samples: f"{samples}") as parent:
        assert parent.make([[0, 2]]).values == ["[1, 3]"]
    assert parent.worker.process.exitcode == 0


@pytest.mark.parametrize("method", OTHERS)
def test_large_arrays_are_shared_until_a_worker_writes(method: str) -> None:
    def look(dataset: Any, index: int) -> float:
        if index == 1:
            dataset.tensor[0] = 5
        return float(dataset.array.sum() + dataset.tensor[0])

    dataset = Calls(look, array=np.ones(4 << 20, np.float32), tensor=torch.zeros(1 << 20), small=np.ones(3))
    config = WorkerConfig(0, 2, "sample", dataset)
    starter = WorkerStarter(choose_context(method), config)
    parents = [Parent.of(starter.start(worker_id)) for worker_id in range(2)]
    try:
        assert [parent.make([0]).values for parent in parents] == [[4194304.0]] * 2
        private = resident(parents[1].pid, "feedline-dataset")
        assert private < 1 << 20, "a worker has a copy of the array"
        assert parents[0].make([1, 0]).values == [4194309.0] * 2
        assert parents[1].make([0]).values == [4194304.0]
        assert float(dataset.tensor[0]) == 0
    finally:
        end_workers([parent.worker for parent in parents], HANG_SECONDS)


@pytest.mark.parametrize("method", METHODS)
def test_shared_tensors_and_values_stay_shared(method: str) -> None:
    def count(dataset: Any, index: int) -> str:
        dataset.value.value += index
        dataset.tensor += index
        return "counted"

    context = multiprocessing.get_context(method)
    dataset = Calls(count, value=context.Value("i", 1), tensor=torch.zeros(2).share_memory_(), array=np.ones(1 << 20))
    with Parent(dataset, method) as parent:
        assert parent.make([3, 4]).values == ["counted"] * 2
        assert dataset.value.value == 8
        assert dataset.tensor.tolist() == [7, 7]


def unsendable(**options: Any) -> str:
    config = WorkerConfig(**{"worker_id": 0, "num_workers": 1, "mode": "unit", "dataset": [1], **options})
    with pytest.raises(UnsendableError) as raised:
        PackedConfig(config)
    return str(raised.value)


def test_an_object_that_cannot_be_sent_is_named_by_its_path(tmp_path: Path) -> None:
    lock = threading.Lock()
    ending = " to a worker process: cannot pickle '_thread.lock' object"
    assert unsendable(dataset=Calls(len, lock=lock)) == f"cannot send dataset.lock{ending}"
    nested = Calls(len, parts=[0, {"inner": Calls(len, lock=lock)}])
    assert unsendable(dataset=nested) == f"cannot send dataset.parts[1]['inner'].lock{ending}"
    assert unsendable(collate_fn=lambda batch: lock) == f"cannot send collate_fn's variable lock{ending}"
    assert unsendable(collate_fn=functools.partial(max, lock)) == f"cannot send collate_fn.args[0]{ending}"
    with open(tmp_path / "file", "w+") as file:
        assert unsendable(dataset=Calls(len, file=file)).startswith("cannot send dataset.file to a worker process")


@pytest.mark.parametrize("method", OTHERS)
def test_a_dataset_that_cannot_be_loaded_answers_every_request(method: str) -> None:
    with Parent(Unloadable(), method) as parent:
        for _ in range(2):
            made = parent.make([0, 1])
            assert made.statuses == [FAILED]
            with pytest.raises(OSError, match="no such database"):
                made[0].value.reraise()


def test_fork_needs_no_pickling() -> None:
    with Parent(Calls(lambda dataset, index: dataset.lock.locked(), lock=threading.Lock())) as parent:
        assert parent.make([0])[0].value is False


def test_no_worker_holds_the_parents_end_of_another() -> None:
    starter = WorkerStarter(choose_context("fork"), WorkerConfig(0, 3, "sample", [1, 2, 3]))
    parents = [Parent.of(starter.start(worker_id)) for worker_id in range(3)]
    copies = [parents[0].socket.dup()]
    try:
        parents.append(Parent.of(starter.start(3)))
        for parent in parents:
            held = {os.readlink(f"/proc/{parent.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{parent.pid}/fd")}
            assert not held & {f"socket:[{os.fstat(other.socket.fileno()).st_ino}]" for other in parents}
        parents[2].socket.close()
        parents[2].worker.process.join(HANG_SECONDS)
        assert parents[2].worker.process.exitcode == 0
        assert parents[1].make([1]).statuses == [WHOLE]
    finally:
        copies[0].close()
        end_workers([parent.worker for parent in parents], HANG_SECONDS)


def test_workers_that_do_not_end_are_killed() -> None:
    def never(dataset: Any, index: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        dataset.event.set()
        while True:
            time.sleep(60)

    event = multiprocessing.get_context("fork").Event()
    parent = Parent(Calls(never, event=event))
    parent.send_make([0])
    assert event.wait(HANG_SECONDS)
    end_workers([parent.worker], 0.0)
    assert parent.worker.process.exitcode == -signal.SIGKILL


def test_a_handler_of_the_training_script_does_not_run_in_workers() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with Parent([1]) as parent:
            parent.make([0])
            parent.worker.process.terminate()
            parent.worker.process.join(HANG_SECONDS)
            assert parent.worker.process.exitcode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_forking_beside_threads_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with Parent([1]) as parent:
            assert parent.make([0]).values == [1]
    finally:
        done.set()
        thread.join()
    assert [str(warning.message) for warning in recwarn if "fork" in str(warning.message)] == []


SAME_PACKAGE = f"""
import os, sys
sys.path.insert(0, {str(Path(feedline.__file__).parent.parent)!r})
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:1] + [os.environ["PYTHONPATH"]])
"""
"""Start of scripts: they and their workers use the package that is tested, installed or not."""

BUSY = """
import time
from worker_parent import Parent

class Busy:
    def __getitem__(self, index):
        while True:
            time.sleep(0.01)

parents = [Parent(Busy(), sys.argv[1]), Parent([1, 2], sys.argv[1])]
parents[0].send_make([0])
print(*(parent.pid for parent in parents), flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("method", METHODS)
def test_no_worker_survives_a_killed_parent(
    method: str, start_python: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    process = start_python(SAME_PACKAGE + BUSY, method)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2, process.communicate()
    assert not any(map(is_gone, pids))
    process.kill()
    process.wait()
    for pid in pids:
        wait_until(lambda pid=pid: is_gone(pid), "the worker has ended")


UNGUARDED = """
from collections import namedtuple
from dataclasses import dataclass
import numpy as np
from worker_parent import Parent

print("the script runs")
Pair = namedtuple("Pair", ["image", "label"])

@dataclass
class Box:
    corner: int

class OwnError(Exception):
    pass

class Dataset:
    def __getitem__(self, index):
        if index == 9:
            raise OwnError("nine")
        return Pair(np.full(2, index), Box(index))

with Parent(Dataset(), sys.argv[1]) as parent:
    schema, slab = parent.learn(1, 2)
    made = parent.make([3, 4, 9], slab)
    assert type(schema.sample_at(slab.arrays, 0, made[0].value)) is Pair
    assert [record.value for record in made.records[:2]] == [[Box(3)], [Box(4)]]
    try:
        made[2].value.reraise()
    except OwnError as error:
        print("nine" in str(error))
with Parent([0, 1, 2], sys.argv[1], worker_init_fn=lambda _: None) as parent:
    print(parent.make([2])[0].value)
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_script_needs_no_main_guard(method: str, run_python: Callable[..., str]) -> None:
    assert run_python(SAME_PACKAGE + UNGUARDED, method, seconds=HANG_SECONDS).split("\n") == [
        "the script runs",
        "True",
        "2",
        "",
    ]


CHOICE = """
import threading
from feedline.torch.processes import choose_context
if sys.argv[1] == "thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
elif sys.argv[1] == "jax":
    sys.modules["jax"] = sys
elif sys.argv[1] == "cuda":
    import torch
    torch.cuda.is_initialized = lambda: True
print(choose_context(None).get_start_method(), choose_context("auto").get_start_method())
"""


@pytest.mark.parametrize(
    ("state", "expected"), [("plain", "fork"), ("thread", "forkserver"), ("jax", "forkserver"), ("cuda", "forkserver")]
)
def test_fork_is_chosen_only_where_it_is_safe(state: str, expected: str, run_python: Callable[..., str]) -> None:
    assert run_python(SAME_PACKAGE + CHOICE, state, seconds=HANG_SECONDS) == f"{expected} {expected}\n"


def test_a_wanted_context_is_honoured() -> None:
    for method in METHODS:
        assert choose_context(method).get_start_method() == method
        context = multiprocessing.get_context(method)
        assert choose_context(context) is context
    with pytest.raises(ValueError, match="thread"):
        choose_context("thread")


def test_a_worker_without_a_parent_end_ends_at_once() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    code = "import socket, sys; from feedline.torch.worker.main import run_worker, WorkerConfig; "
    code += "run_worker(socket.socket(fileno=int(sys.argv[1])), WorkerConfig(0, 1, 'sample', [1]))"
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    with theirs:
        assert subprocess.run(command, pass_fds=[theirs.fileno()], timeout=HANG_SECONDS).returncode == 0


FROM_SERVER = """
import gc, sys
import feedline.torch

class Facts:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return [gc.isenabled(), gc.get_freeze_count()]

loader = feedline.torch.DataLoader(Facts(), num_workers=1, batch_size=None, multiprocessing_context="forkserver")
print(*next(iter(loader)))
"""


def test_what_the_fork_server_imported_is_frozen_in_its_workers() -> None:
    done = subprocess.run([sys.executable, "-c", FROM_SERVER], capture_output=True, text=True, timeout=120)
    is_enabled, frozen = done.stdout.split()
    assert is_enabled == "True", "workers collect garbage of their own"
    assert int(frozen) > 100_000, "the objects of torch's modules"


class Started:
    """A process with only what ``multiprocessing`` documents. The second one of ``made`` cannot be started."""

    def __init__(self, process: Any, made: list[Started]) -> None:
        self.process, self.made = process, made
        made.append(self)

    def start(self) -> None:
        if len(self.made) == 2:
            raise OSError("no further process")
        self.process.start()

    def __getattr__(self, name: str) -> Any:
        assert name in ("is_alive", "join", "terminate", "kill", "pid", "exitcode"), name
        return getattr(self.process, name)


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_if_a_later_one_cannot_be_started(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context, made = multiprocessing.get_context(method), []
    original: Any = context.Process  # type: ignore[attr-defined]
    monkeypatch.setattr(type(context), "Process", staticmethod(lambda **options: Started(original(**options), made)))
    with pytest.raises(OSError, match="no further process"):
        iter(feedline.torch.DataLoader(range(8), num_workers=2, multiprocessing_context=context))
    assert len(made) == 2
    assert not made[0].is_alive()
