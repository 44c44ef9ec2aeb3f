"""Verdicts, predictions and what-ifs of the doctor, checked: `python -m bench.doctor [--only PART ...]`.

For each kind of case a job is made of sleeps and throttles with random parameters. The doctor says what bounds it and,
before all runs together, what it will reach. Then the job is run as it is, and with each thing eased in turn,
alternated, five times: to ease what was named has to gain at least 10 %, to ease another less than 5 %.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import feedline as fl
from bench.doctor import overhead, whatif
from bench.doctor.cases import BOUND, EASINGS, KINDS, Case, Files, loader, make, run
from bench.parts import measure
from bench.ratio import Ratio
from feedline import testing

RESULT = "doctor.json"
STEADY = ("step", "read", "prepare", "network", "python")


def examine(case: Case, files: Files, cache: Path, seconds: float) -> dict[str, Any]:
    """Give the doctor's report on a job."""
    with loader(case, files, cache) as made:
        found = fl.doctor(made, step=lambda _: testing.step(case.step_ms), seconds=seconds)
        return {
            "bound": found.bound,
            "predicted": found.predicted_samples_per_second,
            "measured": found.measured_samples_per_second,
            "remedies": found.remedies,
        }


def check(kind: str, seeds: int, runs: int, seconds: float, root: Path) -> dict[str, Any]:
    """Examine jobs of a kind, and run them again with each resource eased in turn."""
    found: dict[str, Any] = {}
    files, cache = Files(root), root / "cache"
    for seed in range(seeds):
        case = make(kind, seed)
        told = examine(case, files, cache, 2 * seconds)
        eased = {what: changed for what in EASINGS if (changed := case.eased(what)) is not None}
        rates: dict[str, list[float]] = {}
        for _ in range(runs):
            for what, changed in {"as it is": case, **eased}.items():
                rates.setdefault(what, []).append(run(changed, files, cache, seconds))
        medians = {what: statistics.median(values) for what, values in rates.items()}
        gains = {what: medians[what] / medians["as it is"] - 1 for what in eased}
        found[str(seed)] = {**told, "is": BOUND[kind], "rate": medians["as it is"], "gains": gains}
        gained = ", ".join(f"{what} {100 * gain:+.0f} %" for what, gain in gains.items())
        reached = f"predicted {told['predicted']:.1f}, reached {medians['as it is']:.1f}"
        print(f"{kind:13} {seed}: says {told['bound']}, {reached}; {gained}", flush=True)
    return found


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """The worst of each kind."""
    for kind in KINDS:
        cases = list(results.get(kind, {}).values())
        if not cases:
            continue
        right = sum(case["bound"] == case["is"] for case in cases) / len(cases)
        yield Ratio(f"{kind}: verdicts that are right", right, "at least", 1.0)
        named = min(case["gains"].get(case["bound"], 0.0) for case in cases)
        yield Ratio(f"{kind}: gain by easing what was named, the least", named, "at least", 0.10)
        others = [gain for case in cases for what, gain in case["gains"].items() if what != case["bound"]]
        yield Ratio(f"{kind}: gain by easing something else, the most", max(others), "at most", 0.05)
        if kind in STEADY:
            off = max(abs(case["predicted"] / case["rate"] - 1) for case in cases)
            yield Ratio(f"{kind}: prediction against the median measured, off by", off, "at most", 0.05)
    if "whatif" in results:
        yield from whatif.ratios(results["whatif"])
    if "overhead" in results:
        yield from overhead.ratios(results["overhead"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=(*KINDS, "whatif", "overhead"))
    parser.add_argument("--seeds", type=int, default=2, help="jobs of each kind")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--result", default=RESULT, help="a file in bench/results, or a path")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="feedline-doctor-") as name:
        root = Path(name)
        parts: dict[str, Any] = {
            kind: partial(check, kind, given.seeds, given.runs, given.seconds, root) for kind in KINDS
        }
        parts["whatif"] = partial(whatif.measure, root, given.seconds)
        parts["overhead"] = partial(overhead.measure, given.runs)
        measure(given.result, parts, given.only, ratios)


if __name__ == "__main__":
    main()
