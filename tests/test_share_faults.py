"""Faults between jobs and their node: other jobs are not affected, and nothing is left behind."""

from __future__ import annotations

import os
import resource
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from making import HANG_SECONDS
from nodes import WAIT, Job, N, check_once, ids_of, kill, look, make, serving, start_node

import feedline as fl

pytestmark = pytest.mark.usefixtures("nothing_left")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")

NOBODY = 65534


def leased(socket: Path) -> int:
    """Segments that the jobs of a run hold together."""
    return sum(run["leased_segments"] for run in look(socket)["runs"])


def test_law_7_segments_of_a_killed_job_are_freed_soon(
    socket: Path, node: subprocess.Popen[str], wait_until: Callable[..., None]
) -> None:
    victim = Job(socket, hold=4)
    victim.wait_for("holding")
    with make(share=str(socket)) as other:
        held = next(iter(other))
        assert leased(socket) >= 3, "the victim keeps arrays over several segments"
        kill(victim.process)
        wait_until(lambda: leased(socket) == 1, "only what the other job holds is leased")
        assert len(look(socket)["jobs"]) == 1
        assert len(held["index"]) == 16
        check_once(ids_of(other))


def test_law_7_a_job_that_never_reads_holds_nobody_up_and_can_go_on_later(socket: Path) -> None:
    # Room for four segments. The waiting job has one of them.
    with serving(socket, memory="15kB"):
        idle = Job(socket, hold=1, epochs=2)
        idle.wait_for("holding")
        others = [Job(socket, epochs=4), Job(socket, batch=100, epochs=4)]
        for other in others:
            for epoch in other.epochs():
                check_once(epoch)
        assert idle.process.poll() is None
        for epoch in idle.epochs():
            check_once(epoch)


# Starts jobs and kills each at another moment while it attaches.
ATTACHING = """
import os, signal, sys, time
from nodes import make
for moment in range(30):
    said, says = os.pipe()
    job = os.fork()
    if job == 0:
        loader = make(share=sys.argv[1])
        os.write(says, b"x")
        next(iter(loader))
        time.sleep(1000)
    os.read(said, 1)
    time.sleep(moment * 0.0005)
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)
    os.close(said), os.close(says)
"""


def test_law_7_jobs_that_are_killed_while_they_attach_are_forgotten(
    socket: Path, node: subprocess.Popen[str], run_python: Callable[..., str], wait_until: Callable[..., None]
) -> None:
    with make(share=str(socket)) as stays:
        check_once(ids_of(stays))
        run_python(ATTACHING, socket)
        assert look(socket)["jobs_attached_total"] > 1, "some were killed when they were on"
        wait_until(lambda: len(look(socket)["jobs"]) == 1, "only the job that stays is on")
        check_once(ids_of(stays))
    wait_until(lambda: look(socket)["runs"] == [], "nothing is produced for nobody")


