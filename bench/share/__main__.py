"""Jobs that share one production: `python -m bench.share FOLDER [--only PART ...]`.

Jobs on the ImageNet pipeline (RandomResizedCrop 224, flip, normalised float32, batch 64) where a part does not say
otherwise, each a process of its own, started behind a barrier, four epochs; each looks at one value of every 4 KB page
of every batch. A node of its own process serves them. Each picture has eight names (links), so that a segment is longer
than a batch, as it is in any larger set. Best of three alternated runs; processor time is the least of them. Written to
bench/results/share.json, part by part, and then into the guide; each part is a module that says what it measures.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from bench.parts import measure
from bench.share import page
from bench.share.page import RESULT
from bench.share.parts import PARTS, ratios
from bench.share.setting import RUNS, Setting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these; the others stay as they are")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--result", default=RESULT, help="a file in bench/results, or a path")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="feedline-share-") as name:
        setting = Setting.of(given.folder, Path(name), given.runs)
        measured = {name: partial(part.measure, setting) for name, part in PARTS.items()}
        measure(given.result, measured, given.only, ratios)
        if given.result == RESULT:
            page.write()


if __name__ == "__main__":
    main()
