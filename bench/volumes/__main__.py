"""Races the preparation of 3D volumes: `python -m bench.volumes FOLDER [--cases 24] [--runs 3] [--epochs 4]`.

FOLDER holds KiTS19 masks; volumes are made of them once, below `bench-work/volumes`. Two races: the five online ops
over prepared `.npy` volumes, and all eight from `.nii.gz`, five epochs from the first byte, against an offline pass to
`.npy` followed by torch. Written to bench/results/volumes.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import harness
from bench.peers.venvs import Environment, NotInstallable
from bench.volumes import contenders, data

MONAI = Environment("monai", ("monai", "scipy", "nibabel"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--work", type=Path, default=Path("bench-work/volumes"))
    parser.add_argument("--wait", type=float, default=harness.QUIET_WAIT_SECONDS)
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    raw, prepared = data.make(given.folder, given.work, given.cases)
    online, failures = list(contenders.ONLINE), dict[str, str]()
    pythons: dict[str, str] = {}
    try:
        pythons["volumes-monai"] = MONAI.python()
    except NotInstallable as problem:
        online.remove("volumes-monai")
        failures["volumes-monai"] = str(problem)
    arguments = [str(raw), str(prepared), str(given.epochs)]
    # All find their files in the page cache, the first as well as the last.
    for path in (path for folder in (raw, prepared) for path in Path(folder).rglob("*") if path.is_file()):
        path.read_bytes()
    results = harness.race(online, arguments, given.runs, pythons, failures, given.wait)
    results |= harness.race(contenders.WHOLE, arguments, given.runs, None, failures, given.wait)
    rate = {name: result["samples_per_second"] for name, result in results.items()}

    def ratio(first: str, second: str) -> float | None:
        return rate[first] / rate[second] if first in rate and second in rate else None

    whole = ratio("volumes-whole-torch", "volumes-whole-feedline")
    ratios = {
        "feedline / torch in order (at least 4)": ratio("volumes-feedline", "volumes-torch"),
        "feedline / torch out of order (at least 3)": ratio("volumes-feedline", "volumes-torch-unordered"),
        "feedline / MONAI (at least 8)": ratio("volumes-feedline", "volumes-monai"),
        "time saved in five epochs from .nii.gz (at least 0.3)": None if whole is None else 1 - whole,
    }
    title = f"{given.cases} volumes, batch {contenders.BATCH}, {contenders.WORKERS} workers"
    if given.dry:
        harness.show(title, results, ratios)
        print(failures)
    else:
        harness.finish("volumes", title, results, ratios, failures, cases=given.cases)


if __name__ == "__main__":
    main()
