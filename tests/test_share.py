"""Jobs that share: real processes and a real node, killed at random moments."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import HANG_SECONDS, folder_of
from nodes import WAIT, Job, N, check_once, ids_of, kill, make, processes_with, serving, start_node

import feedline as fl
from feedline import ops

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_law_2_jobs_of_other_speed_start_and_batch_size_see_all_samples_once_an_epoch(
    socket: Path, node: subprocess.Popen[str]
) -> None:
    jobs = []
    for batch, pause in ((32, 0.0), (48, 0.002), (100, 0.01), (7, 0.001)):
        jobs.append(Job(socket, batch, pause, epochs=4))
        time.sleep(0.05)
    for job in jobs:
        epochs = job.epochs()
        assert len(epochs) == 4
        for epoch in epochs:
            check_once(epoch)


def test_law_7_jobs_that_are_killed_while_they_hold_samples_harm_nobody(
    socket: Path, node: subprocess.Popen[str]
) -> None:
    stays = Job(socket, pause=0.005, epochs=6)
    stays.wait_for("ready")
    for _ in range(3):
        victim = Job(socket, pause=0.02, epochs=100)
        victim.wait_for("batch")
        kill(victim.process)
    for epoch in stays.epochs():
        check_once(epoch)


def test_law_7_when_the_node_is_killed_jobs_go_on_alone_and_lose_nothing(socket: Path) -> None:
    node = start_node(socket)
    job = Job(socket, pause=0.01, epochs=3, lost="continue")
    for _ in range(5):
        job.wait_for("batch")
    kill(node)
    for epoch in job.epochs():
        check_once(epoch)


def test_law_7_when_the_node_is_killed_jobs_raise_if_they_are_told_to(socket: Path) -> None:
    node = start_node(socket)
    job = Job(socket, pause=0.01, epochs=100, lost="raise")
    job.wait_for("batch")
    began = time.monotonic()
    kill(node)
    _, problem = job.process.communicate(timeout=WAIT)
    assert job.process.returncode == 1
    assert "NodeError" in problem
    assert time.monotonic() - began < HANG_SECONDS


def test_a_second_node_at_a_socket_is_refused(socket: Path, node: subprocess.Popen[str]) -> None:
    command = [sys.executable, "-m", "feedline", "node", "--socket", str(socket)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert second.returncode == 1
    assert "another node listens" in second.stderr
    with make(share=str(socket)) as loader:
        check_once(ids_of(loader))


def test_in_place_changes_reach_neither_the_node_nor_other_jobs(socket: Path, node: subprocess.Popen[str]) -> None:
    with make(share=str(socket)) as first, make(share=str(socket)) as second:
        clean, changed = {}, {}
        for one, other in zip(first, second, strict=False):
            for batch in (one, other):
                for index, data in zip(batch["index"].tolist(), batch["data"].copy(), strict=False):
                    (changed if batch is one else clean)[index] = data
            one["data"][:] = 255
            one["index"][:] = -1
        assert sorted(clean) == sorted(changed) == list(range(N))
        assert all(np.array_equal(clean[index], changed[index]) for index in clean), "both had the same round"


def test_a_node_is_started_where_there_is_none_and_ends_with_its_last_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    socket = tmp_path / "own" / "node.sock"
    monkeypatch.setenv("FEEDLINE_NODE", str(socket))
    with make(share=True) as first, make(share=True, batch_size=10) as second:
        for loader in (first, second):
            check_once(ids_of(loader))
        assert socket.is_socket()
        assert socket.stat().st_mode & 0o777 == 0o600
    wait_until(lambda: not socket.parent.exists(), "the node has gone")


def test_a_node_that_a_job_starts_is_in_a_group_of_its_own_so_that_an_interrupt_spares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "own" / "node.sock"
    monkeypatch.setenv("FEEDLINE_NODE", str(socket))
    with make(share=True) as loader:
        next(iter(loader))
        (node,) = processes_with(socket)
        assert os.getpgid(node) != os.getpgrp()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shuffle": False}, "shuffle=True"),
        ({"sampler": [0, 1, 2], "shuffle": False}, "sampler"),
        ({"order": fl.planned()}, "planned"),
        ({"ragged": ["data"]}, "no fixed shape"),
    ],
)
def test_plans_that_cannot_be_shared_run_alone_with_a_reason(
    options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture, socket: Path
) -> None:
    with caplog.at_level(logging.WARNING, "feedline"), make(share=str(socket), **options) as loader:
        assert sum(len(batch["index"]) for batch in loader) in (N, 3)
    assert words in caplog.text


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_a_node_at_a_named_socket_a_loader_goes_on_alone_and_says_so_or_raises(
    socket: Path, ranks: int, caplog: pytest.LogCaptureFixture
) -> None:
    rank: dict[str, Any] = {"rank": 0, "world_size": ranks}
    with (
        make(share=fl.share(socket, on_loss="raise"), **rank) as loader,
        pytest.raises(fl.NodeError, match="no node listens"),
    ):
        next(iter(loader))
    with caplog.at_level(logging.WARNING, logger="feedline"), make(share=str(socket), **rank) as loader:
        assert len(ids_of(loader)) == N / ranks
        assert len(ids_of(loader)) == N / ranks
    said = [record for record in caplog.records if "no node listens" in record.getMessage()]
    assert len(said) == 1, "it is said once"


def test_wrong_ways_to_share_are_named() -> None:
    with pytest.raises(fl.PlanError, match="share is 3"):
        make(share=3)
    with pytest.raises(fl.PlanError, match="on_loss"):
        fl.share(on_loss="never")  # type: ignore[arg-type]
    for weight in (0, -1, float("nan"), float("inf"), True, "2"):
        with pytest.raises(fl.PlanError, match="weight"):
            fl.share(weight=weight)  # type: ignore[arg-type]


def test_states_of_loaders_that_share_and_of_others_are_not_mixed(socket: Path, node: subprocess.Popen[str]) -> None:
    with make(share=str(socket)) as shared, make() as own:
        with pytest.raises(fl.StateError, match="share"):
            own.load_state_dict(shared.state_dict())
        with pytest.raises(fl.StateError, match="share"):
            shared.load_state_dict(own.state_dict())


def test_results_of_functions_have_no_fixed_shape_and_are_not_shared(
    socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chain = [ops.Map(np.flip, on="data", deterministic=True)]
    with caplog.at_level(logging.WARNING, "feedline"):
        loader = fl.Loader(fl.synthetic(N, (4,)), chain, batch_size=8, shuffle=True, share=str(socket))
    check_once(ids_of(loader))
    assert 'field "data" has no fixed shape' in caplog.text
    loader.close()


def test_law_6_each_job_deals_with_bad_samples_as_it_was_told(tmp_path: Path, socket: Path) -> None:
    pictures = tmp_path / "pictures"
    folder_of(pictures, 40)
    (pictures / "zz.jpg").write_bytes(b"\xff\xd8 not a picture")
    with serving(socket):
        source, chain = fl.folder(pictures), [ops.DecodeImage(), ops.Resize((8, 8))]

        def loader(**options: Any) -> fl.Loader:
            return fl.Loader(source, chain, batch_size=8, shuffle=True, share=str(socket), **options)

        with loader() as strict, loader(on_error=fl.substitute(0.1)) as lenient:
            with pytest.raises(fl.SampleError, match=r"zz.jpg"):
                list(strict)
            for epoch in range(1, 3):
                ids = ids_of(lenient)
                assert len(ids) == 41
                assert 40 not in ids
                assert lenient.snapshot()["substituted"] == epoch
            assert "zz.jpg" in lenient.snapshot()["substitutes"][0]["bad"]


def test_after_an_error_a_job_goes_on_before_the_batch_that_could_not_be_delivered(
    tmp_path: Path, socket: Path
) -> None:
    pictures = tmp_path / "pictures"
    folder_of(pictures, 40)
    (pictures / "zz.jpg").write_bytes(b"\xff\xd8 not a picture")
    chain = [ops.DecodeImage(), ops.Resize((8, 8))]
    with (
        serving(socket),
        fl.Loader(fl.folder(pictures), chain, batch_size=8, shuffle=True, share=str(socket)) as loader,
    ):
        received: list[int] = []

        def receive() -> None:
            for batch in loader:
                received.extend(batch["index"].tolist())

        for _ in range(3):
            with pytest.raises(fl.SampleError, match=r"zz.jpg"):
                receive()
            assert loader.state_dict()["epoch"] == 0, "it stays before the bad sample"
        assert len(received) == len(set(received)) == loader.state_dict()["received"], "nothing comes twice"


def test_batches_larger_than_many_segments_need_no_more_memory(socket: Path) -> None:
    # A segment has 16 samples of 200 bytes: the node has room for four of them.
    with (
        serving(socket, memory="15kB"),
        make(share=str(socket), batch_size=200) as first,
        make(share=str(socket), batch_size=100) as second,
    ):
        kept = []
        for loader in (first, second, first):
            batches = list(loader)
            kept += batches
            check_once([index for batch in batches for index in batch["index"].tolist()])
        assert len(kept) == 2 + 3 + 2


def test_torch_tensors_and_keys_are_given_as_by_other_loaders(socket: Path, node: subprocess.Popen[str]) -> None:
    with make(share=str(socket), framework="torch", fields=("key", "data"), drop_last=True, batch_size=100) as loader:
        assert len(loader) == 2
        batches = list(loader)
        assert len(batches) == 2
        keys, data = batches[0]
        assert (len(keys), tuple(data.shape)) == (100, (100, 8, 8, 3))
        data += 1
        assert len(list(loader)) == 2
