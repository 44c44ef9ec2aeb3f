"""The benchmark of torch datasets: tiny runs of some rows, its checks of contents, its verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.torch_loader import fingerprint, memory, slow_samples, speed, starts, table
from bench.torch_loader.rows import ROWS
from bench.torch_loader.setting import Setting
from bench.torch_loader.workloads import BY_NAME


@pytest.fixture
def setting(tmp_path: Path, pictures: Callable[..., Path]) -> Setting:
    """Twelve small pictures, one run, few samples, no SPDL, because it is installed from the network."""
    folder = pictures(12, size=(40, 48))
    return Setting(folder, tmp_path / "work", runs=1, is_quick=True, wait_seconds=0.0, retries=0, has_spdl=False)


@pytest.mark.parametrize("name", ["pictures", "lists"])
def test_a_row_of_speed_has_all_loaders_with_the_same_contents(setting: Setting, name: str) -> None:
    results = ROWS[name].measure(setting)
    assert setting.failures == {}
    ours = {target.contender for target in BY_NAME[name].targets}
    assert set(results) == {"torch", *ours}
    for figures in results.values():
        assert {"samples_per_second", "cpu_us_per_sample", "first_samples_per_second"} <= set(figures)
    assert [ratio.value for ratio in ROWS[name].ratios(results) if ratio.value is None] == []


def test_the_document_has_the_set_up_and_keeps_rows_of_the_last_run(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    setting.failures["slow, 2, spdl"] = "not installable"
    results = {"slow": {"batch 2": {name: _use(0.9) for name in ("torch", "feedline")}}}
    table.show("slow", results["slow"], setting.failures)
    assert "use / torch's (at least 1.5)" in capsys.readouterr().out
    before = {"results": {"slow": {}, "arrow": {}}, "failures": {"slow, 8, spdl": "old", "arrow": "no pyarrow"}}
    document = table.document(results, setting, before)
    assert {"cpu", "torch", "spdl-core"} <= set(document["setup"])
    assert {"commit", "build", "runs"} <= set(document["setup"]["rows"]["slow"])
    assert document["setup"]["rows"]["arrow"] == {}, "the origin of an old row is not known"
    assert list(document["results"]) == ["arrow", "slow"]
    assert document["failures"] == {"arrow": "no pyarrow", "slow, 2, spdl": "not installable"}


def _use(use: float) -> dict[str, float]:
    return {"use": use, "bound": 1.0, "of_bound": use}


def test_the_memory_of_workers_is_counted(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KINDS", {"array": memory.KINDS["array"]})
    monkeypatch.setattr(memory, "DATASET_MB", 20)
    results = memory.measure(setting)
    assert set(results["array"]) == {"alone", "feedline"}
    assert all(figures["pss_mb"] > 0 for figures in results["array"].values())
    assert [ratio.bound for ratio in memory.ratios(results)] == ["at most"]


def test_loaders_with_other_contents_leave_the_row(setting: Setting) -> None:
    one, other = fingerprint.of_tensors([torch.arange(6)]), fingerprint.of_tensors([torch.arange(1, 7)])
    assert fingerprint.difference(one, fingerprint.of_tensors([torch.tensor([3, 5, 4]), torch.arange(3)]), 0.0) is None
    found: dict[str, list[dict[str, Any]]] = {"torch": [{"contents": one}], "feedline": [{"contents": other}]}
    speed._check_contents(setting, BY_NAME["tokens"], found)
    assert list(found) == ["torch"]
    assert "contents differ" in setting.failures["tokens, feedline"]


def test_padding_is_not_compared() -> None:
    batches = [torch.tensor([[4, 5, 0, 0], [7, 8, 9, 1]])], [torch.tensor([[7, 8, 9, 1]]), torch.tensor([[4, 5]])]
    assert fingerprint.of_padded(batches[0]) == fingerprint.of_padded(batches[1])


def test_pictures_may_differ_by_one_grey_level() -> None:
    pixels, labels = torch.rand(3, 3, 32, 32), torch.tensor([2, 0, 1])
    exact = fingerprint.of_pictures([(pixels, labels)])
    assert [row[0] for row in exact] == [0, 1, 2]
    for level, is_same in ((1, True), (2, False)):
        shifted = fingerprint.of_pictures([(pixels + level / 255 / 0.225, labels)])
        assert (fingerprint.difference(shifted, exact, fingerprint.PICTURE_TOLERANCE) is None) is is_same


def test_verdicts_need_both_sides() -> None:
    figures = {"samples_per_second": 100.0, "other_cores": 0.0, "cpu_us_per_sample": 1.0}
    faster = {**figures, "samples_per_second": 200.0}
    verdicts = [
        [ratio.verdict for ratio in speed.ratios(BY_NAME["tokens"], results)]
        for results in (
            {"torch": figures, "feedline": faster},
            {"torch": figures, "feedline": figures, "feedline-unseeded": faster},
            {"torch": {**figures, "other_cores": 1.0}, "feedline": faster},
        )
    ]
    assert verdicts == [["yes", "not measured"], ["no", "yes"], ["disturbed", "not measured"]]
    uses = {"batch 2": {"torch": _use(0.5), "feedline": _use(0.99)}, "batch 8": {"feedline": _use(0.9)}}
    assert [ratio.verdict for ratio in slow_samples.ratios(uses)] == ["yes", "no", "yes"]
    times = {"epoch": {"torch": {"median_ms": 2.0}, "feedline": {"median_ms": 1.0}}}
    assert [ratio.verdict for ratio in starts.ratios(times)][:2] == ["yes", "not measured"]
