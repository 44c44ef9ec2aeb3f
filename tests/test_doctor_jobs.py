"""The doctor of every kind of job: orders, samplers, ranks, shards, volumes, storage servers, shared loaders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import ops, testing

Made = Callable[[Path], fl.Loader]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("doctor-jobs")
    command = [sys.executable, "-m", "feedline", "synth", str(root / "pictures"), "--images", "96", "--size", "64-160"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "feedline", "pack", str(root / "pictures"), str(root / "shards")]
    subprocess.run(command, check=True, capture_output=True)
    (root / "volumes").mkdir()
    for number in range(6):
        volume = np.random.default_rng(number).random((1, 24, 24, 24), dtype=np.float32)
        np.save(root / "volumes" / f"case_{number}_x.npy", volume)
    return root


CROPS = [ops.DecodeImage(), ops.RandomResizedCrop(32)]


def pictures(root: Path, **options: Any) -> fl.Loader:
    return fl.Loader(fl.folder(root / "pictures"), CROPS, **{"batch_size": 8, "num_workers": 2, **options})


JOBS: dict[str, Made] = {
    "planned": lambda root: pictures(root, shuffle=True, order=fl.planned()),
    "arrival": lambda root: pictures(root, shuffle=True, order=fl.arrival(log=root / "arrivals")),
    "sampler": lambda root: pictures(root, sampler=[5, 3, 3, 9, 12, 40, 41, 42, 43, 44, 45, 46]),
    "ranks": lambda root: pictures(root, shuffle=True, rank=1, world_size=2),
    "cached": lambda root: pictures(root, cache=fl.cache(ram="64MB")),
    "shards": lambda root: fl.Loader(fl.tar(str(root / "shards/*.tar")), CROPS, batch_size=8, shuffle=True),
    "reservoir": lambda root: fl.Loader(
        fl.tar(str(root / "shards/*.tar")), CROPS, batch_size=8, shuffle=fl.reservoir(0.5)
    ),
    "volumes": lambda root: fl.Loader(fl.volumes(root / "volumes"), [ops.RandomFlip3d(on="image")], batch_size=2),
    "skip": lambda root: pictures(root, on_error=fl.substitute(0.5)),
}


@pytest.mark.parametrize("kind", JOBS)
def test_jobs_of_every_kind_are_examined_and_stay_where_they_are(kind: str, data: Path) -> None:
    with JOBS[kind](data) as loader:
        before = loader.state_dict()
        found = fl.doctor(loader, lambda _: testing.step(1.0), seconds=0.8)
        assert found.bound in fl.diagnosis.BOUNDS
        assert found.measured_samples_per_second > 0
        assert found.predicted_samples_per_second > 0
        told = str(found)
        assert "This job is bound by" in told
        for op in loader.plan.ops:
            assert op in told
        json.dumps(found.to_dict())
        assert loader.state_dict() == before
    assert not (data / "arrivals").exists(), "a diagnosis leaves no log behind"


def examined(plan: Path, *options: str, seconds: float = 1.0, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "feedline", "--json", "doctor", str(plan), "--quick", "--seconds", str(seconds)]
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
    told = subprocess.run([*command, *options], check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(told.stdout))


def test_a_cache_is_tried_and_nothing_of_it_is_left(data: Path, tmp_path: Path) -> None:
    plan, cache = tmp_path / "plan.toml", tmp_path / "cache"
    chain = [ops.DecodeImage(), testing.delay(5.0), ops.RandomCrop(32)]
    with fl.Loader(fl.folder(data / "pictures"), chain, batch_size=8, num_workers=2) as loader:
        plan.write_text(loader.plan.to_toml())
    found = examined(plan, "--try", "cache", cache=cache)
    (tried,) = found["tried"]
    assert tried["change"] == "cache"
    assert tried["measured_samples_per_second"] > 2 * found["measured_samples_per_second"]
    points = {point["after"]: point for point in found["cache_points"]}
    assert points["Delay"]["form"] == "resized"
    assert points["RandomCrop"]["lost"] == ["RandomCrop"]
    assert points["RandomCrop"]["form"] is None
    assert not [path for path in tmp_path.rglob("feedline-doctor-*")]


def test_a_script_tries_a_remedy_with_its_own_step_and_sees_what_was_predicted_and_measured(tmp_path: Path) -> None:
    steps: list[int] = []

    def step(batch: Any) -> None:
        steps.append(len(batch["data"]))

    with fl.Loader(fl.synthetic(256, (16,)), [testing.delay(20.0)], batch_size=8, num_workers=1) as loader:
        before = loader.state_dict()
        found = fl.doctor(loader, step, seconds=1.0)
        assert found.bound == "prepare"
        remedy = next(remedy for remedy in found.remedies if remedy["change"] == "workers")
        steps.clear()
        tried = found.try_remedy(remedy)
        assert loader.state_dict() == before
    assert set(steps) == {8}
    assert {name: tried[name] for name in remedy} == remedy
    assert tried["measured_samples_per_second"] > 1.3 * found.measured_samples_per_second
    assert found.to_dict()["tried"] == [tried]
    predicted, measured = (tried[f"{name}_samples_per_second"] for name in ("predicted", "measured"))
    line = next(line for line in str(found).split("tried")[1].splitlines() if "num_workers=" in line)
    assert line.split()[1:] == [f"{predicted:.1f}", f"{measured:.1f}"]
    found.save_html(tmp_path / "page.html")
    assert f"<td>{measured:.1f}" in (tmp_path / "page.html").read_text()


def test_what_cannot_be_tried_is_refused_and_an_error_of_the_step_is_raised() -> None:
    is_broken = False

    def step(_: Any) -> None:
        if is_broken:
            raise ValueError("no longer")

    with fl.Loader(fl.synthetic(256, (16,)), [testing.delay(20.0)], batch_size=8, num_workers=1) as loader:
        found = fl.doctor(loader, step, seconds=1.0)
    with pytest.raises(fl.PlanError, match='nothing to try with the name "magic"; the remedies for this job are: '):
        found.try_remedy("magic")
    with pytest.raises(fl.FeedlineError, match="more than a change of settings"):
        found.try_remedy("share")
    is_broken = True
    with pytest.raises(fl.FeedlineError, match="the step raised ValueError: no longer"):
        found.try_remedy("workers")
    assert found.to_dict()["tried"] == []


def test_files_on_a_slow_disk_are_packed_and_shards_there_read_in_sequence(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def plan(source: Any, name: str) -> Path:
        with fl.Loader(source, CROPS, batch_size=8, num_workers=2, shuffle=True) as loader:
            (tmp_path / name).write_text(loader.plan.to_toml())
        return tmp_path / name

    disk = {"seek_ms": 8.0, "mb_per_second": 150.0}
    files = plan(fl.folder(testing.slow_disk(data / "pictures", **disk)), "files.toml")
    found = examined(files, "--try", "pack", cache=cache)
    assert found["bound"] == "read"
    (tried,) = found["tried"]
    assert tried["measured_samples_per_second"] > 2 * found["measured_samples_per_second"]
    assert [path for path in cache.parent.rglob("feedline-doctor-*")] == [], "nothing is left"
    shards = plan(fl.tar(testing.slow_disk(data / "shards", **disk) + "/*.tar"), "shards.toml")
    found = examined(shards, "--try", "reads", cache=cache)
    assert found["bound"] in ("read", "network"), "shards of a simulated disk are fetched as those of another machine"
    (tried,) = found["tried"]
    assert tried["block"] == 64_000_000
    assert tried["measured_samples_per_second"] > 2 * found["measured_samples_per_second"]


def test_packing_is_proposed_to_a_script_too_whatever_its_ops(data: Path, own_cache: Path) -> None:
    disk = testing.slow_disk(data / "pictures", seek_ms=8.0, mb_per_second=150.0)
    chain = [*CROPS, ops.Map(lambda image: image, on="image")]
    with fl.Loader(fl.folder(disk), chain, batch_size=8, num_workers=2, shuffle=True) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=1.5)
    assert found.bound == "read"
    assert next(remedy for remedy in found.remedies if remedy["change"] == "pack")["predicted_gain"] > 1
    assert [path for path in own_cache.parent.rglob("feedline-doctor-*")] == [], "nothing is left"


def test_remedies_that_do_not_go_with_a_plan_are_left_out(data: Path) -> None:
    shards, slow = fl.tar(str(data / "shards/*.tar")), [ops.DecodeImage(), testing.delay(20.0), ops.RandomCrop(32)]
    with fl.Loader(shards, slow, batch_size=8, num_workers=2, shuffle=fl.reservoir(0.5)) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=1.0)
    assert found.bound == "prepare"
    assert {"workers", "share"} <= {remedy["change"] for remedy in found.remedies}
    assert "cache" not in {remedy["change"] for remedy in found.remedies}


def test_batches_that_are_never_full_are_counted_as_they_are() -> None:
    few = {"batch_size": 8, "sampler": [0, 1, 2, 3, 4]}
    with fl.Loader(fl.synthetic(256, (16,)), [], **few) as loader:
        found = fl.doctor(loader, lambda _: testing.step(40.0), seconds=1.5)
    assert found.bound == "step"
    assert found.predicted_samples_per_second == pytest.approx(5 / 0.040, rel=0.2)
    assert found.remedies == [], "a batch cannot have more than there is"


def test_an_interrupt_ends_the_evaluation_of_a_remedy() -> None:
    def step(batch: Any) -> None:
        testing.step(40.0)  # Far longer than loading takes, even on a busy machine.
        if len(batch["data"]) > 4:
            raise KeyboardInterrupt

    with fl.Loader(fl.synthetic(256, (16,)), [], batch_size=4) as loader, pytest.raises(KeyboardInterrupt):
        fl.doctor(loader, step, seconds=1.5)


def test_a_step_that_gains_by_larger_batches_is_told_so_and_one_that_cannot_have_them_is_no_error() -> None:
    def fixed(batch: Any) -> None:
        testing.step(20.0)
        if len(batch["data"]) != 4:
            raise ValueError("only batches of four")

    with fl.Loader(fl.synthetic(256, (16,)), [], batch_size=4) as loader:
        found = fl.doctor(loader, lambda _: testing.step(20.0), seconds=1.0)
        assert found.bound == "step"
        (remedy,) = found.remedies
        assert (remedy["change"], remedy["batch_size"]) == ("batch_size", 8)
        assert remedy["predicted_gain"] > 0.5
        assert fl.doctor(loader, fixed, seconds=1.0).remedies == []


@pytest.mark.usefixtures("nothing_left")
def test_a_loader_that_shares_is_examined_alone_and_its_report_says_what_was_waited_for(
    socket: Path, node: subprocess.Popen[str]
) -> None:
    chain = [testing.delay(10.0)]
    with fl.Loader(fl.synthetic(64, (16,)), chain, batch_size=8, num_workers=2, share=str(socket)) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        assert loader.report().bound == "prepare"
        assert fl.doctor(loader, lambda _: None, seconds=0.8).bound == "prepare"


def test_a_slow_link_to_a_storage_server_is_the_bound(data: Path, serve: Callable[..., Any]) -> None:
    _, address = serve(data / "pictures", "--link-mbps", "4")
    with fl.Loader(
        fl.folder(f"feedline://{address}/"), CROPS, batch_size=8, tuning=fl.tuning(offload="none")
    ) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=1.5)
    assert found.bound == "network"
    assert any(remedy["change"] == "offload" for remedy in found.remedies)
