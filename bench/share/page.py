"""Writes the figures of the guide from the results: `python -m bench.share.page [--check]`.

In: bench/results/share.json. Out: the text between two marks in docs/how-to/share-between-jobs.md. Always true: a part
that was not measured has no row.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import harness
from bench.share import mixed
from bench.share.cores import KINDS
from bench.share.parts import PARTS
from bench.share.tensor_socket_ends import WAYS

RESULT = "share.json"
GUIDE = Path(__file__).parent.parent.parent / "docs/how-to/share-between-jobs.md"
BEGIN, END = "<!-- Written by bench.share.page. -->\n", "<!-- As far as this. -->\n"
# The others have a table or a sentence of their own.
IN_ROWS = ("tensorsocket", "two_jobs", "thirty_five", "mixed", "handover")


def equal_table(results: dict[str, Any]) -> Iterator[str]:
    """Give the table of equal jobs."""
    if equal := results.get("equal"):
        yield "| jobs | samples/s, all together | MB read | node's CPU, s |"
        yield "|---|---|---|---|"
        for jobs, found in equal.items():
            rate, megabytes = found["samples_per_second"], found["read_bytes"] / 1e6
            yield f"| {jobs} | {rate:.0f} | {megabytes:.0f} | {found['node_cpu_seconds']:.1f} |"
        yield ""


def sentences(results: dict[str, Any]) -> Iterator[str]:
    """Give what is said in words."""
    if cores := results.get("cores"):
        shared, own, torch = (f"{cores[kind]['samples_per_second']:.0f}" for kind in KINDS)
        yield (
            f"Four jobs that only load, without a training step, get together {shared} samples/s from a node. "
            f"Four separate loaders get {own}, and four torch DataLoaders of two workers each get {torch}."
        )
    if unequal := results.get("unequal"):
        waits = f"{100 * unequal['stall_of_the_fast']:.1f} %"
        yield (
            "Three jobs of speeds 1, 0.7 and 0.31, with batches of 32, 48 and 100, start at different times. "
            f"The fast one waits {waits} of the time."
        )
    if found := results.get("mixed"):
        shares = mixed.shares(found[mixed.FREE])
        pictures, volumes = (f"{100 * shares[work]:.0f} %" for work in mixed.WORKS)
        yield (
            "A job of pictures and a job of volumes that only load, side by side, keep "
            f"{pictures} and {volumes} of the speed that each has alone."
        )
    if tried := results.get("tensorsocket", {}).get("tried"):
        results_text = "; ".join(f"`{way}`: {_rate_or_words(tried[way])}" for way in WAYS)
        yield (
            "Two jobs with TensorSocket, without a GPU, in "
            "[three configurations](../../bench/share/tensor_socket_ends.py) "
            f"(unmodified, with another start-up handshake, with tensors in shared memory): {results_text}."
        )
    if failure := results.get("tensorsocket", {}).get("failure"):
        yield f"TensorSocket is not in the table: {failure}."


def _rate_or_words(found: float | str) -> str:
    return found if isinstance(found, str) else f"{found:.0f} samples/s"


def figure_table(results: dict[str, Any]) -> Iterator[str]:
    """Give the table of figures and what they are to be."""
    rows = [ratio for part in IN_ROWS if part in results for ratio in PARTS[part].ratios(results[part])]
    if rows:
        yield "| | measured | required |"
        yield "|---|---|---|"
    for ratio in rows:
        yield f"| {ratio.what} | {ratio.value:.3g} | {ratio.bound} {ratio.target:g} |"
    if rows:
        yield ""


def text(results: dict[str, Any]) -> str:
    """Give all that stands between the marks."""
    said = [f"- {sentence}" for sentence in sentences(results)]
    lines = [*equal_table(results), *([*said, ""] if said else []), *figure_table(results)]
    return "\n" + "\n".join(lines) + "\n" if lines else "\n"


def replaced(guide: str, results: dict[str, Any]) -> str:
    """Give the guide with the text of these results."""
    before, rest = guide.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{text(results)}{END}{after}"


def write() -> None:
    """Write the figures of the committed results into the guide."""
    GUIDE.write_text(_wanted())


def _wanted() -> str:
    results = json.loads((harness.RESULTS / RESULT).read_text())["results"]
    return replaced(GUIDE.read_text(), results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the guide is not what it should be"
    )
    if not parser.parse_args().check:
        write()
    elif GUIDE.read_text() != _wanted():
        raise SystemExit(f"{GUIDE.name} is not what the results give; run python -m bench.share.page")


if __name__ == "__main__":
    main()
