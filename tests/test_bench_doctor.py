"""The benchmark of the doctor: its jobs have the claimed bottleneck, and its figures are the worst of all jobs."""

from __future__ import annotations

from typing import Any

import pytest

from bench.doctor import overhead, whatif
from bench.doctor.__main__ import ratios
from bench.doctor.cases import KINDS, Case, make


def rate(case: Case, what: str) -> float:
    """Samples per second that one resource of a job allows."""
    mean = sum(case.costs_ms) / len(case.costs_ms)
    return {
        "step": 1e3 * case.batch / case.step_ms,
        "prepare": 1e3 * case.workers / mean if mean else 1e9,
        "read": case.store_rate or 1e9,
        "network": case.link_rate or 1e9,
        "python": 1e3 / case.python_ms if case.python_ms else 1e9,
    }[what]


@pytest.mark.parametrize("kind", ["step", "prepare", "read", "network", "python"])
@pytest.mark.parametrize("seed", range(20))
def test_the_second_bound_of_a_steady_job_is_well_away(kind: str, seed: int) -> None:
    case = make(kind, seed)
    others = [rate(case, what) for what in ("step", "prepare", "read", "network", "python") if what != kind]
    assert min(others) > 1.3 * rate(case, kind)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["head_of_line", "giant"])
def test_one_sample_takes_longer_than_all_others_of_its_part_together(kind: str, seed: int) -> None:
    case = make(kind, seed)
    slow, quick = max(case.costs_ms), min(case.costs_ms)
    assert slow > 10 * quick * len(case.costs_ms) / case.workers
    assert case.samples % len(case.costs_ms) == 0
    even = case.eased("head_of_line")
    assert even is not None
    assert sum(even.costs_ms) == pytest.approx(sum(case.costs_ms) / len(case.costs_ms))


def test_easing_a_resource_changes_only_that_resource() -> None:
    case = make("read", 0)
    assert case.eased("network") is None
    assert case.eased("memory") is None
    eased = case.eased("prepare")
    assert eased is not None
    assert (eased.workers, eased.step_ms) == (2 * case.workers, case.step_ms)


def test_a_wrong_verdict_and_a_wrong_prediction_show() -> None:
    right: dict[str, Any] = {"bound": "step", "is": "step", "predicted": 100.0, "rate": 101.0}
    right["gains"] = {"step": 0.9, "prepare": 0.01}
    wrong = {**right, "bound": "prepare", "predicted": 120.0}
    for cases, verdicts in (({"0": right}, ["yes"] * 4), ({"0": right, "1": wrong}, ["no"] * 4)):
        assert [ratio.verdict for ratio in ratios({"step": cases})] == verdicts
    assert len(KINDS) == 8
    off = {"workers": {"predicted": 110.0, "measured": 99.0}, "cache": {"predicted": 100.0, "measured": 99.0}}
    assert [ratio.verdict for ratio in whatif.ratios(off)] == ["no", "yes"]
    told = {"instructions": {"uncounted": 1000, "counted": 1020, "timeline": 1030}}
    assert [ratio.verdict for ratio in overhead.ratios(told)] == ["no", "yes"]
