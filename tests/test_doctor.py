"""The doctor: verdicts on jobs with one clear bottleneck, and its errors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import testing

FOUR_WORKERS = [1040, 43, 89, 29, 1025, 37, 23, 90, 1053, 31, 21]


def waiting(ms: float, **options: Any) -> fl.Loader:
    options = {"batch_size": 4, "num_workers": 2, **options}
    return fl.Loader(fl.synthetic(256, (16,)), [testing.delay(ms)], **options)


def test_a_slow_step_is_the_bound_and_the_step_gets_the_loaders_own_batches() -> None:
    seen: list[Any] = []

    def step(batch: Any) -> None:
        seen.append(batch)
        time.sleep(0.05)

    with waiting(1.0) as loader:
        found = fl.doctor(loader, step, seconds=1.5)
        assert found.bound == "step"
        assert found.stall_share < 0.2
        assert isinstance(seen[0]["data"], np.ndarray)
        assert seen[0]["data"].shape == (4, 16)
        # The doctor does not advance the loader.
        assert next(iter(loader))["index"].tolist() == [0, 1, 2, 3]
    assert not any(remedy["change"] == "workers" for remedy in found.remedies)


def test_slow_ops_are_the_bound_and_more_threads_are_proposed_with_their_gain() -> None:
    with waiting(40.0) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=1.5)
    assert found.bound == "prepare"
    assert found.stall_share > 0.8
    assert found.predicted_samples_per_second == pytest.approx(2 / 0.040, rel=0.25)
    workers = next(remedy for remedy in found.remedies if remedy["change"] == "workers")
    assert workers["num_workers"] > 2
    assert workers["predicted_gain"] > 0.5
    told = str(found)
    assert "preparing" in told
    assert "Delay" in told
    data = found.to_dict()
    assert data["parts"]["ops"][0]["op"] == "Delay"
    assert len(data["batch_log"]) == data["log"]["batches"] > 0
    json.dumps(data)


def test_an_op_in_python_that_computes_is_named() -> None:
    def spin(value: Any) -> Any:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return value

    source = fl.synthetic(256, (16,))
    with fl.Loader(source, [fl.ops.Map(spin, on="data", deterministic=True)], batch_size=4, num_workers=2) as loader:
        found = fl.doctor(loader, seconds=1.5)
    assert found.bound == "python"
    assert any(remedy["change"] == "native" for remedy in found.remedies)


def test_a_page_and_a_trace_are_written(tmp_path: Path) -> None:
    with waiting(5.0) as loader:
        found = fl.doctor(loader, lambda _: time.sleep(0.005), seconds=1.0, tables=True)
    data = found.to_dict()
    assert {cost["format"] for cost in data["formats"]} == {"tensor", "jpeg", "png", "webp"}
    assert [row["consumers"] for row in data["consumers"]] == [1, 2, 4, 8]
    found.save_html(tmp_path / "doctor.html")
    page = (tmp_path / "doctor.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http://" not in page
    assert "https://" not in page
    found.save_trace(tmp_path / "life.json")
    events = json.loads((tmp_path / "life.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"read", "Delay", "slot", "wait", "step", "hand-over"} <= {span["name"] for span in spans}
    delays = [span for span in spans if span["name"] == "Delay"]
    assert all(span["dur"] >= 4900 for span in delays), "microseconds"
    assert all("sample" in span["args"] for span in delays)
    for thread in {span["tid"] for span in delays}:
        mine = sorted((span["ts"], span["dur"]) for span in delays if span["tid"] == thread)
        ends = [begin + length for begin, length in mine]
        later = [begin for begin, _ in mine[1:]]
        assert all(end <= begin + 1 for end, begin in zip(ends, later, strict=False)), "one sample at a time"


def test_jobs_that_cannot_be_examined_are_refused_with_a_reason() -> None:
    def broken(_: Any) -> None:
        raise ValueError("the loss is NaN")

    with waiting(1.0) as loader:
        with pytest.raises(fl.FeedlineError, match="the step raised ValueError: the loss is NaN") as raised:
            fl.doctor(loader, broken, seconds=0.5)
        assert isinstance(raised.value.__cause__, ValueError)
        with pytest.raises(fl.PlanError, match="step is 3"):
            fl.doctor(loader, 3)  # type: ignore[arg-type]
        with pytest.raises(fl.PlanError, match="seconds is 0"):
            fl.doctor(loader, seconds=0)
    with pytest.raises(fl.ClosedError, match="closed"):
        fl.doctor(loader)
    with waiting(1.0, batch_size=512, drop_last=True) as empty, pytest.raises(fl.FeedlineError, match="no batches"):
        fl.doctor(empty, seconds=0.5)


def test_a_plan_without_ops_and_one_of_a_single_batch_are_examined() -> None:
    with fl.Loader(fl.synthetic(64, (16,)), batch_size=8) as plain:
        assert fl.doctor(plain, lambda _: time.sleep(0.02), seconds=0.7).bound == "step"
    with fl.Loader(fl.synthetic(4, (16,)), [testing.delay(1.0)], batch_size=4) as single:
        found = fl.doctor(single, lambda _: time.sleep(0.3), seconds=0.7)
    assert found.bound == "step"
    assert "Only" in str(found), "so few batches say little"


def test_a_run_is_reported_from_what_is_always_counted() -> None:
    with waiting(20.0) as loader:
        assert "No batch" in str(loader.report())
        for _ in loader:
            pass
        report = loader.report()
    assert report.bound == "prepare"
    assert report.stall_share > 0.8
    assert report.to_dict()["log"]["batches"] > 40
    with waiting(0.5) as quick:
        for _ in quick:
            time.sleep(0.02)
        assert quick.report().bound == "step"


def test_the_log_of_a_foreign_loader_with_four_workers_is_recognised() -> None:
    def batches() -> Any:
        for ms in FOUR_WORKERS:
            time.sleep(ms / 5e3)
            yield np.zeros((8, 2))

    watched = fl.wrap(batches(), step=lambda _: None)
    report = watched.run()
    period = next(anomaly for anomaly in report.anomalies if anomaly["kind"] == "period")
    assert period["batches"] == 4
    assert report.bound == "prepare"
    assert "The bottleneck is the workers" in str(report)


def test_a_torch_loader_whose_workers_are_slow_has_their_number_as_period() -> None:
    torch = pytest.importorskip("torch")

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 256

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.05)
            return torch.zeros(4)

    loader = torch.utils.data.DataLoader(Slow(), batch_size=8, num_workers=4)
    watched = fl.wrap(loader)
    for _ in watched:
        time.sleep(0.001)
    report = watched.report()
    periods = [anomaly["batches"] for anomaly in report.anomalies if anomaly["kind"] == "period"]
    assert periods == [4]
    assert report.bound == "prepare"


def test_a_foreign_loader_that_keeps_up_leaves_the_step_as_the_bound() -> None:
    watched = fl.wrap([np.zeros((4, 2))] * 30)
    for _ in watched:
        time.sleep(0.01)
    report = watched.report()
    assert report.bound == "step"
    assert report.measured_samples_per_second == pytest.approx(400, rel=0.5)
    with pytest.raises(fl.PlanError, match="needs the step"):
        watched.run()


def computing(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(("load", "bound"), [(computing, "prepare"), (time.sleep, "read")])
def test_a_foreign_loader_that_computes_is_told_from_one_that_waits(load: Callable[[float], None], bound: str) -> None:
    def batches() -> Any:
        for number in range(1000):
            load(0.010 + 0.002 * (number % 3))
            yield np.zeros((4, 2))

    report = fl.wrap(batches(), step=lambda _: computing(0.004)).run(seconds=1.0)
    assert report.bound == bound


@contextlib.contextmanager
def others(loop: str) -> Iterator[None]:
    """Run two other processes per core, each repeating ``loop``."""
    # They end on their own if the test does not end them.
    code = f"import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end:\n    {loop}"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for other in started:
            other.kill()
            other.wait(timeout=60)


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Other processes that compute all the time."""
    with others("pass"):
        yield