def limit_files(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def large_loader(socket: Path, **options: Any) -> fl.Loader:
    """Give a loader whose segments and batches are larger than the files that the node may create."""
    share = fl.share(socket, on_loss="raise")
    return fl.Loader(fl.synthetic(N, (128, 128, 3)), batch_size=16, shuffle=True, share=share, **options)


def test_when_shared_memory_is_full_a_job_hears_it_and_the_node_serves_others(socket: Path) -> None:
    with serving(socket, preexec_fn=limit_files(64 << 10)):
        with large_loader(socket) as large, pytest.raises(fl.FeedlineError, match=r"no \d{6} bytes left for a segment"):
            next(iter(large))
        # The state of a rank can be resumed without a node.
        with large_loader(socket, rank=0, world_size=2) as rank:
            assert len(ids_of(rank)) == N / 2
        with make(share=str(socket)) as small:
            check_once(ids_of(small))


def test_a_job_for_which_the_node_has_too_little_memory_is_refused_with_the_numbers(socket: Path) -> None:
    with (
        serving(socket, memory="6kB"),
        make(share=str(socket)) as loader,
        pytest.raises(fl.NodeError, match=r"need at least \d+ bytes .* but 6000 are allowed"),
    ):
        next(iter(loader))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that every user can reach. Folders of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="shared-faults-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.fixture
def private_folder(tmp_path: Path) -> Path:
    """Make a folder that only this user can enter."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    return folder


# Listens as another user.
LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listening", flush=True)
heard = listener.accept()[0].recv(100)
print(f"somebody came with {len(heard)} bytes", flush=True)
"""

# Connects as another user, and prints what it receives.
CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
stream = socket.socket(socket.AF_UNIX)
try:
    stream.connect(sys.argv[1])
    print(stream.makefile("rb").read())
except FileNotFoundError:
    print("nobody listens")
except PermissionError:
    print("no permission")
"""


def refused_by_node(path: Path) -> str:
    """Start a node that fails at the start, and give its error."""
    command = [sys.executable, "-m", "feedline", "node", "--socket", str(path)]
    node = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert node.returncode == 1
    return node.stderr


@needs_root
@pytest.mark.parametrize("on_loss", ["continue", "raise"])
def test_a_folder_that_another_user_made_first_is_refused_and_nobody_speaks_to_him(
    open_folder: Path, on_loss: Any, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    squatted = open_folder / "feedline-0"
    squatted.mkdir(mode=0o700)
    os.chown(squatted, NOBODY, NOBODY)
    path = squatted / "node.sock"
    other = start_python(LISTEN, path, NOBODY)
    assert other.stdout is not None
    assert other.stdout.readline() == "listening\n"
    # Not even if the socket itself belongs to us.
    for owner in (NOBODY, 0):
        os.chown(path, owner, owner)
        with (
            make(share=fl.share(str(path), on_loss=on_loss)) as loader,
            pytest.raises(fl.NodeError, match=f"belongs to user {NOBODY}"),
        ):
            next(iter(loader))
        assert f"belongs to user {NOBODY}" in refused_by_node(path)
    other.kill()
    assert other.communicate()[0] == "", "nobody has spoken to it"


@needs_root
def test_a_listener_of_another_user_gets_no_plan_though_folder_and_socket_are_ours(
    open_folder: Path, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    path = open_folder / "node.sock"
    other = start_python(LISTEN, path, NOBODY)
    assert other.stdout is not None
    assert other.stdout.readline() == "listening\n"
    os.chown(path, 0, 0)
    open_folder.chmod(0o700)
    with make(share=str(path)) as loader, pytest.raises(fl.NodeError, match=f"belongs to user {NOBODY}, not to user 0"):
        next(iter(loader))
    assert other.communicate(timeout=WAIT)[0] == "somebody came with 0 bytes\n", "it heard nothing"


def test_a_folder_that_others_may_enter_is_refused_with_what_to_do(private_folder: Path) -> None:
    path = private_folder / "node.sock"
    private_folder.chmod(0o755)
    assert "mkdir -m 700" in refused_by_node(path)
    with make(share=str(path)) as loader, pytest.raises(fl.NodeError, match="mode 0755, not 0700"):
        next(iter(loader))
    link = private_folder.parent / "link"
    link.symlink_to(private_folder)
    private_folder.chmod(0o700)
    assert "is a link" in refused_by_node(link / "node.sock")


@needs_root
def test_another_user_cannot_reach_a_node_and_is_refused_if_its_socket_is_opened_to_him(
    open_folder: Path, run_python: Callable[..., str]
) -> None:
    folder = open_folder / "node"
    path = folder / "node.sock"
    assert run_python(CONNECT, path, NOBODY) == "nobody listens\n"
    with serving(path):
        assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
        assert run_python(CONNECT, path, NOBODY) == "no permission\n"
        folder.chmod(0o777)
        path.chmod(0o666)
        assert f"the node belongs to another user than {NOBODY}" in run_python(CONNECT, path, NOBODY)
        folder.chmod(0o700)
        with make(share=str(path)) as loader:
            check_once(ids_of(loader))
    assert list(open_folder.iterdir()) == []


def test_law_7_a_node_that_is_killed_and_started_again_serves_jobs_that_resume(socket: Path) -> None:
    first = start_node(socket)
    job = Job(socket, hold=3, epochs=1)
    job.wait_for("holding")
    loader = make(share=fl.share(str(socket), on_loss="raise"))
    batches = iter(loader)
    seen = [index for _ in range(4) for index in next(batches)["index"].tolist()]
    state = loader.state_dict()
    kill(first)
    assert socket.exists(), "a killed node cannot remove its socket"
    began = time.monotonic()
    with pytest.raises(fl.NodeError, match="is gone"):
        list(batches)
    assert time.monotonic() - began < HANG_SECONDS
    with serving(socket):
        check_once(seen + ids_of(loader))
        loader.close()
        _, problem = job.process.communicate(timeout=WAIT)
        assert "NodeError" in problem, "the other job had asked for an error too"
        with make(share=str(socket)) as again:
            again.load_state_dict(state)
            check_once(seen + ids_of(again))
            check_once(ids_of(again))
    assert list(socket.parent.iterdir()) == []


# Attaches to a node, and prints when Ctrl-C was received.
ATTACHES = """
import sys, feedline as fl
source = fl.synthetic(64, (4,))
loader = fl.Loader(source, batch_size=8, shuffle=True, share=sys.argv[1], rank=0, world_size=int(sys.argv[2]))
print("attaching", flush=True)
try:
    next(iter(loader))
except KeyboardInterrupt:
    loader.state_dict()
    print("interrupted", loader.epoch, flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_law_7_ctrl_c_is_heard_while_a_node_takes_its_time_to_answer(
    socket: Path, ranks: int, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    socket.parent.mkdir(mode=0o700, exist_ok=True)
    listener = sockets.socket(sockets.AF_UNIX)
    listener.bind(str(socket))
    listener.listen()
    listener.settimeout(WAIT)
    job = start_python(ATTACHES, str(socket), str(ranks))
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "attaching\n"
        connection, _ = listener.accept()
        time.sleep(0.5)
        job.send_signal(signal.SIGINT)
        assert job.communicate(timeout=WAIT) == ("interrupted 0\n", "")
        connection.close()
    finally:
        kill(job)
        listener.close()
        socket.unlink()
