"""Planned order: slow samples come later, the same on every machine, resumable, bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import testing

N, BATCH = 300, 6
COSTS = [40.0 if number % 25 == 3 else 0.2 for number in range(N)]


def make(**options: Any) -> fl.Loader:
    options = {"order": fl.planned(), "num_workers": 4, "seed": 5, "shuffle": True, **options}
    return fl.Loader(fl.synthetic(N, (4,)), [testing.delay(COSTS)], batch_size=BATCH, **options)


def ids(loader: fl.Loader, epochs: int = 1) -> list[list[int]]:
    return [batch["index"].tolist() for _ in range(epochs) for batch in loader]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("costs") / "table"
    with make(order="strict") as loader:
        ids(loader)
        loader.save_costs(path)
    return path


def files_of_two_sizes(folder: Path) -> list[Path]:
    paths = [folder / f"{number:03}.bin" for number in range(60)]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * (40_000 if number % 20 == 5 else 400))
    return paths


def places(stream: list[list[int]]) -> dict[int, int]:
    return {sample: place for place, sample in enumerate(sum(stream, []))}


def test_slow_samples_come_later_within_the_bound_and_each_once(table: Path) -> None:
    in_order = make(order="strict")
    assert in_order.order_report(0) is None
    strict = places(ids(in_order))
    for bound in (0, 10, 60):
        loader = make(order=fl.planned(costs=table, max_displacement=bound))
        planned = places(ids(loader))
        assert sorted(planned) == list(range(N))
        late = {sample: planned[sample] - strict[sample] for sample in planned}
        assert max(late.values()) <= bound
        slow = [late[sample] for sample in range(N) if COSTS[sample] == 40]
        if bound:
            assert np.mean(slow) > bound / 2
        report: Any = loader.order_report(0)
        assert report["largest_displacement"] == max(map(abs, late.values()))
        assert (report["samples"], report["max_displacement"]) == (N, bound)
        assert report["slow_samples"] >= len(slow)
        assert report["slow_per_batch_most"] <= BATCH


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_law_3_planned_order_does_not_depend_on_threads(table: Path, workers: int) -> None:
    assert ids(make(order=fl.planned(costs=table), num_workers=workers), 2) == ids(
        make(order=fl.planned(costs=table)), 2
    )


def test_without_a_table_bytes_and_draws_decide(tmp_path: Path) -> None:
    paths = files_of_two_sizes(tmp_path)
    source = fl.files({"image": paths})
    strict, planned = (
        places(ids(fl.Loader(source, batch_size=4, order=order, ragged=["image"])))
        for order in ("strict", fl.planned())
    )
    large = [planned[number] - strict[number] for number in range(60) if number % 20 == 5]
    assert min(large) > 0
    assert sorted(planned) == list(range(60))


@pytest.mark.parametrize("received", [1, 7, 20, 49])
def test_law_4_resume_gives_the_rest_of_the_stream(table: Path, received: int) -> None:
    expected = ids(make(order=fl.planned(costs=table)), 2)
    loader = make(order=fl.planned(costs=table))
    iterator = iter(loader)
    for _ in range(received):
        next(iterator)
    state = loader.state_dict()
    again = make(order=fl.planned(costs=table), num_workers=1)
    again.load_state_dict(state)
    assert ids(again) == expected[received:50]
    assert ids(again) == expected[50:]


def test_a_state_of_another_order_table_or_division_is_refused(table: Path, tmp_path: Path) -> None:
    loader = make(order=fl.planned(costs=table))
    next(iter(loader))
    state = loader.state_dict()
    for other in (fl.planned(), fl.planned(costs=table, max_displacement=3)):
        with pytest.raises(fl.StateError, match="cannot continue from there"):
            make(order=other).load_state_dict(state)
    with pytest.raises(fl.StateError, match="rank 0 of 1 and batch size 6"):
        make(order=fl.planned(costs=table), rank=0, world_size=2).load_state_dict(state)


def test_law_4_without_its_table_the_rest_of_an_epoch_comes_in_strict_order_on_request(
    table: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "table"
    copy.write_bytes(table.read_bytes())
    for received in (1, 8, 33):
        loader = make(order=fl.planned(costs=copy))
        iterator = iter(loader)
        before = [next(iterator)["index"].tolist() for _ in range(received)]
        state = loader.state_dict()
        copy.rename(tmp_path / "gone")
        with pytest.raises(fl.PlanError, match=r"table.*order=.strict"):
            make(order=fl.planned(costs=copy))
        rest = make(order="strict")
        strict = sum(ids(make(order="strict")), [])
        rest.load_state_dict(state)
        after = sum(ids(rest), [])
        assert after == [sample for sample in strict if sample not in sum(before, [])]
        assert ids(rest) == ids(make(order="strict"), 2)[N // BATCH :]
        (tmp_path / "gone").rename(copy)


def test_ranks_plan_their_own_share_and_cover_the_epoch(table: Path) -> None:
    seen = [sum(ids(make(order=fl.planned(costs=table), rank=rank, world_size=3)), []) for rank in range(3)]
    assert sorted(sum(seen, [])) == list(range(N))


def test_a_table_that_is_missing_damaged_or_of_another_plan_is_named(table: Path, tmp_path: Path) -> None:
    with pytest.raises(fl.PlanError, match=r"no-such-file.*save_costs"):
        make(order=fl.planned(costs=tmp_path / "no-such-file"))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(fl.PlanError, match="damaged, or belongs to a plan"):
        make(order=fl.planned(costs=damaged))
    with pytest.raises(fl.PlanError, match="damaged, or belongs to a plan"):
        fl.Loader(fl.synthetic(5, (4,)), [testing.delay(1)], batch_size=1, order=fl.planned(costs=table))


def test_a_plan_with_planned_order_can_be_written_down(table: Path) -> None:
    loader = make(order=fl.planned(costs=table, max_displacement=9))
    again = fl.Loader.from_plan(fl.Plan.from_toml(loader.plan.to_toml()))
    assert ids(again) == ids(loader)


def test_law_2_a_state_is_refused_if_sizes_that_made_the_planned_order_have_changed(tmp_path: Path) -> None:
    paths = files_of_two_sizes(tmp_path)

    def make_planned() -> fl.Loader:
        return fl.Loader(fl.files({"image": paths}), batch_size=4, order=fl.planned(), ragged=["image"])

    loader = make_planned()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    for number in (5, 25):
        paths[number].write_bytes(b"x" * 400)
    with pytest.raises(fl.StateError, match="changed in size"):
        make_planned().load_state_dict(loader.state_dict())
