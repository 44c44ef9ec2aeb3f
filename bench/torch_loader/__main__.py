"""The benchmark: `python -m bench.torch_loader PICTURES [--rows tokens,starts] [--quick]`.

Runs torch's DataLoader, feedline.torch.DataLoader and SPDL on each row in turn. Prints all figures, with the ratio
against torch and its target. Writes `bench/results/torch-loader.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import harness
from bench.torch_loader import table
from bench.torch_loader.rows import ROWS
from bench.torch_loader.setting import WORK, Setting

RESULT = "torch-loader"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, metavar="PICTURES", help="folder of JPEG files, also in sub-folders")
    parser.add_argument("--rows", help=f"some of {', '.join(ROWS)}; the result is printed only")
    parser.add_argument("--keep", action="store_true", help="with --rows: replace these rows of the last complete run")
    parser.add_argument("--quick", action="store_true", help="one run with few samples; the result is printed only")
    parser.add_argument("--runs", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--no-spdl", action="store_true", help="leave SPDL out")
    parser.add_argument(
        "--wait", type=float, default=harness.QUIET_WAIT_SECONDS, help="seconds that a run waits for a quiet machine"
    )
    given = parser.parse_args()
    names = given.rows.split(",") if given.rows else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}")
    setting = Setting(
        pictures=given.pictures,
        work=WORK.resolve(),
        runs=1 if given.quick else given.runs,
        is_quick=given.quick,
        retries=0 if given.quick else Setting.retries,
        wait_seconds=0.0 if given.quick else given.wait,
        has_spdl=not given.no_spdl,
    )
    results = {}
    for name in names:
        results[name] = ROWS[name].measure(setting)
        table.show(name, results[name], setting.failures)
    is_kept = not given.quick and (given.rows is None or given.keep)
    path = harness.RESULTS / f"{RESULT}.json"
    if is_kept:
        before = json.loads(path.read_text()) if given.rows and path.exists() else {}
        document = table.document(results, setting, before)
        path.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
