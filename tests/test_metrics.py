"""The numbers of a loader over HTTP: read by a real client, parsed by Prometheus' own parser."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import re
import socket as sockets
import subprocess
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import HANG_SECONDS, natural, save
from nodes import N, ids_of, make
from prometheus_client.parser import text_string_to_metric_families
from test_fork import forked

import feedline as fl
from feedline import ops, testing

FREE = "127.0.0.1:0"
ROOT = Path(__file__).parent.parent


def numbers(n: int = 40, **options: Any) -> fl.Loader:
    """A loader of ``n`` numbers that serves its own."""
    options = {"batch_size": 4, "num_workers": 2, "metrics": FREE} | options
    return fl.Loader(fl.array(np.arange(n, dtype=np.int64)), **options)


def get(address: str | None, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=HANG_SECONDS) as answer:
        return str(answer.read().decode())


def scrape(address: str | None) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by name and labels, as Prometheus would store them, without the labels that all have."""
    stored: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(get(address)):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge"), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            labels = {name: value for name, value in sample.labels.items() if name not in ("plan", "rank")}
            assert len(sample.labels) == len(labels) + 2, "every series says of which plan and rank it is"
            of_name = stored.setdefault(sample.name, {})
            assert tuple(labels.items()) not in of_name, "no series comes twice"
            of_name[tuple(labels.items())] = sample.value
    return stored


def value(address: str | None, name: str) -> float:
    """The value of a metric without further labels."""
    return scrape(address)[f"feedline_loader_{name}"][()]


