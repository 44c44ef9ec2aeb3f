"""The benchmarks of jobs that share and of reading in sequence: their arithmetic, and tiny runs of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import feedline as fl
from bench import harness
from bench.share import attached, handover, learning, mixed, page, sequential, tensor_socket, thirty_five, two_jobs
from bench.share.jobs import Job, Outcome, node, run
from bench.share.parts import PARTS, ratios
from bench.share.setting import Setting, keep_best, named
from bench.share.tensor_socket_ends import Opened
from bench.share.tensor_socket_ends import named as names_of
from bench.share.unequal import least
from bench.share.window import NotStarted, Reader, rate, stamps, watch


@pytest.fixture
def setting(tmp_path: Path, pictures: Callable[..., Path]) -> Setting:
    """Twelve small pictures, and a folder for files made from them."""
    folder = pictures(12, size=(40, 48))
    return Setting(folder, folder, tmp_path, tmp_path / "cache", runs=1)


def test_the_committed_run_reaches_every_target() -> None:
    results = json.loads((harness.RESULTS / "share-sequential.json").read_text())["results"]
    found = list(sequential.ratios(results))
    assert len(found) == 8
    assert [ratio.name for ratio in found if ratio.verdict != "yes"] == []


def test_data_to_learn_from_is_sorted_by_class_and_cut_into_many_blocks(tmp_path: Path) -> None:
    block = learning.write_shards(tmp_path / "points")
    loader = fl.Loader(fl.tar(tmp_path / "points"), batch_size=200, ragged=("bin",))
    labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == sorted(labels)
    assert len(set(labels)) == learning.CLASSES >= 20
    assert block * learning.BLOCKS <= sum(path.stat().st_size for path in (tmp_path / "points").glob("*.tar"))


def test_the_committed_ratios_are_those_of_the_committed_results() -> None:
    document = json.loads((harness.RESULTS / page.RESULT).read_text())
    assert {ratio.name: ratio.value for ratio in ratios(document["results"])} == document["ratios"]
    assert set(document["results"]) <= set(PARTS)


def test_the_best_run_is_kept_with_the_least_processor_time_of_all() -> None:
    found: dict[str, Any] = {}
    for speed, cpu in ((10.0, 3.0), (12.0, 4.0), (11.0, 2.0)):
        keep_best(found, "case", {"samples_per_second": speed, "node_cpu_seconds": cpu})
    assert found == {"case": {"samples_per_second": 12.0, "node_cpu_seconds": 2.0}}


def test_the_least_production_is_what_the_fastest_active_job_takes() -> None:
    jobs = [Job("shared"), Job("shared", delay_seconds=5.0)]
    done = [{"samples": 100, "epoch_ends": [10.0]}, {"samples": 40, "epoch_ends": [10.0]}]
    assert least(Outcome(jobs=done), jobs) == pytest.approx(10 * 10 + 5 * 4)


def test_a_rate_does_not_depend_on_where_the_window_cuts_a_batch() -> None:
    batches = [(float(second), 64) for second in range(20)]
    for opened, closed in ((3.0, 9.0), (3.4, 9.9), (3.9, 9.1)):
        assert rate(batches, opened, closed) == pytest.approx(64)
    assert rate(batches, 30.0, 40.0) == 0.0


def test_a_line_that_is_being_written_is_no_batch_yet(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1.5 64\n2.5 64\n3.")
    assert stamps(tmp_path / "log") == [(1.5, 64), (2.5, 64)]
    assert stamps(tmp_path / "none") == []


def test_a_disk_is_busy_with_seeks_and_bytes() -> None:
    store = {"reads": 100, "bytes": 150_000_000, "busy_seconds": 7.0}
    found = two_jobs.figures(3.6, [store, store])
    assert (found["reads"], found["read_bytes"], found["thread_seconds_in_reads"]) == (200, 300_000_000, 14.0)
    assert found["disk_busy"] == pytest.approx((200 * 0.008 + 2.0) / 3.6)
    given = {"shared": {name: 53.0 for name in found}, "separate": {name: 100.0 for name in found}}
    assert [ratio.verdict for ratio in two_jobs.ratios(given)] == ["yes"] * 3


def test_separate_jobs_of_a_search_count_as_often_as_there_are() -> None:
    one = {"read_bytes": 100, "prefix_samples": 50, "prefix_cpu_seconds": 2.0}
    found = {"jobs": 4, "at_a_time": 2, "one_separate_job": one, "shared": one}
    assert [ratio.value for ratio in thirty_five.ratios(found)] == [0.25] * 3


def test_steps_leave_the_cores_as_busy_as_requested() -> None:
    step = mixed.step_ms(batch=10, cpu_ms_per_sample=3.0, busy=0.25, cores=2)
    assert 10 * 3.0 / step == pytest.approx(0.25 * 2), "milliseconds of work in each of the step"
    case = {"alone": {"imagenet": 100.0, "volumes": 10.0}, "together": {"imagenet": 96.0, "volumes": 9.0}}
    assert mixed.shares(case) == {"imagenet": 0.96, "volumes": 0.9}
    assert [ratio.verdict for ratio in mixed.ratios({mixed.STEPS: case})] == ["yes", "no"]


def test_the_99th_percentile_is_what_99_of_100_do_not_exceed() -> None:
    found = handover.spread([float(number) for number in range(1, 201)])
    assert (found["median_us"], found["p99_us"], found["most_us"]) == (100.5, 198.0, 200.0)
    assert handover.spread([5.0])["p99_us"] == 5.0


def test_a_batch_is_first_in_a_segment_or_inside_it_or_across_two() -> None:
    lengths = [256, 160, 256]
    starts = {start: attached.place(start, start + 64, lengths) for start in (0, 192, 256, 384, 416, 608, 640)}
    expected = ["first", "within", "first", None, "first", "within", None]
    assert list(starts.values()) == expected


def test_views_of_segments_are_counted_apart() -> None:
    smaps = """7f0000000000-7f0000400000 r-xp 00000000 00:01 7 /usr/lib/a memfd.so
