"""The ranks of a job, fed by one node. Each gets the stream of a private loader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import folder_of
from nodes import WAIT, kill, look

import feedline as fl
from feedline import ops

# All tests of this file use one node.
pytestmark = pytest.mark.usefixtures("nothing_left", "node")

N = 250


def make(rank: int, world_size: int, **options: Any) -> fl.Loader:
    chain = [ops.RandomCrop(8, on="data")]
    options = {"batch_size": 16, "shuffle": True, "seed": 3, **options}
    return fl.Loader(fl.synthetic(N, (24, 24, 3)), chain, rank=rank, world_size=world_size, **options)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("world", "options"),
    [
        (2, {}),
        (3, {"fields": ("key", "data", "padded")}),
        (2, {"shuffle": False, "drop_last": True}),
        (2, {"sampler": list(range(0, N, 2)), "shuffle": False}),
    ],
)
def test_law_3_ranks_get_the_stream_of_loaders_of_their_own_with_one_run(
    socket: Path, world: int, options: dict[str, Any]
) -> None:
    shared = [make(rank, world, share=str(socket), **options) for rank in range(world)]
    own = [make(rank, world, **options) for rank in range(world)]
    seen: list[np.ndarray[Any, Any]] = []
    for _ in range(2):
        for batches in zip(*shared, *own, strict=True):
            for one, other in zip(batches[:world], batches[world:], strict=True):
                ours, theirs = (dict(enumerate(b)) if isinstance(b, tuple) else b for b in (one, other))
                assert same(ours, theirs)
                seen.extend(ours.get("index", ()))
        assert [loader.state_dict() for loader in shared] == [loader.state_dict() for loader in own]
    if not options:
        assert set(map(int, seen)) == set(range(N))
    (run,) = look(socket)["runs"]
    assert (run["jobs"], run["world_size"]) == (world, world)
    assert run["produced_samples"] >= sum(len(range(rank, run["samples"], world)) for rank in range(world)) // 2
    for loader in shared:
        loader.close()


def test_law_4_a_state_is_that_of_a_private_loader_and_goes_on_with_or_without_a_node(socket: Path) -> None:
    with make(1, 2) as whole:
        wanted = [batch["index"].tolist() for batch in whole] + [batch["index"].tolist() for batch in whole]
    with make(1, 2, share=str(socket)) as first:
        begun = iter(first)
        got = [next(begun)["index"].tolist() for _ in range(3)]
        state = first.state_dict()
    with make(1, 2) as second:
        second.load_state_dict(state)
        begun = iter(second)
        got += [next(begun)["index"].tolist() for _ in range(2)]
        state = second.state_dict()
    with make(1, 2, share=str(socket)) as third:
        third.load_state_dict(state)
        got += [batch["index"].tolist() for batch in third]
        got += [batch["index"].tolist() for batch in third]
        assert got == wanted
        third.set_epoch(7)
        with make(1, 2) as other:
            other.set_epoch(7)
            assert next(iter(third))["index"].tolist() == next(iter(other))["index"].tolist()


@pytest.mark.parametrize("on_loss", ["continue", "raise"])
def test_law_7_a_node_that_is_killed_costs_no_batch_or_gives_an_error(
    socket: Path, node: subprocess.Popen[str], on_loss: Any
) -> None:
    with make(0, 2) as own, make(0, 2, share=fl.share(socket, on_loss=on_loss)) as loader:
        wanted, given = iter(own), iter(loader)
        for _ in range(2):
            assert same(next(given), next(wanted))
        kill(node)
        if on_loss == "raise":
            with pytest.raises(fl.NodeError, match="is gone"):
                list(given)
        else:
            for one, other in zip(given, wanted, strict=True):
                assert same(one, other)
            assert all(same(one, other) for one, other in zip(loader, own, strict=True))


def test_law_5_batches_that_a_rank_keeps_stay_as_they_are_and_hold_nobody_up(socket: Path) -> None:
    with make(0, 2) as own, make(0, 2, share=str(socket)) as loader:
        kept = [batch for _ in range(4) for batch in loader]
        wanted = [batch for _ in range(4) for batch in own]
        kept[0]["data"][...] = 0
        assert len(kept) == len(wanted)
        assert all(same(one, other) for one, other in zip(kept[1:], wanted[1:], strict=True))


def test_law_6_a_bad_sample_is_the_error_of_a_private_loader(tmp_path: Path, socket: Path) -> None:
    pictures = tmp_path / "pictures"
    folder_of(pictures, 20)
    (pictures / "zz.jpg").write_bytes(b"\xff\xd8 not a picture")
    chain = [ops.DecodeImage(), ops.Resize((8, 8))]

    def loader(**options: Any) -> fl.Loader:
        options = {"batch_size": 4, "shuffle": True, "rank": 0, "world_size": 2, "share": str(socket), **options}
        return fl.Loader(fl.folder(pictures), chain, **options)

    with loader() as even, loader(rank=1) as odd:
        failures = 0
        for one in (even, odd):
            try:
                list(one)
            except fl.SampleError as error:
                failures += "zz.jpg" in str(error)
        assert failures == 1
    with loader(on_error=fl.substitute(0.2)) as even, loader(rank=1, on_error=fl.substitute(0.2)) as odd:
        for one in (even, odd):
            list(one)
        assert even.snapshot()["substituted"] + odd.snapshot()["substituted"] == 1


def test_torch_ranks_in_processes_of_their_own_each_get_their_share(socket: Path) -> None:
    code = """
import json, sys
import feedline as fl
from feedline import ops
loader = fl.Loader(fl.synthetic(250, (24, 24, 3)), [ops.RandomCrop(8, on="data")], batch_size=16, shuffle=True, seed=3,
                   share=sys.argv[1], framework="torch")
ids = [int(i) for batch in loader for i, p in zip(batch["index"], batch["padded"]) if not p]
print(json.dumps(ids))
"""
    processes = []
    for rank in range(3):
        environment = {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-c", code, str(socket)]
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        )
    found = [json.loads(process.communicate(timeout=WAIT)[0]) for process in processes]
    assert sorted(index for ids in found for index in ids) == list(range(N))
