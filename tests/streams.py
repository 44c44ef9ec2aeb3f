"""The table of streams that must not change, and the command that writes their digests.

``streams.json`` holds the digests of all cases. A change of it breaks law 1 or law 3 for users who resume a run or
repeat one, so it needs an ADR that says why.

    python tests/streams.py --write             # after a decision to change streams, or for new cases
    python tests/streams.py --check --workers 1 # compare, with another number of workers
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import stream_ops
import stream_remote
import stream_runs
import stream_sources
from stream_case import CASES, EPOCHS, Digests, input_digests, measured
from stream_inputs import Inputs

__all__ = ["CASES", "DIGESTS", "EPOCHS", "committed", "difference", "input_digests", "measured"]

DIGESTS = Path(__file__).parent / "streams.json"
TABLES = (stream_sources, stream_ops, stream_runs, stream_remote)
"""The modules whose import fills :data:`CASES`."""

PARTS = {
    "stream": "the batches of two epochs differ",
    "resumed": "the batches after a resume in the middle of an epoch differ",
    "state": "the state in the middle of an epoch differs, so states that users have saved cannot be loaded (law 4)",
}


def committed(part: Literal["cases", "inputs"] = "cases") -> dict[str, Any]:
    """Read the committed digests of all cases, or of the inputs."""
    found: dict[str, Any] = json.loads(DIGESTS.read_text())[part]
    return found


def difference(name: str, found: Digests, expected: Digests) -> str | None:
    """Describe how the digests of a case differ from the committed ones. ``None`` if they do not."""
    other = [PARTS[part] for part in PARTS if found.get(part) != expected.get(part)]
    if not other:
        return None
    return (
        f"case {name!r}: {'; '.join(other)}. Law 1 (values) or law 3 (order) is broken, unless an ADR says why this "
        f"stream changes; only then: python tests/streams.py --write {name}"
    )


def main() -> int:
    """Write digests, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed digests of the cases")
    parser.add_argument("--check", action="store_true", help="compare with the committed digests")
    parser.add_argument("--workers", type=int, help="workers of every loader")
    parser.add_argument("names", nargs="*", help="cases; all by default")
    given = parser.parse_args()
    if given.write == given.check:
        parser.error("give --write or --check")
    if unknown := set(given.names) - set(CASES):
        parser.error(f"there are no cases {sorted(unknown)}")
    logging.getLogger("feedline").setLevel(logging.ERROR)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        inputs = Inputs(Path(root))
        try:
            made = input_digests(inputs)
            found = {name: measured(name, inputs, given.workers) for name in given.names or CASES}
        finally:
            inputs.close()
    print(f"{len(found)} cases in {time.monotonic() - start:.1f} s", file=sys.stderr)
    if given.check:
        before = committed()
        problems = [] if made == committed("inputs") else ["the inputs differ: synth writes other pictures"]
        problems += [text for name in found if (text := difference(name, found[name], before.get(name, {})))]
        print("\n".join(problems), file=sys.stderr)
        return 1 if problems else 0
    before = committed() if given.names and DIGESTS.exists() else {}
    kept = {name: digests for name, digests in (before | found).items() if name in CASES}
    DIGESTS.write_text(json.dumps({"cases": kept, "inputs": made}, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
