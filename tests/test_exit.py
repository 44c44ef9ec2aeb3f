"""Law 7 at the end of a process: it ends cleanly and at once, and leaves nothing on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from making import HANG_SECONDS

Start = Callable[..., "subprocess.Popen[str]"]

SETUP = """
import os, sys, threading, time
import numpy as np
import feedline as fl
from feedline import ops
def slow(data):
    time.sleep(3 * 120)
    return data
def quick(data):
    time.sleep(0.001)
    return data
def source():
    return fl.synthetic(10**6, (64, 64, 3))
"""

# fmt: off
EXITS = {
    "a running loader": "it = iter(fl.Loader(source(), batch_size=8)); next(it)",
    "a loader never used": "loader = fl.Loader(source(), batch_size=8)",
    "a loop left by break": "loader = fl.Loader(source(), batch_size=8)\nfor b in loader: break",
    "a Map running": "it = iter(fl.Loader(source(), [ops.Map(quick, on='data')], batch_size=8)); next(it)",
    "a Map running on many threads":
        "it = iter(fl.Loader(source(), [ops.Map(quick, on='data')], batch_size=8, num_workers=8)); next(it)",
    "a loader in a cycle":
        "class A: pass\na = A(); a.a = a; a.it = iter(fl.Loader(source(), batch_size=8)); next(a.it)",
    "an iterator in a module":
        "import builtins; builtins.kept = iter(fl.Loader(source(), batch_size=8)); next(builtins.kept)",
    "batches that outlive the loader":
        "loader = fl.Loader(source(), batch_size=8); kept = [b for b, _ in zip(loader, range(5))]; del loader",
    "many loaders": "its = [iter(fl.Loader(source(), batch_size=8)) for _ in range(20)]; [next(it) for it in its]",
    "sys.exit(0) in a loop": "for b in fl.Loader(source(), batch_size=8): sys.exit(0)",
}
# fmt: on


def check_exit(process: subprocess.Popen[str], is_silent: bool = True) -> str:
    """Check that the process prints "done" and then ends at once with exit code 0."""
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n", process.communicate()[1]
    began = time.monotonic()
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    assert time.monotonic() - began < HANG_SECONDS
    assert err == "" or not is_silent
    return err


@pytest.mark.parametrize("body", EXITS.values(), ids=EXITS)
def test_the_interpreter_exits_cleanly_with(start_python: Start, body: str) -> None:
    is_last = "sys.exit" in body
    check_exit(start_python("\n".join([SETUP, "print('done')", body] if is_last else [SETUP, body, "print('done')"])))


def test_the_interpreter_exits_cleanly_while_a_function_is_busy_for_seconds(start_python: Start) -> None:
    body = """
entered = threading.Event()
def busy(data, label):
    if label >= 8:
        entered.set()
        time.sleep(3 * 120)
    return data, label
data = fl.array(np.zeros((64, 4)), labels=np.arange(64))
it = iter(fl.Loader(data, [ops.Map(busy, on=("data", "label"))], batch_size=8))
next(it)
entered.wait()
print("done")
"""
    # Such a thread cannot be ended. The only output is one line that says so.
    err = check_exit(start_python(SETUP + body), is_silent=False)
    assert err.splitlines() == [line for line in err.splitlines() if "an op was still running" in line]


@pytest.mark.parametrize("samples", [10**6, 8])
@pytest.mark.parametrize("chain", ["[]", "[ops.Map(quick, on='data')]"])
def test_the_interpreter_exits_silently_while_a_daemon_thread_iterates(
    start_python: Start, chain: str, samples: int
) -> None:
    body = f"""
begun = threading.Event()
loader = fl.Loader(fl.synthetic({samples}, (64, 64, 3)), {chain}, batch_size=8)
def use():
    while True:
        for _ in loader: begun.set()
threading.Thread(target=use, daemon=True).start()
begun.wait()
print("done")
"""
    check_exit(start_python(SETUP + body))


def test_an_exception_in_the_training_loop_ends_the_process_with_it(start_python: Start) -> None:
    process = start_python(f"{SETUP}\nfor b in fl.Loader(source(), batch_size=8): raise RuntimeError('loss is nan')")
    began = time.monotonic()
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 1
    assert err.strip().endswith("RuntimeError: loss is nan")
    assert time.monotonic() - began < HANG_SECONDS


def test_kill_9_leaves_no_shared_memory_no_child_and_no_file(start_python: Start, tmp_path: Path) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    process = start_python(
        f"{SETUP}\nit = iter(fl.Loader(source(), batch_size=8, num_workers=4)); next(it); print('up'); time.sleep(60)"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    assert children.read_text() == "", "the engine has threads, not processes"
    files_before = set(tmp_path.iterdir())
    process.send_signal(signal.SIGKILL)
    process.wait(HANG_SECONDS)
    assert set(os.listdir("/dev/shm")) <= shared_before
    assert set(tmp_path.iterdir()) == files_before
    assert not Path(f"/proc/{process.pid}/task").exists()


def test_importing_does_nothing(run_python: Callable[..., str]) -> None:
    code = """
import os, sys, logging
before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
os.environ["RANK"], os.environ["WORLD_SIZE"] = "nonsense", "x"
import feedline
# NumPy's own threads and files are not ours.
import numpy
after = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
assert "torch" not in sys.modules
assert not logging.getLogger("feedline").handlers and not logging.getLogger().handlers
assert logging.getLogger("feedline").level == logging.NOTSET
print(after[1] - before[1])
"""
    assert run_python(code).strip() == "0"


def test_a_forked_child_that_holds_the_parents_loader_exits_cleanly(run_python: Callable[..., str]) -> None:
    code = (
        SETUP
        + """
import multiprocessing
loader = fl.Loader(source(), batch_size=8)
it = iter(loader)
next(it)
def child():
    try:
        next(it)
    except fl.ForkError:
        with fl.Loader(fl.synthetic(8, (4,)), batch_size=8) as own:
            sys.exit(10 + len(list(own)))
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(100)
next(it)
print(process.exitcode)
"""
    )
    assert run_python(code).strip() == "11"
