"""Functions on their way to a worker process: as text, with the command that starts the process.

In: a function. Out: text that a new interpreter on this machine can load without running the main script again.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from feedline.errors import PlanError
from feedline.worker.functions import SampleFunction

_START = (
    "import json, os, sys; path, folder = json.loads(sys.argv[1]); sys.path[:] = path; "
    "os.path.isdir(folder) and os.chdir(folder); from feedline.worker.function_worker import main; main()"
)  # fmt: skip


_MAX_PACKED = 1 << 30
"""Each worker gets the function with everything in it, as one message."""


def worker_program() -> list[str]:
    """Return the command that starts a worker with the interpreter, the import path and the folder of this process."""
    if not sys.executable:
        raise PlanError('worker_type="process" needs a Python interpreter, and sys.executable does not name one')
    here = os.getcwd()
    path = [os.path.join(here, entry) for entry in sys.path]
    return [sys.executable, "-c", _START, json.dumps([path, here])]


def pack(function: Callable[..., Any], inputs: int, outputs: int) -> str:
    """Return a function as text for a worker process, which need not have this program's main script."""
    try:
        packed = base64.b64encode(pickle.dumps((_pickled(function), inputs, outputs))).decode()
        if len(packed) > _MAX_PACKED:
            raise PlanError(
                f"its pickle has {len(packed) * 3 // 4} bytes, and at most {_MAX_PACKED * 3 // 4} are possible"
            )
        return packed
    except Exception as error:
        code = getattr(function, "__code__", None)
        place = f" of {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        name = getattr(function, "__qualname__", function)
        raise PlanError(
            f"the function {name!r}{place} cannot be sent to a worker process: {error}; define it with def at the top "
            'of a module that can be imported, or give worker_type="thread"'
        ) from error


def unpack(packed: str | bytes) -> SampleFunction:
    """Return the function of :func:`pack`."""
    function, inputs, outputs = pickle.loads(base64.b64decode(packed))
    return SampleFunction(pickle.loads(function), inputs, outputs)


def exception_of(pickled: bytes) -> BaseException:
    """Return an exception of a worker process. Its cause has the traceback there."""
    try:
        exception = pickle.loads(pickled)
    except Exception as error:
        return RuntimeError(f"an exception that cannot be loaded here: {type(error).__name__}: {error}")
    return exception if isinstance(exception, BaseException) else RuntimeError(str(exception))


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        if getattr(function, "__module__", None) == "__main__":
            raise PlanError("it is defined in the main script; install cloudpickle, or move it to a module") from None
        return pickle.dumps(function)
    pickled: bytes = cloudpickle.dumps(function)
    return pickled
