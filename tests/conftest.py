"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from making import HANG_SECONDS, folder_of
from nodes import leavings, serving

# A shell makes background processes ignore SIGINT, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LAUNCHER_VARIABLES = (
    "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
BROWSER_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--window-size=1100,900",
)
PAGE_SECONDS = 30


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the rank of the process that started the tests."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give each test its own cache folder, so that the user's is not touched."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEEDLINE_CACHE", str(folder))
    return folder


@pytest.fixture
def pictures(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder of PNG pictures: ``pictures(12, classes=("cat", "dog"), size=(24, 32))``."""

    def make(
        count: int, classes: tuple[str, ...] = ("cat", "dog"), size: tuple[int, int] = (24, 32), name: str = "pictures"
    ) -> Path:
        return folder_of(tmp_path / name, count, classes, size)

    return make


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Poll a condition until it holds: ``wait_until(lambda: ..., "what")``."""

    def wait(condition: Callable[[], bool], what: str, seconds: float = HANG_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.005)

    return wait


def end(started: list[subprocess.Popen[str]]) -> None:
    """Kill the processes that still run, and wait for all of them."""
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def start_python(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python process that runs ``code``; it is killed at the end of the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        script = tmp_path / f"script{len(started)}.py"
        script.write_text(code)
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    end(started)


@pytest.fixture
def run_python(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run ``code`` in a new Python process, which must succeed without error output. Gives its output."""

    def run(code: str, *arguments: object, seconds: float = 60.0) -> str:
        process = start_python(code, *arguments)
        out, err = process.communicate(timeout=seconds)
        assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
        return out

    return run


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Start ``feedline storage``; gives the process and its address."""
    started: list[subprocess.Popen[str]] = []

    def start(root: Path | str, *options: str, listen: str = "127.0.0.1:0") -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "feedline", "storage", "--root", str(root), "--listen", listen, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)
        line = process.stderr.readline()
        found = re.search(r"feedlines?://([\d.:]+)/", line)
        assert found, line + process.stderr.read()
        return process, found.group(1)

    yield start
    end(started)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """The socket path of a test's node. Its folder does not exist yet."""
    return tmp_path / "node" / "node.sock"


@pytest.fixture
def node(socket: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a node."""
    with serving(socket) as process:
        yield process


@pytest.fixture
def nothing_left(tmp_path: Path, wait_until: Callable[..., None]) -> Iterator[None]:
    """Check that a test of sharing leaves nothing in shared memory, temp folders or the process table."""
    before = leavings(tmp_path)
    yield
    gc.collect()
    left = leavings(tmp_path) - before

    def is_gone() -> bool:
        # Leftovers of other processes do not count.
        left.intersection_update(leavings(tmp_path))
        return not left

    wait_until(is_gone, f"nothing is left: {left}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Give a real browser without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        pytest.fail("chromium and chromedriver are not installed: sh tools/browser.sh installs them, as root on Debian")
    options = webdriver.ChromeOptions()
    options.binary_location = str(paths[0])
    for flag in BROWSER_FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(paths[1])))
    browser.set_page_load_timeout(PAGE_SECONDS)
    yield browser
    browser.quit()
