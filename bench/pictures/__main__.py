"""The benchmark: `python -m bench.pictures PICTURES [--rows png,webp] [--keep] [--quick]`.

Runs Feedline, torchvision, Pillow, DALI and FFCV on each row in turn, as far as each can. Prints all figures, with the
ratios and their targets. Writes `bench/results/pictures.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import harness
from bench.pictures import rows, table
from bench.pictures.rows import ROWS
from bench.pictures.setting import WORK, Setting

RESULT = "pictures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, metavar="PICTURES", help="folder of JPEG files, also in sub-folders")
    parser.add_argument("--rows", help=f"some of {', '.join(ROWS)}; the result is printed only")
    parser.add_argument("--keep", action="store_true", help="with --rows: replace these rows of the last complete run")
    parser.add_argument("--quick", action="store_true", help="one run with few samples; the result is printed only")
    parser.add_argument("--runs", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--no-peers", action="store_true", help="leave out those with an environment of their own")
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
        wait_seconds=0.0 if given.quick else given.wait,
        has_peers=not given.no_peers,
    )
    setting.work.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in names:
        results[name] = ROWS[name].measure(setting)
        table.show(name, results[name])
    table.show_ratios(rows.ratios(results), setting.failures)
    if not given.quick and (given.rows is None or given.keep):
        path = harness.RESULTS / f"{RESULT}.json"
        before = json.loads(path.read_text()) if given.rows and path.exists() else {}
        path.write_text(json.dumps(table.document(results, setting, before), indent=1) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
