"""The second experiment of the paper: a search of 35 jobs, nine at a time, one epoch each.

Decode and resize are the same in each epoch, so the node keeps their result on disk, for later jobs too. A job that
takes one batch stays attached throughout: a run of the node ends with its last job, and its counters with it. Separate
jobs all do the same, so one is measured alone and counted 35 times.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import EXIT_SECONDS, Job, Node, end, node, run, said, start, tell
from bench.share.setting import Setting, named, say
from bench.share.window import stamps

JOBS, AT_A_TIME, NAMES = 35, 9, 2
STEP_MS = 50.0
PREFIX = ("DecodeImage", "Resize")
POLL_SECONDS = 0.02
# What the paper counts as repeated: 89 % of the reads and 97 % of the preparation.
READS, WORK = 0.125, 0.03


def prefix_work(engine: dict[str, Any]) -> dict[str, float]:
    """Give what an engine read, and what it did in the ops that are the same in each epoch."""
    ops = {op["name"]: op for op in engine["ops"]}
    return {
        "read_bytes": engine["store"]["bytes"],
        "prefix_samples": max(ops[name]["samples"] for name in PREFIX),
        "prefix_cpu_seconds": sum(ops[name]["cpu_seconds"] for name in PREFIX),
    }


def _stay(folder: Path, cache: Path, serving: Node, log: Path) -> subprocess.Popen[str]:
    """Give a job that takes one batch and then sleeps for an hour."""
    job = Job("shared", step_ms=3.6e6, work="resized")
    process = start(job, str(folder), cache, str(serving.socket), log)
    while not serving.look()["runs"]:
        if process.poll() is not None:
            raise SystemExit("the job that stays attached has failed")
        time.sleep(POLL_SECONDS)
    return process


def _search(folder: Path, cache: Path, serving: Node, count: int, at_a_time: int) -> int:
    """Run all jobs, a new one as soon as one has ended; give the samples that all got."""
    waiting, running, samples = count, list[subprocess.Popen[str]](), 0
    job = Job("shared", step_ms=STEP_MS, epochs=1, work="resized")
    try:
        while waiting or running:
            new = [
                start(job, str(folder), cache, str(serving.socket))
                for _ in range(min(waiting, at_a_time - len(running)))
            ]
            running += new
            waiting -= len(new)
            # Jobs that start together begin together, so that the start of the interpreter is not measured.
            for process in new:
                said(process)
            for process in new:
                tell(process)
                tell(process)
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                samples += json.loads(said(process))["samples"]
                process.communicate(timeout=EXIT_SECONDS)
            time.sleep(POLL_SECONDS)
    finally:
        end(running)
    return samples


def shared(folder: Path, cache: Path, count: int = JOBS, at_a_time: int = AT_A_TIME) -> dict[str, float]:
    """Run the search with a node."""
    log = cache.parent / f"{cache.name}.log"
    with node(cache) as serving:
        began = time.perf_counter()
        stays = _stay(folder, cache, serving, log)
        try:
            samples = _search(folder, cache, serving, count, at_a_time)
            seconds = time.perf_counter() - began
            runs = serving.look()["runs"]
            if len(runs) != 1 or stamps(log):
                raise SystemExit("not all jobs were served by one run")
            work = prefix_work(runs[0]["engine"])
            produced = runs[0]["produced_samples"]
            cpu = serving.cpu_seconds()
        finally:
            end([stays])
    return {**work, "samples": samples, "produced_samples": produced, "cpu_seconds": cpu, "seconds": seconds}


def separate(folder: Path, cache: Path) -> dict[str, float]:
    """Run one job with a loader of its own."""
    job = run(folder, cache, [Job("own", step_ms=STEP_MS, epochs=1, work="resized")]).jobs[0]
    work, seconds = prefix_work(job["engine"]), job["epoch_ends"][-1]
    return {**work, "samples": job["samples"], "cpu_seconds": job["cpu_seconds"], "seconds": seconds}


def measure(setting: Setting) -> dict[str, Any]:
    """Run one separate job, and the search with a node, each with an empty cache; the least time of each counts.

    Counts are those of the first run.
    """
    folder = named(setting.pictures, setting.root / "searched", NAMES)
    found: dict[str, Any] = {"jobs": JOBS, "at_a_time": AT_A_TIME}
    for number in range(setting.runs):
        for title, way in (("one_separate_job", separate), ("shared", shared)):
            new = way(folder, setting.root / f"cache-{title}-{number}")
            say(f"{JOBS} jobs, {title}", new)
            kept = found.setdefault(title, new)
            for name in ("prefix_cpu_seconds", "cpu_seconds", "seconds"):
                kept[name] = min(kept[name], new[name])
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """What sharing leaves of the reads and of the work of 35 separate jobs."""
    shared, one, jobs = found["shared"], found["one_separate_job"], found["jobs"]
    for name, title, most in (
        ("read_bytes", "bytes read", READS),
        ("prefix_samples", "samples decoded and resized", WORK),
        ("prefix_cpu_seconds", "processor time in decode and resize", WORK),
    ):
        value = shared[name] / (jobs * one[name])
        yield Ratio(f"{jobs} jobs, {found['at_a_time']} at a time: {title}, shared / separate", value, "at most", most)