def is_listening(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with contextlib.closing(sockets.socket()) as socket:
        socket.settimeout(5)
        return socket.connect_ex((host, int(port))) == 0


def can_be_bound(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with contextlib.closing(sockets.socket()) as socket:
        socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            socket.bind((host, int(port)))
            socket.listen()
        except OSError:
            return False
        return True


def servers() -> int:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text())
    return sum(name.startswith("feedline-http") for name in names)


@pytest.fixture(autouse=True)
def no_server_is_left(wait_until: Callable[..., None]) -> Iterator[None]:
    yield
    gc.collect()
    wait_until(lambda: servers() == 0, "no thread is left that serves")


def test_the_counters_are_what_was_delivered() -> None:
    source = fl.synthetic(50, (16, 16, 3))
    chain = [ops.RandomCrop(12, on="data"), ops.RandomCrop(8, on="data")]
    with fl.Loader(source, chain, batch_size=8, shuffle=True, metrics=FREE) as loader:
        assert value(loader.metrics_address, "samples_total") == 0
        batches = [batch for _ in range(2) for batch in loader]
        found, snapshot = scrape(loader.metrics_address), loader.snapshot()
    plain = {name.removeprefix("feedline_loader_"): values.get(()) for name, values in found.items()}
    assert plain["samples_total"] == sum(len(batch["index"]) for batch in batches) == 100
    assert plain["batches_total"] == len(batches)
    assert plain["delivered_bytes_total"] == sum(array.nbytes for batch in batches for array in batch.values())
    assert plain["epoch"] == 2
    assert plain["substituted_samples_total"] == 0
    assert plain["memory_limit_bytes"] == snapshot["memory"]["budget_bytes"]
    assert plain["loaded_samples_total"] >= 100
    assert plain["loading_busy_seconds_total"] > 0
    done = found["feedline_loader_op_samples_total"]
    assert list(done) == [(("op", "RandomCrop"), ("number", str(number))) for number in range(2)]
    assert min(done.values()) >= 100, "each of two ops of one name is counted"
    assert min(found["feedline_loader_op_busy_seconds_total"].values()) > 0
    causes = {dict(labels)["cause"] for labels in found["feedline_loader_stall_seconds_total"]}
    assert causes == set(snapshot["stall_seconds"]) == {"start", "read", "prepare", "memory"}


def test_the_pages_are_the_snapshot_health_and_nothing_else(wait_until: Callable[..., None]) -> None:
    with numbers() as loader:
        list(loader)
        address = loader.metrics_address

        def is_snapshot() -> bool:
            stats, snapshot = json.loads(get(address, "/stats")), loader.snapshot()
            return {name: stats[name] for name in snapshot} == snapshot

        wait_until(is_snapshot, "the next epoch is prepared as far as it may be, and numbers stay")
        stats = json.loads(get(address, "/stats"))
        assert stats["plan"] == loader.plan.fingerprints["order"]
        assert (stats["rank"], stats["world_size"], stats["epoch"]) == (0, 1, 1)
        assert get(address, "/health") == "serving\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(address, "/")


def test_a_scrape_while_training_changes_nothing_and_counters_only_grow() -> None:
    plain = [batch["index"].tolist() for batch in numbers(2000, shuffle=True, metrics=None)]
    loader = numbers(2000, shuffle=True)
    seen: list[dict[str, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            found = scrape(loader.metrics_address)
            seen.append({name: sum(of.values()) for name, of in found.items() if name.endswith("_total")})

    watchers = [threading.Thread(target=watch) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    found = []
    for batch in loader:
        found.append(batch["index"].tolist())
        # At least one scrape happens during the epoch.
        while len(found) == 100 and len(seen) < 3:
            time.sleep(0.001)
    done.set()
    for watcher in watchers:
        watcher.join()
    assert found == plain
    after = scrape(loader.metrics_address)
    for name, values in after.items():
        if name.endswith("_total"):
            assert max(before[name] for before in seen) <= sum(values.values()), name
    loader.close()


def test_costs_are_compared_with_their_predictions() -> None:
    costs_ms = [2.0, 12.0] * 20
    chain: Any = [testing.delay(costs_ms)]
    with fl.Loader(fl.synthetic(40, (4,)), chain, batch_size=4, num_workers=2, metrics=FREE) as loader:
        assert loader.snapshot()["costs"] == dict.fromkeys(loader.snapshot()["costs"], 0)
        for _ in range(2):
            list(loader)
        known = loader.snapshot()["costs"]
        for _ in range(3):
            list(loader)
        costs, found = loader.snapshot()["costs"], scrape(loader.metrics_address)
    assert 40 < known["samples"] < costs["samples"]
    taken = costs["taken_seconds"] - known["taken_seconds"]
    assert taken / (costs["samples"] - known["samples"]) > 0.006, "the mean of the delays is 7 ms"
    error = (costs["error_seconds"] - known["error_seconds"]) / taken
    # Predictions by the mean alone would be wrong by 5 of 7 ms.
    assert error < 0.5, "what a sample took before is what it is expected to take"
    assert costs["prediction_error"] == pytest.approx(costs["error_seconds"] / costs["taken_seconds"])
    assert found["feedline_loader_cost_compared_samples_total"][()] >= costs["samples"]
    assert found["feedline_loader_cost_error_seconds_total"][()] >= costs["error_seconds"]


def test_bad_samples_and_the_queue_are_counted(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    paths = [save(tmp_path / f"{number}.png", natural(8, 8)) for number in range(30)]
    paths[3].write_bytes(b"nothing")
    loader = fl.Loader(
        fl.files({"image": paths}), [ops.DecodeImage()], batch_size=2, on_error=fl.substitute(0.1), metrics=FREE,
        tuning=fl.tuning(prefetch_batches=3),
    )  # fmt: skip
    for _ in zip(loader, range(5), strict=False):
        pass
    assert value(loader.metrics_address, "substituted_samples_total") == 1
    iterator = iter(loader)
    next(iterator)
    wait_until(lambda: value(loader.metrics_address, "queue_ready_batches") == 3, "three batches are ready")
    assert value(loader.metrics_address, "queue_limit_batches") == 3
    loader.close()


def end_with(loader: list[fl.Loader]) -> None:
    with loader[0]:
        next(iter(loader[0]))


@pytest.mark.parametrize(
    "end",
    [lambda loader: loader[0].close(), end_with, lambda loader: loader.clear()],
    ids=["close", "with", "del"],
)
def test_the_server_ends_with_the_loader_and_frees_its_port(end: Callable[[list[fl.Loader]], None]) -> None:
    held = [numbers()]
    address = held[0].metrics_address
    assert address is not None
    assert get(address, "/health")
    # A silent client is disconnected after five seconds. Closing takes milliseconds and does not wait for that.
    # The collector is not timed: beside torch it takes a second on a busy machine.
    with contextlib.closing(sockets.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])))):
        began = time.monotonic()
        end(held)
        assert time.monotonic() - began < 4.5
        gc.collect()
    assert not is_listening(address)
    assert can_be_bound(address)
    if held:
        assert held[0].metrics_address is None
        held[0].close()
    again = numbers(metrics=address)
    assert again.metrics_address == address
    again.close()


def test_a_process_that_serves_exits_cleanly(start_python: Callable[..., subprocess.Popen[str]]) -> None:
    code = """
import feedline as fl
loader = fl.Loader(fl.synthetic(10**6, (64, 64, 3)), batch_size=8, metrics="localhost:0")
it = iter(loader)
next(it)
print(loader.metrics_address)
input()
"""
    process = start_python(code, stdin=subprocess.PIPE)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("127.0.0.1:"), process.communicate()[1]
    assert "feedline_loader_samples_total" in get(address)
    began = time.monotonic()
    _, err = process.communicate("\n", timeout=HANG_SECONDS)
    assert time.monotonic() - began < HANG_SECONDS
    assert (process.returncode, err) == (0, "")
    assert not is_listening(address)


def test_nothing_listens_unless_it_is_asked_for() -> None:
    loader = numbers(metrics=None)
    list(loader)
    assert loader.metrics_address is None
    assert servers() == 0
    loader.close()


def test_an_address_in_use_is_refused_with_what_to_do() -> None:
    first = numbers()
    with pytest.raises(fl.MetricsError, match="is in use by another loader or process; give each loader") as caught:
        numbers(metrics=first.metrics_address)
    assert isinstance(caught.value, OSError)
    assert "loader.metrics_address" in str(caught.value)
    assert len(list(first)) == 10, "the first is none the worse for it"
    first.close()


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:99999", "127.0.0.1", ":9400", "", "http://127.0.0.1:9400", 9400, True]
)
def test_invalid_addresses_are_refused_at_once(address: Any) -> None:
    with pytest.raises(fl.PlanError, match=r"metrics is .*127\.0\.0\.1:9400"):
        numbers(metrics=address)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(fl.MetricsError, match=r"cannot listen on 192\.0\.2\.1:0 for HTTP: "):
        numbers(metrics="192.0.2.1:0")