@pytest.fixture
def restless_machine() -> Iterator[None]:
    """Other processes that all compute for half a second, then all sleep for half a second."""
    with others("time.sleep(0.01) if time.time() % 1.0 > 0.5 else None"):
        yield


@pytest.mark.busy
@pytest.mark.usefixtures("busy_machine")
def test_cores_of_other_processes_are_reported_and_not_counted_as_a_gain() -> None:
    workers = len(os.sched_getaffinity(0))
    ops = [testing.delay(4.0, kind="cpu")]
    with fl.Loader(fl.synthetic(256, (16,)), ops, batch_size=4, num_workers=workers) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=3.0)
        snapshot = loader.snapshot()
    assert found.bound == "prepare"
    assert "ms of CPU time per sample" in str(found), "if cores are contended, CPU time decides"
    parts = found.to_dict()["parts"]
    assert parts["core_wait_ms"] > 0.3 * parts["prepare_cpu_ms"]
    assert parts["free_cores"] < 0.8 * parts["cores"]
    assert "Other processes use this machine" in str(found)
    gains = [remedy["predicted_gain"] for remedy in found.remedies if remedy["change"] == "workers"]
    assert all(gain < 0.5 for gain in gains), "what others take is not promised"
    assert snapshot["core_wait_seconds"] == 0, "the loader itself has not run"


