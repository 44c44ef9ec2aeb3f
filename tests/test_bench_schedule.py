"""The schedule benchmark: its workloads, its ledger, its picture, its targets."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.schedule import loaders, one, plot, runs, targets, trace, workload
from bench.schedule.loaders import FIRST_COME, IN_ORDER, LOADERS, OURS
from bench.schedule.runs import Ledger, Run, Scenario


def a_workload(samples: int = 64) -> workload.Workload:
    costs = np.full(samples, 1.0)
    costs[::4] = 8.0
    return workload.Workload((workload.Delay(costs), workload.Delay(np.full(samples, 2.0), p=0.5)), workers=4, batch=4)


def test_ops_of_the_volume_cost_by_its_resampled_size_and_those_of_the_crop_do_not(tmp_path: Path) -> None:
    cases = [
        {"shape": [320, 512, 512], "spacing": [0.8, 0.6, 0.6]},
        {"shape": [160, 256, 256], "spacing": [1.6, 1.2, 1.2]},
        {"shape": [160, 512, 256], "spacing": [1.6, 1.2, 1.2]},
    ]
    shapes = tmp_path / "shapes.json"
    shapes.write_text(json.dumps(cases))
    kits = workload.workloads(0, shapes)["KiTS19"]
    for op, delay in zip(workload.KITS_OPS.values(), kits.delays, strict=True):
        same_grid, twice = delay.costs_ms[1] / delay.costs_ms[0], delay.costs_ms[2] / delay.costs_ms[0]
        assert same_grid == pytest.approx(1)
        assert twice == pytest.approx(2 if op.works_on_the_volume else 1)


def test_shares_are_the_work_in_each_interval() -> None:
    spans = [(10.0, 10.25, 1), (10.125, 10.5, 2)]
    assert trace.shares(spans, began=10.0, seconds=0.6, of=4) == pytest.approx([0.5, 0.5])


def test_an_interrupted_ledger_goes_on_with_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path, goes_on=False).add("one", {"use": 0.9})
    with path.open("a") as file:
        file.write('["two", {"us')
    ledger = Ledger(path, goes_on=True)
    assert ledger.done == {"one": {"use": 0.9}}
    ledger.add("two", {"use": 0.8})
    assert list(Ledger(path, goes_on=True).done) == ["one", "two"]
    assert Ledger(path, goes_on=False).done == {}


def test_first_come_gets_the_slots_of_least_slack_and_done_runs_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, int | None]] = []

    def start(run: Run, slots: int | None, *more: str) -> dict[str, Any]:
        started.append((run.name, slots))
        return {"use": 1.0, "slots": 40 + run.seed}

    monkeypatch.setattr(Run, "start", start)
    scenario = Scenario("small", "1.0")
    everything = [Run(scenario, loader, seed) for loader in reversed(LOADERS) for seed in range(2)]
    ledger = Ledger(tmp_path / "ledger.jsonl", goes_on=False)
    ledger.add(everything[0].name, {"use": 1.0})
    runs.run_all(everything, ledger, {"small": a_workload()}, [], lambda run: None)
    assert set(ledger.done) == {run.name for run in everything}
    assert len(started) == len(everything) - 1
    assert [slots for name, slots in started if FIRST_COME in name] == [41, 41]


@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_spends_the_delays_and_says_when_and_how_long(loader: str) -> None:
    small = a_workload()
    scheduled = loaders.make(loader, small, 0, None)
    with scheduled.watched() as spans:
        steps = one._epoch(scheduled.consumers(2), 0.001, small.samples)
    assert len(steps) == small.samples // small.batch
    work = sum((ended - began) * count for began, ended, count in spans)
    assert work >= 0.8 * small.samples * small.delays[0].costs_ms.mean() / 1e3
    assert 1e3 * scheduled.mean_seconds() >= 0.8 * small.delays[0].costs_ms.mean()


def test_every_scenario_has_something_to_reach_and_says_whether_it_does() -> None:
    medians = {loader: {"use": 0.5, "bound": 1.0, "seconds": 20.0} for loader in LOADERS}
    medians[OURS] = {"use": 0.97, "bound": 1.0, "seconds": 10.0}
    for name in [*workload.workloads(0), "KiTS19"]:
        assert targets.of_scenario(f"{name}, load 1.0", medians)
    assert [ratio.verdict for ratio in targets.of_scenario("bimodal, load 1.0", medians)] == ["no", "yes", "yes"]
    medians[IN_ORDER]["seconds"] = 14.0
    assert [ratio.verdict for ratio in targets.of_scenario("KiTS19, load 1.0", medians)] == ["yes", "no"]


def test_the_picture_of_use_is_well_formed_and_has_a_line_for_each_share() -> None:
    shares = {"workers": [0.5, 1.0, 0.25], "accelerators": [0.0, 1.0, 0.5]}
    picture = plot.use({"Feedline": shares, "torch, in order": shares})
    drawn = ElementTree.fromstring(picture)
    lines = [path for path in drawn.iter("{http://www.w3.org/2000/svg}path") if path.get("d", "").count("L") == 2]
    assert [path.get("class") for path in lines] == ["workers", "accelerators"] * 2
    assert "prefers-color-scheme: dark" in picture
