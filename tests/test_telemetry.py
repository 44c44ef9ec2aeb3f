"""The numbers of a loader for OpenTelemetry, read by its real SDK."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from test_fork import forked

import feedline as fl
from feedline.telemetry import to_instrument


def numbers(n: int = 40, **options: Any) -> fl.Loader:
    return fl.Loader(fl.array(np.arange(n, dtype=np.int64)), batch_size=4, **options)


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Any:
    provider = MeterProvider(metric_readers=[reader])
    yield provider
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Metrics by name."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    assert {scope.scope.name for scope in scopes} <= {"feedline"}
    metrics = [metric for scope in scopes for metric in scope.metrics]
    assert len({metric.name for metric in metrics}) == len(metrics)
    return {metric.name: metric for metric in metrics}


def values(metric: Any) -> list[float]:
    return [point.value for point in metric.data.data_points]


def test_the_sdk_collects_what_the_snapshot_says(reader: InMemoryMetricReader, provider: Any) -> None:
    loader = numbers()
    fl.telemetry.observe(loader, provider)
    for epoch in range(1, 4):
        list(loader)
        found, snapshot = collected(reader), loader.snapshot()
        assert values(found["feedline.loader.samples"]) == [snapshot["samples"]] == [40 * epoch]
        assert values(found["feedline.loader.delivered"]) == [snapshot["content_bytes"]]
        assert values(found["feedline.loader.epoch"]) == [epoch]
    stalls = found["feedline.loader.stall"]
    assert stalls.unit == "s"
    assert stalls.data.is_monotonic
    by_cause = {point.attributes["cause"]: point.value for point in stalls.data.data_points}
    assert by_cause == pytest.approx(snapshot["stall_seconds"])
    plans = {point.attributes["plan"] for metric in found.values() for point in metric.data.data_points}
    assert plans == {loader.plan.fingerprints["order"]}
    assert found["feedline.loader.memory"].unit == "By"
    loader.close()
    assert values(collected(reader)["feedline.loader.samples"]) == [120], "the last report has it all"


def test_loaders_of_one_provider_are_told_apart_and_one_that_is_gone_is_not_reported(
    reader: InMemoryMetricReader, provider: Any, caplog: pytest.LogCaptureFixture
) -> None:
    train, check = numbers(), numbers(8)
    fl.telemetry.observe(train, provider, attributes={"loader": "train"})
    fl.telemetry.observe(check, provider, attributes={"loader": "check"})
    list(train), list(check)

    def samples() -> dict[str, float]:
        metric = collected(reader).get("feedline.loader.samples")
        points = [] if metric is None else metric.data.data_points
        return {point.attributes["loader"]: point.value for point in points}

    assert samples() == {"train": 40, "check": 8}
    del check
    gc.collect()
    list(train)
    assert samples() == {"train": 80}
    train.close()
    assert not caplog.records, "no instrument was made twice"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reports_nothing(reader: InMemoryMetricReader, provider: Any) -> None:
    loader = numbers()
    fl.telemetry.observe(loader, provider)
    list(loader)
    assert forked(lambda: sorted(collected(reader))) == []
    assert values(collected(reader)["feedline.loader.samples"]) == [40]
    loader.close()


def test_an_exporter_turns_these_names_into_those_of_prometheus() -> None:
    endings = {"s": "_seconds", "By": "_bytes", "": ""}
    loader = numbers()
    found = fl._feedline.numbers(loader._native)
    told = [to_instrument(name) for name, *_ in found]
    assert len(set(told)) == len(found)
    for (name, kind, *_), (of_instrument, unit) in zip(found, told, strict=True):
        ending = endings[unit] + ("_total" if kind == "counter" else "")
        assert of_instrument.replace(".", "_") + ending == name
    loader.close()


def test_without_the_package_an_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match="pip install opentelemetry-api"):
        fl.telemetry.observe(numbers())


def test_importing_feedline_does_not_import_opentelemetry(run_python: Any) -> None:
    code = "import sys, feedline; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert run_python(code).strip() == "False"