@pytest.mark.busy
@pytest.mark.usefixtures("restless_machine")
def test_a_share_of_cores_that_varies_gives_a_range_and_no_doubtful_remedy() -> None:
    workers = len(os.sched_getaffinity(0))
    chain = [testing.delay(4.0, kind="cpu")]
    with fl.Loader(fl.synthetic(256, (16,)), chain, batch_size=4, num_workers=workers) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=6.0)
    low, high = found.predicted_range
    assert low < found.predicted_samples_per_second < high
    assert f"{low:.1f} to {high:.1f} were predicted" in str(found)
    gains = [
        (remedy["predicted_gain"], remedy["error_band"]) for remedy in found.remedies if remedy["change"] != "share"
    ]
    assert all(gain >= band > 0 for gain, band in gains), "a gain within the error is none"


def cores_of_others(seconds: float = 0.5) -> float:
    """Give how many cores other processes use now."""

    def busy() -> float:
        user, nice, system, _idle, _waits, irq, softirq, steal = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return everybody - time.process_time()

    before, began = busy(), time.monotonic()
    time.sleep(seconds)
    return (busy() - before) / (time.monotonic() - began)


@pytest.mark.busy
def test_threads_that_wait_for_each_other_do_not_count_as_other_processes() -> None:
    cores = len(os.sched_getaffinity(0))
    if cores_of_others() > 0.1 * cores:
        pytest.skip("other processes compute on this machine, and are told as such")
    cheap = [testing.delay(0.05, kind="cpu")]
    with fl.Loader(fl.synthetic(4096, (64,)), cheap, batch_size=64, num_workers=2 * cores) as loader:
        found = fl.doctor(loader, lambda _: None, seconds=2.0)
    parts = found.to_dict()["parts"]
    assert parts["core_wait_ms"] > 0.2 * parts["prepare_cpu_ms"], "they wait"
    assert parts["free_cores"] > 0.6 * parts["cores"], "but for the consumer, nobody else is there"


@pytest.mark.busy
@pytest.mark.usefixtures("busy_machine")
def test_a_foreign_loader_that_computes_on_a_busy_machine_does_not_wait() -> None:
    def batches() -> Any:
        for _ in range(1000):
            computing(0.010)
            yield np.zeros((4, 2))

    assert fl.wrap(batches(), step=lambda _: computing(0.002)).run(seconds=2.0).bound == "prepare"


class Working:
    """A dataset of torch whose samples compute, or sleep, for a given time."""

    def __init__(self, compute: float, wait: float) -> None:
        self.compute, self.wait = compute, wait

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Any:
        computing(self.compute)
        time.sleep(self.wait)
        return np.zeros(4, np.float32)


