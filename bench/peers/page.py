"""Writes the page of results: `python -m bench.peers.page [--check]`.

In: `page.md.in` and `bench/results/peers-*.json`. Out: `docs/benchmarks.md` and a plot for each data set. Always true:
every figure on the page comes from those files; `--check` says whether the page is what they give.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers import plot, ratios
from bench.peers.contenders import ALL, OURS
from bench.ratio import Ratio

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"

DISTURBED = " †"
TEXT = Path(__file__).with_suffix(".md.in")


def _row(name: str, result: dict[str, Any]) -> str:
    peer = ALL[name]
    title = f"**{peer.title}**" if peer in OURS else peer.title
    mark = DISTURBED if ratios.is_disturbed(result) else ""
    versions = ", ".join(dict.fromkeys(result["versions"].values()))
    first = f"{result['first_batch_seconds']:.2f}" if result["first_batch_seconds"] else ""
    storage = f"{result['storage_ratio']:.2f}" if result["storage_ratio"] else ""
    return (
        f"| {title} {versions}".rstrip() + f" | {result['samples_per_second']:.0f}{mark} | {result['slowest_run']:.0f} "
        f"| {result['cpu_ms_per_sample']:.2f} | {result['peak_mb']} | {first} | {storage} | {peer.differs} |"
    )


def _ratio_row(ratio: Ratio) -> str:
    value = "" if ratio.value is None else f"{ratio.value:.2f}{DISTURBED if ratio.is_disturbed else ''}"
    return f"| {ratio.what} | {value} | {ratio.bound} {ratio.target:g} | {ratio.verdict} |"


def _data_set(document: dict[str, Any], picture: str) -> str:
    setup, results = document["setup"], document["results"]
    ranking = sorted(results, key=lambda name: -results[name]["samples_per_second"])
    runs = max(result["runs"] for result in results.values())
    is_disturbed = any(map(ratios.is_disturbed, results.values()))
    disturbed = f"†: other programs used more than {harness.QUIET_CORES} cores meanwhile; do not compare."
    length = f"{setup['epochs']} epochs in a window, best of {runs} runs."
    machine = f"{setup['cpu']}, {setup['cores']} cores, Python {setup['python']}, {setup['date']}"
    columns = "images/s | slowest run | CPU ms per image | peak memory, MB | first batch, s | own files / pictures"
    lines = [
        f"## {setup['data']}: {setup['pictures']} pictures, {setup['mean_kb']} KB on average",
        "",
        f"{machine}; {length} {disturbed if is_disturbed else ''}".strip(),
        "",
        f"![Images per second of each contender on {setup['data']}]({picture})",
        "",
        f"| | {columns} | unlike the others |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(name, results[name]) for name in ranking),
        "",
        "| ratio | measured | target | reached |",
        "|---|---|---|---|",
        *map(_ratio_row, ratios.of(results)),
    ]
    if failures := document.get("failures"):
        lines += ["", "Not measured:", ""]
        lines += [f"- {ALL[name].title}: {reason}" for name, reason in failures.items()]
    return "\n".join([*lines, ""])


def render() -> dict[Path, str]:
    """The files of the page and what they are to hold."""
    files, sections = {}, []
    for path in sorted(harness.RESULTS.glob("peers-*.json")):
        document = json.loads(path.read_text())
        picture = f"benchmarks/{path.stem}.svg"
        files[DOCS / picture] = plot.bars(document["results"])
        sections.append(_data_set(document, picture))
    return {PAGE: TEXT.read_text().replace("RESULTS\n", "\n".join([*sections, ""])), **files}


def write() -> None:
    """Writes the page and its plots."""
    for path, text in render().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    print(f"written to {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    if not parser.parse_args().check:
        write()
    elif stale := [path.name for path, text in render().items() if not path.exists() or path.read_text() != text]:
        raise SystemExit(f"not what the results give: {', '.join(stale)}; run python -m bench.peers.page")


if __name__ == "__main__":
    main()