def test_an_address_for_others_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="feedline"), numbers(metrics="0.0.0.0:0") as loader:
        list(loader)
        port = str(loader.metrics_address).rsplit(":", 1)[1]
        assert value(f"127.0.0.1:{port}", "samples_total") == 40
    said = [record.getMessage() for record in caplog.records if "serves metrics" in record.getMessage()]
    assert len(said) == 1
    assert f"0.0.0.0:{port}" in said[0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_forked_child_neither_serves_nor_keeps_the_port(is_used: bool) -> None:
    loader = numbers()
    address = str(loader.metrics_address)
    if is_used:
        next(iter(loader))

    def child() -> Any:
        said = []
        for use in (lambda: list(loader), lambda: loader.snapshot()):
            try:
                use()
            except fl.ForkError as error:
                said.append(str(error))
        loader.close()
        with numbers() as own:
            return [len(said), loader.metrics_address, value(own.metrics_address, "samples_total"), len(list(own))]

    assert forked(child) == [2, None, 0, 10]
    assert value(address, "samples_total") == (4 if is_used else 0)
    # A child that outlives the parent's loader.
    (begun, begin), (ended, end) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        os.close(end)
        os.write(begin, b"!")
        os.read(ended, 1)
        os._exit(0)
    try:
        assert os.read(begun, 1) == b"!"
        loader.close()
        assert not is_listening(address), "the child does not keep the socket"
        assert can_be_bound(address)
    finally:
        for descriptor in (begun, begin, ended, end):
            os.close(descriptor)
        os.waitpid(process, 0)


def test_a_shared_loader_and_a_rank_serve_their_own_numbers(socket: Path, node: subprocess.Popen[str]) -> None:
    with make(share=socket, metrics=FREE) as shared:
        read = ids_of(shared)
        assert value(shared.metrics_address, "samples_total") == len(read) == N
        assert sum(scrape(shared.metrics_address)["feedline_loader_stall_seconds_total"].values()) >= 0
    ranks = [make(rank=rank, world_size=2, share=share, metrics=FREE) for rank in range(2) for share in (False, socket)]
    for number, loader in enumerate(ranks):
        assert len(ids_of(loader)) == N // 2
        text = get(loader.metrics_address)
        plan = loader.plan.fingerprints["order"]
        assert f'feedline_loader_samples_total{{plan="{plan}",rank="{number // 2}"}} {N // 2}\n' in text
        assert 'world_size="2"' in text
    assert len({loader.plan.fingerprints["order"] for loader in ranks}) == 1, "ranks of one job are one plan"
    for loader in ranks:
        loader.close()


def test_a_reopened_loader_takes_the_address_over(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / f"{number}.png", natural(8, 8))
    loader = fl.Loader.from_plan(fl.Loader(fl.folder(tmp_path), [ops.DecodeImage()], batch_size=2).plan, metrics=FREE)
    address = loader.metrics_address
    save(tmp_path / "4.png", natural(8, 8))
    fresh = loader.reopen()
    assert (fresh.metrics_address, loader.metrics_address) == (address, None)
    assert len(list(fresh)) == 3
    assert value(address, "samples_total") == 5
    for one in (loader, fresh):
        one.close()


def test_every_metric_that_the_dashboard_asks_for_is_served() -> None:
    dashboard = json.loads((ROOT / "docs/grafana/feedline.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    names = {name for query in asked for name in re.findall(r"\bfeedline_\w+", query)}
    assert len(names) > 15
    with numbers() as loader:
        list(loader)
        assert names <= names_of(loader)


def test_the_guide_lists_every_metric_and_no_other(tmp_path: Path) -> None:
    guide = (ROOT / "docs/how-to/monitoring.md").read_text()
    listed = set(re.findall(r"^\| `(feedline_loader_\w+)", guide, flags=re.MULTILINE))
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        for number in range(4):
            member = tarfile.TarInfo(f"{number}.cls")
            member.size = 1
            shard.addfile(member, io.BytesIO(b"1"))
    source, reservoir = fl.tar(str(tmp_path / "0.tar")), fl.reservoir(2)
    with fl.Loader(source, batch_size=2, shuffle=reservoir, metrics=FREE) as loader:
        list(loader)
        assert listed == names_of(loader)


def names_of(loader: fl.Loader) -> set[str]:
    found = text_string_to_metric_families(get(loader.metrics_address))
    return {family.name + "_total" * (family.type == "counter") for family in found}
