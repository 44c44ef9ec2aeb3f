"""The benchmark of pictures: tiny runs of some rows, its checks of contents, its verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save

from bench.pictures import cold, files, formats, pair, small, table
from bench.pictures.rows import ROWS, ratios
from bench.pictures.setting import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    """Eight pictures, one run, few samples, and no contender that has to be installed."""
    for number in range(8):
        save(tmp_path / f"pictures/{number}.jpg", natural(60, 90, number), quality=90)
    work = tmp_path / "work"
    work.mkdir()
    return Setting(tmp_path / "pictures", work, runs=1, is_quick=True, wait_seconds=0.0, has_peers=False)


def test_a_row_of_files_has_all_contenders_with_the_same_contents(setting: Setting) -> None:
    row = ROWS["segmentation"]
    results = row.measure(setting)
    assert setting.failures == {}
    assert set(results) == {f"{who}, {threads}" for who in ("feedline", "torchvision", "pillow") for threads in (1, 2)}
    assert [ratio.value for ratio in row.ratios(results) if ratio.value is None] == []


def test_files_of_a_format_are_made_once(setting: Setting) -> None:
    for name, (ending, _) in formats.FORMATS.items():
        folder = formats.made(setting.pictures, setting.work, name)
        assert {path.suffix for path in folder.iterdir()} == {ending}
        marked = folder / "marked"
        marked.touch()
        formats.made(setting.pictures, setting.work, name)
        assert marked.exists(), "it was made again"


def test_a_contender_with_other_contents_is_named() -> None:
    expected = np.zeros((4, 33))
    other, shifted, mask = expected.copy(), expected.copy(), expected.copy()
    other[:, 0] = 1
    shifted[2, 5] = 2 * files.LEVEL
    mask[3, 30] = 1.5
    assert files.difference(expected, expected, 0.0) is None
    for found, why in ((other, "other files"), (shifted, "2 grey levels"), (mask, "mean labels differ by 1.5")):
        assert why in str(files.difference(found, expected, 1.0))


def test_small_samples_are_measured(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "ROW_SAMPLES", 2_000_000)
    results = small.measure_rows(setting)
    assert set(results) == {"feedline", "torch"}
    assert setting.failures == {}
    assert [ratio.bound for ratio in small.row_ratios(results)] == ["at least"]


def test_verdicts_need_both_sides(capsys: pytest.CaptureFixture[str], setting: Setting) -> None:
    one = {"samples_per_second": 100.0, "cpu_ms_per_sample": 1.0, "other_cores": 0.0}
    slow = {**one, "cpu_ms_per_sample": 3.0, "samples_per_second": 40.0}
    results: dict[str, Any] = {
        "validation": {"feedline, 1": one, "torchvision, 1": slow},
        "training": {"feedline, 1": one},
        "colour": {"feedline, 1": {**one, "cpu_ms_per_sample": 1.25}},
        "cold": {"disk, cold": slow, "feedline, cold": one, "feedline, warm": slow, "torch, cold": slow},
        "pair": {"alone": {"imagenet": 10.0, "volumes": 4.0}, "together": {"imagenet": 4.0, "volumes": 2.0}},
    }
    verdicts = {ratio.what: (ratio.value, ratio.verdict) for ratio in ratios(results)}
    assert verdicts["validation: CPU per picture, torchvision / Feedline"] == (3.0, "yes")
    assert verdicts["training: CPU per picture, torchvision / Feedline"] == (None, "not measured")
    assert verdicts["ColorJitter alone, CPU ms per picture"] == (0.25, "yes")
    assert verdicts["cold page cache: images/s, Feedline / torch"] == (2.5, "yes")
    assert verdicts["saturated pair: sum of both shares"] == (0.9, "no")
    assert next(cold.ratios(results["cold"])).value == 2.5
    assert len(list(pair.ratios({}))) == 1
    table.show("validation", results["validation"])
    table.show_ratios(ratios(results), {"webp, dali": "not installable"})
    assert "not installable" in capsys.readouterr().out
    document = table.document(results, setting, {"results": {"png": {}}, "failures": {"png, dali": "old", "cold": "x"}})
    assert next(iter(json.loads(json.dumps(document))["results"])) == "validation"
    assert document["failures"] == {"png, dali": "old"}
