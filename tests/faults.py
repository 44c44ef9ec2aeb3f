"""Kill servers, nodes and jobs at random moments, and compare what jobs received with local loading.

``make faults`` runs it; ``python tests/faults.py --kills 100 --seed 7`` repeats what a seed did. Each trial kills one
process with SIGKILL. A killed server is started again, a killed job goes on from its last state in a new process, and
a job whose node was killed goes on alone. The stream of a trial is good if it is the one of local loading.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from making import natural, save

import feedline as fl
from feedline import ops

PICTURES = 96
EPOCHS = 2
TRIAL_SECONDS = 120
"""A trial that takes longer has failed."""


def loader_of(job: dict[str, Any]) -> fl.Loader:
    """Give the loader of a job, or with ``local`` the one that it is compared with."""
    # Shared jobs get samples in another order, with the draws of a round. So only ops without draws are compared.
    crop = ops.CenterCrop(16) if job["kind"] == "shared" else ops.RandomResizedCrop(16)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5, "num_workers": 2}
    if job["kind"] == "rank":
        options |= {"rank": 0, "world_size": 2}
    else:
        options |= {"rank": 0, "world_size": 1}
    if job.get("socket"):
        options["share"] = fl.share(job["socket"], on_loss="continue")
    options["tuning"] = fl.tuning(prefetch_batches=2, offload=job.get("offload") or "auto")
    return fl.Loader(fl.folder(job["root"]), [ops.DecodeImage(), crop], **options)


def digest_of(batch: Any) -> list[Any]:
    """Give the samples of a batch by number and content."""
    images = [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in batch["image"]]
    return [[int(index), image] for index, image in zip(batch["index"].tolist(), images, strict=True)]


def run_job(job: dict[str, Any]) -> None:
    """Read epochs and log each batch with the state after it. Continues an existing log."""
    path = Path(job["log"])
    seen = read_log(path)
    loader = loader_of(job)
    epoch = 0
    if seen:
        loader.load_state_dict(seen[-1]["state"])
        epoch = seen[-1]["epoch"] + (1 if seen[-1]["is_last"] else 0)
    with open(path, "ab", buffering=0) as log:
        while epoch < EPOCHS:
            count, received = len(loader), sum(1 for line in seen if line["epoch"] == epoch)
            for batch in loader:
                received += 1
                line = {
                    "epoch": epoch,
                    "is_last": received == count,
                    "samples": digest_of(batch),
                    "state": loader.state_dict(),
                }
                # One write, so that a line is complete or missing.
                log.write(json.dumps(line).encode() + b"\n")
                time.sleep(0.02)
            epoch += 1
    loader.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Give the lines of a log, without a truncated last line."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a command of Feedline and wait until it serves."""
    command = [sys.executable, "-m", "feedline", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.said = process.stderr.readline()  # type: ignore[attr-defined]
    return process


def start_job(job: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


class TooLate(Exception):
    """The job had ended before anything was killed."""


class Trial:
    """One job, with the server or node that it uses, and one kill."""

    def __init__(self, number: int, chance: random.Random, data: Path, work: Path) -> None:
        self.chance, self.data = chance, data
        self.folder = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=work))
        self.victim = ("server", "node", "job")[number % 3]
        places = {"server": ["server"], "node": ["rank", "shared"], "job": ["local", "server", "rank", "shared"]}
        self.kind = chance.choice(places[self.victim])
        # Counted in received batches, so that kills hit the middle of the work on a busy machine too.
        # Before the first batch, the job is about to start or to attach.
        self.batches, self.pause = chance.randint(0, 20), chance.uniform(0.0, 0.06)
        if self.batches == 0:
            self.pause = chance.uniform(0.0, 1.0)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.job: dict[str, Any] = {"kind": self.kind, "root": str(data), "log": str(self.folder / "log")}

    def __str__(self) -> str:
        return f"kill the {self.victim} of a job of kind {self.kind!r} {self.pause:.3f} s after batch {self.batches}"

    def run(self) -> str:
        """Run the trial. Give the problem, or nothing."""
        if self.kind == "server":
            self.start_server("127.0.0.1:0")
            said = self.processes["server"].said  # type: ignore[attr-defined]
            address = re.search(r"feedline://([\d.:]+)/", said).group(1)  # type: ignore[union-attr]
            self.job |= {"root": f"feedline://{address}/{self.data.name}", "offload": self.chance.choice(OFFLOADS)}
        elif self.kind in ("rank", "shared"):
            self.job["socket"] = str(self.folder / "node" / "node.sock")
            self.processes["node"] = start("node", "--socket", self.job["socket"], "--memory", "64MB")
        self.processes["job"] = start_job(self.job)
        deadline = time.monotonic() + TRIAL_SECONDS
        if not self.wait_for_the_moment(deadline):
            return f"the job ended with {self.processes['job'].returncode} before anything was killed"
        victim = self.processes[self.victim]
        victim.kill()
        victim.wait()
        if self.victim == "server":
            time.sleep(self.chance.uniform(0.0, 0.5))
            self.start_server(address)
        elif self.victim == "job":
            self.processes["second job"] = start_job(self.job)
        last = self.processes.get("second job", self.processes["job"])
        try:
            _, problem = last.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"the job did not end within {TRIAL_SECONDS} s"
        if last.returncode != 0:
            return f"the job ended with {last.returncode}: {problem[-500:]}"
        return compare(self.kind, read_log(self.folder / "log"), self.data)

    def wait_for_the_moment(self, deadline: float) -> bool:
        """Wait until the job has received enough batches, and a little longer. Give whether it still runs."""
        log, job = Path(self.job["log"]), self.processes["job"]
        while self.batches > 0 and (not log.exists() or log.read_bytes().count(b"\n") < self.batches):
            if job.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        else:
            time.sleep(self.pause)
        if job.poll() == 0:
            raise TooLate
        return job.returncode is None and time.monotonic() <= deadline

    def start_server(self, address: str) -> None:
        self.processes["server"] = start("storage", "--root", str(self.data.parent), "--listen", address)

    def close(self) -> None:
        """End the processes that still run. All of them were started here."""
        for process in self.processes.values():
            process.kill()
            with contextlib.suppress(ValueError):
                process.communicate()


