"""Side by side with TensorSocket: one torch DataLoader for all jobs, against a node.

The same pictures, pipeline, batch and number of cores; consumers look at each page of each batch, as jobs of a node do.
TensorSocket is run as it is shipped, in the other ways that `tensor_socket_ends` describes, and then in the fastest of
those that work here; what does not work is recorded in words. Samples are those that consumers get: it drops the last
batches of each epoch, and nothing is subtracted for that.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench import harness
from bench.peers.venvs import Environment, NotInstallable
from bench.ratio import Ratio
from bench.share.jobs import Job, node
from bench.share.setting import STEP_MS, Setting, keep_best, say
from bench.share.tensor_socket_ends import WAYS
from bench.share.window import NotStarted, Reader, Seen, watch

ENVIRONMENT = Environment("tensorsocket", ("tensorsocket",))
COUNTS, STEPS = (2, 4), {"loading only": 0.0, "steps of 100 ms": STEP_MS}
WINDOW_SECONDS, TRIED_SECONDS, PATIENCE_SECONDS = 15.0, 8.0, 60.0
BATCH = 64


def _free_ports(count: int) -> str:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return ",".join(str(one.getsockname()[1]) for one in sockets)


@contextmanager
def _producer(setting: Setting, python: str, way: str) -> Iterator[tuple[int, str]]:
    """Run a producer; give its process and its ports. If it fails, that is why its consumers did not start."""
    ports = _free_ports(4)
    command = [python, "-m", "bench.share.tensor_socket_ends", str(setting.folder), str(BATCH), ports, way]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        try:
            yield process.pid, ports
        except NotStarted as failure:
            errors.seek(0)
            if process.poll() is not None:
                raise NotStarted(f"the producer ended: {harness.reason(errors.read())}") from failure
            raise
        finally:
            # Its workers end when they notice that it is gone.
            process.terminate()
            process.wait(30)


def _tensor_socket(setting: Setting, python: str, way: str, count: int, step_ms: float, seconds: float) -> Seen:
    with _producer(setting, python, way) as (process, ports):
        job = Job(f"tensorsocket-{way}", BATCH, step_ms)
        readers = [Reader(job, setting.folder, ports, python)] * count
        seen = watch(readers, setting.cache, process, seconds, patience=PATIENCE_SECONDS)
        if not min(seen.rates):
            raise NotStarted(f"within {seconds:.0f} s a consumer of {count} got nothing")
        return seen


def _feedline(setting: Setting, count: int, step_ms: float) -> Seen:
    with node(setting.cache) as serving:
        readers = [Reader(Job("shared", BATCH, step_ms), setting.folder, str(serving.socket))] * count
        return watch(readers, setting.cache, serving.process.pid, WINDOW_SECONDS)


def numbers(seen: Seen) -> dict[str, Any]:
    """Give a window in numbers."""
    return {
        "samples_per_second": seen.samples_per_second,
        "slowest_job": min(seen.rates),
        "server_cpu_seconds": seen.server_cpu_seconds,
        "jobs_cpu_seconds": seen.jobs_cpu_seconds,
        "server_cpu_ms_per_sample": seen.server_cpu_ms_per_sample,
        "window_seconds": seen.seconds,
    }


def _fastest_way(setting: Setting, python: str, tried: dict[str, Any]) -> str | None:
    """Try all ways with two consumers. Give the speed of each, or the reason why it does not work."""
    rates = {}
    for way in WAYS:
        try:
            seen = _tensor_socket(setting, python, way, 2, 0.0, TRIED_SECONDS)
        except NotStarted as failure:
            tried[way] = str(failure)
        else:
            tried[way] = rates[way] = seen.samples_per_second
        print(f"tensorsocket, {way}: {tried[way]}", flush=True)
    return max(rates, key=lambda way: rates[way]) if rates else None


def measure(setting: Setting) -> dict[str, Any]:
    """Race both in each case."""
    found: dict[str, Any] = {"tried": {}}
    try:
        python = ENVIRONMENT.python()
    except NotInstallable as problem:
        return {"failure": str(problem)}
    asked = "from importlib.metadata import version; print(version('tensorsocket'))"
    told = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout
    found["version"] = told.strip()
    way = _fastest_way(setting, python, found["tried"])
    if way is None:
        return {**found, "failure": "no way of using it gets batches to its consumers"}
    found["way"] = way
    for _ in range(setting.runs):
        for count in COUNTS:
            for title, step_ms in STEPS.items():
                case = found.setdefault(f"{count} jobs, {title}", {})
                try:
                    peer = numbers(_tensor_socket(setting, python, way, count, step_ms, WINDOW_SECONDS))
                except NotStarted as failure:
                    case["failure"] = str(failure)
                else:
                    say(f"{count} jobs, {title}, tensorsocket", peer)
                    keep_best(case, "tensorsocket", peer)
                ours = numbers(_feedline(setting, count, step_ms))
                say(f"{count} jobs, {title}, feedline", ours)
                keep_best(case, "feedline", ours)
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Samples per second of all jobs together, and the servers' processor time per sample."""
    for title, case in found.items():
        if isinstance(case, dict) and {"feedline", "tensorsocket"} <= case.keys():
            ours, peer = case["feedline"], case["tensorsocket"]
            faster = ours["samples_per_second"] / peer["samples_per_second"]
            yield Ratio(f"{title}: feedline / TensorSocket, samples/s", faster, "at least", 1)
            cost = ours["server_cpu_ms_per_sample"] / peer["server_cpu_ms_per_sample"]
            yield Ratio(f"{title}: feedline / TensorSocket, server CPU per sample", cost, "at most", 1)