Rss:                 400 kB
Pss:                 200 kB
Private_Clean:       100 kB
Private_Dirty:        50 kB
VmFlags: rd ex
7f0001000000-7f0001400000 rw-p 00000000 00:01 9 /memfd:feedline (deleted)
Rss:                1000 kB
Pss:                 500 kB
Private_Dirty:         8 kB
VmFlags: rd wr
7f0002000000-7f0002400000 rw-p 00000000 00:00 0
Rss:                  30 kB
Private_Dirty:        30 kB"""
    found = attached.memory_kb(smaps.splitlines())
    assert found == {"rss": 1430, "pss": 700, "private": 188, "view_rss": 1000, "view_private": 8}
    interpreter = {"rss": 230, "private": 80}
    assert handover.beyond(found, interpreter)["rss_mb"] == pytest.approx(200 * 1024 / 1e6)


def test_the_guide_has_rows_of_the_parts_that_were_measured_only() -> None:
    one = {"read_bytes": 100, "prefix_samples": 50, "prefix_cpu_seconds": 2.0}
    found = {"thirty_five": {"jobs": 4, "at_a_time": 2, "one_separate_job": one, "shared": one}}
    rows = page.text(found).strip().splitlines()
    assert len(rows) == 2 + 3
    assert rows[2] == "| 4 jobs, 2 at a time: bytes read, shared / separate | 0.25 | at most 0.125 |"
    guide = f"before\n{page.BEGIN}old\n{page.END}after\n"
    assert page.replaced(page.replaced(guide, found), {}) == f"before\n{page.BEGIN}\n{page.END}after\n"


def test_the_limits_of_tensorsocket_are_stated() -> None:
    found = {"tried": {"as-shipped": "no batches", "greeted": 40.2, "shared-memory": 250.0}, "way": "shared-memory"}
    assert list(tensor_socket.ratios(found)) == []
    said = " ".join(page.sentences({"tensorsocket": found}))
    assert "`as-shipped`: no batches; `greeted`: 40 samples/s; `shared-memory`: 250 samples/s" in said
    failed = " ".join(page.sentences({"tensorsocket": {"failure": "cannot be installed"}}))
    assert "not in the table: cannot be installed" in failed


@pytest.fixture
def sharing_strategy() -> Iterator[None]:
    before = torch.multiprocessing.get_sharing_strategy()
    yield
    torch.multiprocessing.set_sharing_strategy(before)


@pytest.mark.usefixtures("sharing_strategy")
def test_tensors_that_go_by_name_lie_in_the_same_memory() -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    (seen,) = Opened()(names_of((whole[2:4],)))
    assert torch.equal(seen, whole[2:4])
    whole[2, 0] = -1
    assert seen[0, 0] == -1


def test_two_jobs_that_share_a_disk_read_no_more_than_two_alone(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_jobs, "BATCH", 4)
    found = two_jobs.measure(setting, epochs=2)
    assert found["separate"]["reads"] >= 2 * 2 * 12
    # How much they share depends on the start time of each.
    assert 0 < found["shared"]["reads"] <= found["separate"]["reads"]
    assert 0 < found["shared"]["read_bytes"] <= found["separate"]["read_bytes"]
    assert found["separate"]["disk_busy"] > 0, "both are on one disk"


def test_a_search_decodes_each_picture_once(setting: Setting, tmp_path: Path) -> None:
    folder = named(setting.pictures, tmp_path / "named", 2)
    found = thirty_five.shared(folder, tmp_path / "search", count=2, at_a_time=1)
    assert found["samples"] == 2 * 24
    assert found["prefix_samples"] == 24
    alone = thirty_five.separate(folder, tmp_path / "alone")
    assert alone["prefix_samples"] >= 24
    assert alone["read_bytes"] >= found["read_bytes"] > 0


def test_volumes_are_shared_and_their_jobs_watched(tmp_path: Path) -> None:
    folder = mixed.make_volumes(tmp_path / "volumes", count=4, side=mixed.BLOB + 110, names=2)
    assert np.load(folder / "00-1_y.npy").max() == 2
    with node(tmp_path / "cache", memory="1GB") as serving:
        readers = [Reader(Job("shared", 2, work="volumes"), folder, str(serving.socket))] * 2
        seen = watch(readers, tmp_path / "cache", serving.process.pid, seconds=0.5, warm=0.1)
    assert min(seen.rates) > 0
    assert seen.server_cpu_seconds > 0
    assert seen.server_cpu_ms_per_sample > 0


def test_a_job_that_cannot_start_is_said_why(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="no such file or folder"):
        watch([Reader(Job("own"), tmp_path / "none", "-")], tmp_path / "cache", None, seconds=0.1)


def test_a_job_measures_how_it_is_handed_batches(setting: Setting, tmp_path: Path) -> None:
    folder = named(setting.pictures, tmp_path / "named", 8)
    with node(setting.cache, memory="1GB") as serving:
        told = handover._attached(setting.cache, str(folder), str(serving.socket), "4", "5", "2")
    interpreter = handover._attached(setting.cache)["memory_kb"]
    assert told["batch_bytes"] == 4 * 3 * 224 * 224 * 4
    assert len(told["first"]) > 0
    assert len(told["within"]) > 0
    found = handover.beyond(told["memory_kb"], interpreter)
    assert found["views_mb"] > 0
    assert 0 < found["private_mb"] < 100


def test_jobs_of_a_kind_see_all_samples_once(setting: Setting) -> None:
    with node(setting.cache, memory="1GB") as serving:
        outcome = run(setting.folder, setting.cache, [Job("shared", 4, epochs=2)] * 2, serving)
    assert [job["samples"] for job in outcome.jobs] == [12, 12]
    assert outcome.samples_per_second > 0
