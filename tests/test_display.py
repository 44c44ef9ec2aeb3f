"""Plain data has the documented shape, and objects show themselves in one line and as a small table."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest
from making import natural

import feedline as fl
from feedline import ops, testing
from feedline import types as shapes

DELAYS = [testing.delay([1.0, 1.0, 1.0, 6.0])]


def mismatches(value: Any, expected: Any, where: str) -> list[str]:
    """Give the places at which a value is not of a type."""
    origin, arguments = get_origin(expected), get_args(expected)
    if is_typeddict(expected):
        if not isinstance(value, dict):
            return [f"{where} is {type(value).__name__}, not a dict"]
        hints = get_type_hints(expected)
        unknown, missing = set(value) - set(hints), expected.__required_keys__ - set(value)
        wrong = [f"{where} has {name!r}, which is not in the type" for name in unknown]
        wrong += [f"{where} lacks {name!r}" for name in missing]
        known = [name for name in value if name in hints]
        return wrong + [text for name in known for text in mismatches(value[name], hints[name], f"{where}.{name}")]
    if origin in (typing.Union, types.UnionType):
        found = [mismatches(value, option, where) for option in arguments]
        return [] if [] in found else found[0]
    if origin is Literal:
        return [] if value in arguments else [f"{where} is {value!r}, not one of {arguments}"]
    if origin is list:
        return [text for entry in value for text in mismatches(entry, arguments[0], f"{where}[]")]
    if origin is dict:
        keys = [text for name in value for text in mismatches(name, arguments[0], f"a key of {where}")]
        return keys + [text for entry in value.values() for text in mismatches(entry, arguments[1], f"{where}{{}}")]
    is_right = type(value) is expected or (expected is float and type(value) is int)
    return [] if is_right else [f"{where} is {type(value).__name__}, not {expected}"]


@pytest.fixture(scope="module")
def run() -> fl.Loader:
    pictures = np.stack([natural(24, 24, seed) for seed in range(40)])
    chain = [ops.RandomResizedCrop(8), *DELAYS]
    loader = fl.Loader(fl.array(pictures), chain, batch_size=4, order=fl.planned(), num_workers=2)
    list(loader)
    return loader


def test_a_snapshot_has_the_documented_shape(run: fl.Loader) -> None:
    assert mismatches(run.snapshot(), shapes.Snapshot, "snapshot") == []


def test_a_snapshot_with_substitutes_and_a_reservoir_has_the_documented_shape(
    pictures: Callable[..., Path], tmp_path: Path
) -> None:
    assert fl._feedline.run_cli(["feedline", "pack", str(pictures(12)), str(tmp_path / "shards")]) == 0
    chain = [ops.DecodeImage(), ops.Resize((8, 8))]
    loader = fl.Loader(fl.tar(tmp_path / "shards"), chain, batch_size=4, shuffle=fl.reservoir(3))
    list(loader)
    snapshot = loader.snapshot()
    assert mismatches(snapshot, shapes.Snapshot, "snapshot") == []
    reservoir = snapshot["reservoir"] or {}
    assert reservoir.get("size") == 3

    root = pictures(12, name="bad")
    next(root.rglob("*.png")).write_bytes(b"bad")
    loader = fl.Loader(fl.folder(root), chain, batch_size=4, on_error=fl.substitute(0.5))
    list(loader)
    snapshot = loader.snapshot()
    assert len(snapshot["substitutes"]) == 1
    assert mismatches(snapshot, shapes.Snapshot, "snapshot") == []


def test_reports_have_the_documented_shape(run: fl.Loader) -> None:
    assert mismatches(run.report().to_dict(), shapes.RunReport, "report") == []
    assert mismatches(run.order_report(), shapes.OrderReport, "order_report") == []


def test_remedies_have_the_documented_shape() -> None:
    with fl.Loader(fl.synthetic(64, (8,)), [testing.delay(8.0)], batch_size=4, num_workers=1) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=0.5)
        assert found.remedies
        assert mismatches(found.remedies, list[shapes.Remedy], "remedies") == []
        tried = found.try_remedy("workers")
        assert mismatches(tried, shapes.TriedRemedy, "tried") == []


def test_anomalies_have_the_documented_shape() -> None:
    # Every second batch takes long, as those of a loader whose workers prepare whole batches.
    times = [(0, 40.0 if number % 2 else 1.0, 0.0, 1.0, 4) for number in range(200)]
    found, words = fl._feedline.foreign_report(times, (0.0, 0.0), None)
    assert words
    assert mismatches(found["log"], shapes.BatchTimes, "log") == []


def test_the_remedies_of_the_type_are_those_of_the_engine() -> None:
    source = (Path(__file__).parent.parent / "crates/feedline-diagnose/src/doctor/remedy.rs").read_text()
    variants = source.split("pub enum Change {")[1].split("\n}")[0]
    names = [line.strip(" {,") for line in variants.splitlines() if line.startswith("    ") and line[4].isupper()]
    snake = ["".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_") for name in names]
    (change,) = [hint for name, hint in get_type_hints(shapes.Remedy).items() if name == "change"]
    assert sorted(get_args(change)) == sorted(snake)


def objects(root: Path) -> list[tuple[Any, str]]:
    source = fl.folder(root)
    loader = fl.Loader(source, [ops.DecodeImage(), ops.Resize((8, 8))], batch_size=4)
    return [
        (source, f'<feedline.Source folder "{root}": 6 samples, 2 classes, fields image, label>'),
        (source.subset([1]), f'<feedline.Source part of folder "{root}": 1 sample, 2 classes, fields image, label>'),
        (fl.array(np.zeros((3, 2))), "<feedline.Source array in memory: 3 samples, fields data>"),
        (fl.synthetic(5, (2,)), "<feedline.Source synthetic: 5 samples, fields data>"),
        (loader.plan, f'<feedline.Plan folder "{root}": 6 samples, 2 batches of 4, ops DecodeImage, Resize>'),
        (loader, f'<feedline.Loader folder "{root}": 6 samples, 2 batches of 4, ops DecodeImage, Resize, epoch 0>'),
        (loader.report(), "<feedline.Report: "),
        (fl.weighted([1.0] * 5000), "<feedline.Weighted: 5,000 weights, as many samples per epoch as the source has>"),
        (fl.class_balanced(12), "<feedline.ClassBalanced: 12 per epoch>"),
    ]


def test_objects_show_what_they_are_in_one_line(pictures: Callable[..., Path]) -> None:
    for shown, expected in objects(pictures(6)):
        text = repr(shown)
        assert text.startswith(expected), text
        assert "\n" not in text
        assert len(text) < 300


def test_objects_are_small_tables_in_notebooks(pictures: Callable[..., Path]) -> None:
    root = pictures(6, name="a<b>&c")
    for shown, _ in objects(root):
        table = shown._repr_html_()
        assert table.startswith("<table><tr><th")
        assert table.endswith("</table>")
        assert f"feedline.{type(shown).__name__}" in table
        assert 1 <= table.count("<tr>") - 1 <= 12
        assert "<b>" not in table, "values are escaped"


def test_a_closed_loader_can_be_shown() -> None:
    loader = fl.Loader(fl.synthetic(5, (2,)), batch_size=2)
    loader.close()
    assert repr(loader) == "<feedline.Loader synthetic: 5 samples, 3 batches of 2, ops none, epoch 0, closed>"


def test_a_diagnosis_shows_its_bound_and_what_would_help() -> None:
    with fl.Loader(fl.synthetic(64, (8,)), [testing.delay(8.0)], batch_size=4, num_workers=1) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=0.5)
    assert repr(found).startswith("<feedline.Diagnosis: prepare, ")
    assert "workers" in repr(found).split("would help: ")[1]
    assert "would help: workers" in found._repr_html_()
