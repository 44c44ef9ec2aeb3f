"""The start of a worker that was not forked from the program: it receives its configuration.

In: the pickled configuration and the worker's end of its socket. Imports come first, with the garbage collector off.
"""

from __future__ import annotations

import socket
from dataclasses import replace

from feedline.torch.worker import preload  # noqa: F401 (imports torch)

from torch._utils import ExceptionWrapper  # isort: skip

from feedline.torch.worker.main import run_failed_worker, run_worker
from feedline.torch.worker.packing import ReceivedConfig


def run_received_worker(received: ReceivedConfig, worker_id: int, theirs: socket.socket) -> None:
    """Load the dataset and serve the engine."""
    try:
        config = replace(received.load(), worker_id=worker_id)
    except Exception:
        run_failed_worker(theirs, ExceptionWrapper(where=f"in DataLoader worker process {worker_id}"))
    run_worker(theirs, config)
