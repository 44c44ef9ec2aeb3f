"""Accelerator use on samples of very different cost: `python -m bench.schedule [--shapes FILE] [--pictures FOLDER]`.

For each workload at loads 1.0 and 0.9: Feedline with least-slack start, the same engine with first-come start at equal
slots, and torch's DataLoader in order and out of order, all with equal workers and delays; the median of three seeds.
Beside each figure stands the work-conserving bound, below it what is to be reached. With pictures, also what
least slack costs where costs are alike. Written to bench/results/schedule.json, and the use of workers and accelerators
over time to docs/images. `--resume` goes on with the table that was interrupted, if the built package is the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import harness
from bench.ratio import Ratio
from bench.schedule import plot, targets, uniform
from bench.schedule.loaders import IN_ORDER, IN_ORDER_LONGER, LOADERS, OURS
from bench.schedule.runs import WORK, Ledger, Run, Scenario, package_digest, run_all
from bench.schedule.workload import Workload, workloads

LOADS = ("1.0", "0.9")
CONSUMERS = (1, 2, 4, 8)
KITS = "KiTS19"
UNIFORM = "uniform cost"


def _scenarios(names: list[str], loads: list[str]) -> list[Scenario]:
    """In the order of the table."""
    return [
        Scenario(name, load, consumers)
        for name in names
        for consumers in (CONSUMERS if name == KITS else (1,))
        for load in loads
    ]


def _loaders(scenario: Scenario) -> tuple[str, ...]:
    return (*LOADERS, IN_ORDER_LONGER) if scenario.workload == KITS else LOADERS


def _medians(scenario: Scenario, seeds: int, ledger: Ledger) -> dict[str, dict[str, float]] | None:
    """Give the medians of all loaders, once all have run."""
    found: dict[str, dict[str, float]] = {}
    for loader in _loaders(scenario):
        runs = [ledger.done.get(Run(scenario, loader, seed).name) for seed in range(seeds)]
        there = [run for run in runs if run is not None]
        if len(there) < seeds:
            return None
        found[loader] = {key: statistics.median(float(run[key]) for run in there) for key in there[0]}
    return found


def _table(
    scenarios: list[Scenario], seeds: int, ledger: Ledger, known: Mapping[str, Workload], more: list[str]
) -> Any:
    """Run what is not in the ledger, the longest first, and show each scenario as it ends."""

    def show_if_complete(scenario: Scenario) -> None:
        if medians := _medians(scenario, seeds, ledger):
            _show(scenario.title, medians)

    for scenario in scenarios:
        show_if_complete(scenario)
    runs = [Run(each, loader, seed) for each in scenarios for loader in _loaders(each) for seed in range(seeds)]
    runs.sort(key=lambda run: -run.seconds(known[run.scenario.workload]))
    run_all(runs, ledger, known, more, lambda run: show_if_complete(run.scenario))
    return {scenario.title: _medians(scenario, seeds, ledger) for scenario in scenarios}


def _show(title: str, medians: Mapping[str, Mapping[str, float]]) -> None:
    print(title)
    for loader, result in medians.items():
        share, slots = result["use"] / result["bound"], f"{result['slots']:8.0f} slots" if "slots" in result else ""
        print(f"  {loader:29} use {result['use']:.3f}  bound {result['bound']:.3f}  {share:.3f}{slots}")
    for ratio in targets.of_scenario(title, medians):
        _show_ratio(ratio)


def _show_ratio(ratio: Ratio) -> None:
    value = "" if ratio.value is None else f"{ratio.value:.3f}"
    print(f"  {ratio.name:70} {value:>6} {ratio.verdict}", flush=True)


def _draw(more: list[str]) -> None:
    """Make the picture of use over time, of one run of each loader, one after the other."""
    loaders = {"Feedline": OURS, "torch, in order": IN_ORDER}
    runs = {title: Run(Scenario(KITS, "1.0"), loader, 0) for title, loader in loaders.items()}
    traces = {title: run.start(None, *more, "--trace")["trace"] for title, run in runs.items()}
    plot.PATH.parent.mkdir(parents=True, exist_ok=True)
    plot.PATH.write_text(plot.use(traces))
    print(f"written to {plot.PATH}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", help=f"a workload, or {UNIFORM!r}; may be given several times; printed only"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loads", nargs="+", default=LOADS)
    parser.add_argument("--shapes", type=Path, help="shapes.json of KiTS19: adds its volumes, with 1 to 8 consumers")
    parser.add_argument("--pictures", type=Path, help="a folder of JPEG files: adds uniform cost")
    parser.add_argument("--wait", type=float, default=harness.QUIET_WAIT_SECONDS)
    parser.add_argument("--resume", action="store_true", help="go on with the runs that an interrupted table has done")
    parser.add_argument("--plot", action="store_true", help="only draw use over time")
    arguments = parser.parse_args()
    known = workloads(0, arguments.shapes)
    more = [] if arguments.shapes is None else ["--shapes", str(arguments.shapes)]
    if arguments.plot:
        _draw(more)
        return
    digest = package_digest()
    ledger = Ledger(WORK / f"{digest}{'-some' if arguments.only else ''}.jsonl", arguments.resume)
    asked = arguments.only or [*known, UNIFORM]
    names = [name for name in asked if name != UNIFORM]
    results = _table(_scenarios(names, arguments.loads), arguments.seeds, ledger, known, more)
    is_raced = UNIFORM in asked and arguments.pictures is not None
    alike = uniform.race(arguments.pictures, arguments.wait) if is_raced else {}
    ratios = targets.of(results, alike)
    print("what is to be reached")
    for ratio in ratios:
        _show_ratio(ratio)
    if arguments.only is None:
        if KITS in names:
            _draw(more)
        setup = {**harness.setup(), "seeds": arguments.seeds, "package": digest}
        document = {"setup": setup, "results": results, "uniform": alike}
        document["ratios"] = {ratio.name: ratio.value for ratio in ratios}
        path = harness.RESULTS / "schedule.json"
        path.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
