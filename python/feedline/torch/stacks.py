"""Asks worker processes where they are in the user's code.

In: a worker. Out: its Python stack as text, or the line of the dataset that it runs. A worker writes its stack when it
gets a signal, also while user code runs, so a stuck worker answers, too.
"""

from __future__ import annotations

import os
import re
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from feedline import _feedline
from feedline.torch.processes import WorkerProcess
from feedline.torch.worker.main import STACK_SIGNAL

_WAIT_SECONDS = 1.0
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_OWN = str(Path(__file__).parent)


class CodeLine(NamedTuple):
    """A line of the user's code."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        """Show it as tools do that open files at a line."""
        return f"{self.function} ({self.file}:{self.line})"


def worker_stack(native: _feedline.GivenLoader, number: int, worker: WorkerProcess) -> str:
    """Return the Python stack of a worker, innermost call first. Empty if it does not answer."""
    start, text = 0, native.stacks(number, 0)
    # A worker that has not said hello would be killed by the signal.
    if text is None:
        return ""
    while text:
        start += len(text)
        text = native.stacks(number, start)
    if not _send_stack_signal(worker.process):
        return ""
    deadline = time.monotonic() + _WAIT_SECONDS
    written = b""
    while not written.endswith(b"\n") and time.monotonic() < deadline:
        time.sleep(0.002)
        written = native.stacks(number, start) or b""
    return written.decode(errors="replace")


def _send_stack_signal(process: BaseProcess) -> bool:
    """Send the signal, unless the process has ended. Another process may have its number by then."""
    assert process.pid is not None, "the process was started"
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # It has ended, or the system has no such descriptors.
        return False
    try:
        # Alive after the descriptor was opened: the descriptor is that of the worker.
        if not process.is_alive():
            return False
        signal.pidfd_send_signal(descriptor, STACK_SIGNAL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def user_line(stack: str, dataset: Any) -> CodeLine | None:
    """Return the line of the user's code that Feedline's worker has called. ``None`` if the worker waits for work."""
    user: CodeLine | None = None
    for frame in _FRAME.finditer(stack):
        if frame["file"].startswith(_OWN):
            break
        # The last frame before Feedline's own is the outermost one of the user.
        user = CodeLine(_qualified(frame["function"], dataset), frame["file"], int(frame["line"]))
    return user


def _qualified(function: str, dataset: Any) -> str:
    """Return the name of a method of the dataset with that of its class."""
    for kind in type(dataset).__mro__:
        if function in vars(kind):
            return f"{kind.__name__}.{function}"
    return function
