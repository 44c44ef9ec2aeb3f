"""Two separate jobs on one disk: `python -m bench.share.pair FOLDER BATCH EPOCHS`.

A simulated disk has one head, and it is that of a source: so both jobs are threads of one process, each with a loader
of its own over the same source. Says in one line of JSON how long both took and what each store counted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from bench.share import job, work

JOBS = 2


def main() -> None:
    folder, batch, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found: list[dict[str, Any]] = []
    over = work.source("imagenet", folder)

    def read() -> None:
        with work.loader("imagenet", over, "own", "-", batch) as loader:
            job.read_epochs(loader, len(over), {"epochs": epochs, "step_ms": 0.0})
            found.append(loader.snapshot()["store"])

    threads = [threading.Thread(target=read) for _ in range(JOBS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) != JOBS:
        raise SystemExit("a job failed")
    print(json.dumps({"seconds": time.perf_counter() - began, "stores": found}))


if __name__ == "__main__":
    main()