@pytest.mark.busy
@pytest.mark.usefixtures("busy_machine")
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("compute", "wait"), [(0.004, 0.0), (0.0, 0.06)])
def test_worker_processes_that_wait_for_a_core_do_not_wait_for_storage(
    compute: float, wait: float, persistent: bool
) -> None:
    import torch.utils.data

    loader = torch.utils.data.DataLoader(
        Working(compute, wait),  # type: ignore[arg-type]
        batch_size=4,
        num_workers=2,
        persistent_workers=persistent,
    )
    watched = fl.wrap(loader, step=lambda _: None)
    report = watched.run(seconds=4.0)
    assert report.stall_share > 0.5
    computed = watched._children and watched._children.computing(2)
    assert computed is not None
    assert computed > 0.7 if compute else computed < 0.5
    # Workers that take turns are the bottleneck, whatever they wait for. Sleeping workers read nothing.
    has_period = any(anomaly["kind"] == "period" for anomaly in report.anomalies)
    assert report.bound == ("prepare" if compute or has_period else "unknown"), str(report)


@pytest.mark.busy
def test_a_foreign_loader_whose_workers_cannot_be_seen_is_not_judged() -> None:
    class Distant(list[Any]):
        num_workers = 2

        def __iter__(self) -> Iterator[Any]:
            for batch in list.__iter__(self):
                time.sleep(0.02)
                yield batch

    report = fl.wrap(Distant([np.zeros((4, 2))] * 40), step=lambda _: None).run()
    assert report.bound == "unknown"
    assert "from outside it is not visible" in str(report)


def test_the_loaders_own_files_stay_as_they_are(tmp_path: Path, own_cache: Path) -> None:
    log = tmp_path / "arrivals"
    with waiting(2.0, order=fl.arrival(log=log)) as loader:
        for _ in loader:
            pass
        kept, costs = log.read_bytes(), sorted((own_cache / "costs").glob("*"))
        before = [path.read_bytes() for path in costs]
        fl.doctor(loader, seconds=1.0)
        assert log.read_bytes() == kept
        assert sorted((own_cache / "costs").glob("*")) == costs
        assert [path.read_bytes() for path in costs] == before


def test_a_report_of_a_loop_that_is_left_early_has_no_pause_in_it() -> None:
    with waiting(1.0) as loader:
        for _ in range(3):
            for number, _ in enumerate(loader):
                if number == 5:
                    break
            time.sleep(0.3)
        steps = loader.report().to_dict()["log"]["step_ms"]
    assert steps["most"] < 200


def test_the_command_says_the_same_as_data(tmp_path: Path) -> None:
    with waiting(20.0) as loader:
        (tmp_path / "plan.toml").write_text(loader.plan.to_toml())
    command = [sys.executable, "-m", "feedline", "--json", "doctor", str(tmp_path / "plan.toml")]
    command += ["--step-ms", "5", "--seconds", "1.5", "--try", "workers", "--html", str(tmp_path / "page.html")]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(told.stdout)
    assert found["bound"] == "prepare"
    for name in ("predicted_samples_per_second", "measured_samples_per_second", "stall_share", "remedies"):
        assert name in found
    assert told.stderr.index("predicted") < told.stderr.index("all together"), "said before the joint run"
    assert [row["consumers"] for row in found["consumers"]] == [1, 2, 4, 8]
    assert {row["format"] for row in found["formats"]} == {"tensor", "jpeg", "png", "webp"}
    assert found["workers"][0]["num_workers"] == 1
    (tried,) = found["tried"]
    assert tried["measured_samples_per_second"] > 1.3 * found["measured_samples_per_second"]
    assert (tmp_path / "page.html").exists()


def test_the_command_refuses_what_it_does_not_understand(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    with waiting(1.0) as loader:
        plan.write_text(loader.plan.to_toml())
    command = [sys.executable, "-m", "feedline", "doctor", str(plan), "--quick", "--seconds", "0.5"]
    wrong = subprocess.run([*command, "--try", "magic"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "nothing to try" in wrong.stderr
    assert subprocess.run([*command[:-1], "never"], capture_output=True, check=False).returncode == 2
    missing = subprocess.run([*command[:4], "none.toml"], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "none.toml" in missing.stderr
    assert "Traceback" not in missing.stderr
