"""The benchmarks measure correctly: windows, failures, verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench import harness, pipeline
from bench.peers import contenders, ratios


def batches_of(size: int, count: int) -> Iterator[np.ndarray]:
    for _ in range(count):
        yield np.zeros(size)


def test_a_window_opens_after_the_warm_up_and_has_at_least_the_requested_samples() -> None:
    assert harness.measure(lambda: batches_of(64, 100), len, warm=100, count=200).samples == 256


def test_a_window_without_warm_up_holds_everything() -> None:
    assert harness.measure(lambda: batches_of(50, 6), len, warm=0, count=300).samples == 300


def test_data_that_ends_too_early_gives_no_window() -> None:
    with pytest.raises(harness.ContenderFailed, match="ended after 300 samples, 100 \\+ 300 are needed"):
        harness.measure(lambda: batches_of(50, 6), len, warm=100, count=300)


def test_a_contender_that_fails_is_named_with_its_reason_and_leaves_the_race() -> None:
    failures: dict[str, str] = {}
    assert harness.race(["no-such-contender"], [], 2, failures=failures, wait_seconds=0) == {}
    assert failures == {"no-such-contender": "KeyError: 'no-such-contender'"}


def test_reasons_name_neither_addresses_nor_paths_of_the_machine() -> None:
    said = "Looking in indexes\nERROR: none at https://user:word@example.org/simple/x for /home/me/x.whl\n\nnotice"
    assert harness.reason(said) == "none at (address) for (path)"


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (np.ones((4, 3, 224, 224)), "float64"),
        (np.ones((4, 224, 3), np.float32), "shape"),
        (np.full((4, 3, 224, 224), 120, np.float32), "mean"),
        (np.zeros((4, 3, 224, 224), np.float32), "standard deviation"),
        (np.tile(np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32), (4, 1, 1, 1)), "repeats"),
    ],
)
def test_a_batch_that_is_not_of_the_pipeline_is_refused(batch: np.ndarray, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        pipeline.check(batch)


def result(images_per_second: float, other_cores: float = 0.0) -> dict[str, float]:
    figures = {"cpu_ms_per_sample": 1.0, "first_batch_seconds": 0.1, "peak_mb": 100}
    return {"samples_per_second": images_per_second, "other_cores": other_cores, **figures}


@pytest.mark.parametrize(
    ("ours", "dali", "verdict"),
    [
        (result(1800), result(1000), "yes"),
        (result(1700), result(1000), "no"),
        (result(1800), result(1000, other_cores=0.5), "disturbed"),
        (result(1800), None, "not measured"),
    ],
)
def test_a_verdict_needs_both_sides_and_a_quiet_machine(
    ours: dict[str, float], dali: dict[str, float] | None, verdict: str
) -> None:
    results = {"feedline-region": ours, **({"dali": dali} if dali else {})}
    first = ratios.of(results)[0]
    assert first.name == "images/s, no index / DALI (at least 1.75)"
    assert first.verdict == verdict


def test_the_page_has_a_title_for_every_contender_and_none_twice() -> None:
    titles = [peer.title for peer in contenders.ALL.values()]
    assert len(set(titles)) == len(titles)