OFFLOADS = ("none", "all", "auto")
EXPECTED: dict[str, Any] = {}


def expected(kind: str, data: Path) -> list[list[Any]]:
    """Give the batches of local loading, epoch by epoch."""
    if kind not in EXPECTED:
        with loader_of({"kind": kind, "root": str(data)}) as loader:
            EXPECTED[kind] = [[digest_of(batch) for batch in loader] for _ in range(EPOCHS)]
    return EXPECTED[kind]


def compare(kind: str, lines: list[dict[str, Any]], data: Path) -> str:
    """Give the problem of a stream, if there is one."""
    for epoch, wanted in enumerate(expected(kind, data)):
        found = [line["samples"] for line in lines if line["epoch"] == epoch]
        if kind == "shared":
            # Another order, but each sample once, with the same bytes.
            found, wanted = [sorted(sum(found, []))], [sorted(sum(wanted, []))]
        if found != wanted:
            return f"epoch {epoch} has {len(sum(found, []))} samples that are not those of local loading"
    return ""


@contextlib.contextmanager
def places() -> Iterator[tuple[Path, Path]]:
    """Make pictures, and a folder for the files of trials."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.environ["FEEDLINE_CACHE"] = str(Path(folder) / "cache")
        work = Path(folder) / "work"
        work.mkdir()
        data = Path(folder) / "data" / "train"
        for number in range(PICTURES):
            save(data / f"class-{number % 3}" / f"{number:04}.jpg", natural(96, 128, seed=number))
        yield data, work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="trials, each with one kill")
    parser.add_argument("--seed", type=int, default=None, help="repeats what this seed did")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        run_job(json.loads(given.job))
        return 0
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}", flush=True)
    chance, passed, failed = random.Random(seed), 0, 0
    with places() as (data, work):
        for number in range(given.kills):
            problem = None
            while problem is None:
                trial = Trial(number, chance, data, work)
                with contextlib.closing(trial), contextlib.suppress(TooLate):
                    problem = trial.run()
            passed, failed = passed + (not problem), failed + bool(problem)
            print(f"{number}: {trial}: {problem or 'good'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
