"""Work near the storage: the same batches wherever work is done, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import feedline as fl
from feedline import ops

Start = Callable[..., tuple["subprocess.Popen[str]", str]]

POLICIES = ("auto", "none", "all", "resize", "fastflow", "sophon")


def double(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return image * 2


CROPS = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.RandomHorizontalFlip(), ops.Normalize()]
CHAINS = {
    "crops": CROPS,
    "approximate": [ops.DecodeImage(fast=True), ops.RandomResizedCrop(16), ops.ToTensor()],
    "whole": [ops.DecodeImage(), ops.Resize((20, 24)), ops.ColorJitter(brightness=0.4, hue=0.1), ops.ToTensor()],
    "resized": [ops.DecodeImage(), ops.Resize(20), ops.RandomCrop(16), ops.Normalize()],
    "function": [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.Map(double), ops.ToTensor()],
}


def contents(loader: fl.Loader) -> list[tuple[bytes, ...]]:
    return [tuple(array.tobytes() for array in batch.values()) for batch in loader]


def loader_over(root: str | Path, chain: str = "crops", **options: Any) -> fl.Loader:
    return fl.Loader(fl.folder(root), CHAINS[chain], **({"batch_size": 4, "shuffle": True, "seed": 5} | options))


@pytest.mark.parametrize("chain", CHAINS)
def test_law_1_every_policy_gives_the_batches_of_local_loading(
    chain: str,
    serve: Start,
    pictures: Callable[..., Path],
) -> None:
    root = pictures(24)
    _, address = serve(root.parent, "--link-mbps", "50")
    local = loader_over(root, chain)
    expected = [contents(local) for _ in range(3)]
    for policy in POLICIES:
        remote = loader_over(f"feedline://{address}/{root.name}", chain, tuning=fl.tuning(offload=policy))
        for epoch in range(3):
            assert contents(remote) == expected[epoch], (policy, epoch)
        came = remote.snapshot()["store"]["candidates"]
        assert sum(came.values()) >= 72, (policy, came)
        if policy == "all":
            last = "RandomResizedCrop" if chain == "function" else CHAINS[chain][-1].__class__.__name__
            assert list(came) == [f"after {last}"]


def test_a_server_killed_with_kill_9_under_every_policy_loses_nothing(
    serve: Start,
    pictures: Callable[..., Path],
) -> None:
    root = pictures(48)
    expected = contents(loader_over(root))
    process, address = serve(root.parent)
    for policy in POLICIES:
        loader, found = (
            loader_over(f"feedline://{address}/{root.name}", tuning=fl.tuning(offload=policy, prefetch_batches=2)),
            [],
        )
        for batch in loader:
            found.append(tuple(array.tobytes() for array in batch.values()))
            if len(found) == 4:
                process.kill()
                process.wait()
                time.sleep(0.1)
                process, _ = serve(root.parent, listen=address)
        assert found == expected, policy


def test_resume_goes_on_where_it_was_under_another_policy(
    serve: Start,
    pictures: Callable[..., Path],
) -> None:
    root = pictures(24)
    expected = contents(loader_over(root))
    _, address = serve(root.parent)
    first = loader_over(f"feedline://{address}/{root.name}", tuning=fl.tuning(offload="all"))
    batches = iter(first)
    for number in range(3):
        assert tuple(array.tobytes() for array in next(batches).values()) == expected[number]
    second = loader_over(f"feedline://{address}/{root.name}", tuning=fl.tuning(offload="none"))
    second.load_state_dict(first.state_dict())
    assert contents(second) == expected[3:]
    third = loader_over(root)
    third.load_state_dict(first.state_dict())
    assert contents(third) == expected[3:]


def test_offload_is_one_of_the_policies() -> None:
    with pytest.raises(fl.PlanError, match="fastflow"):
        fl.Loader(fl.array(np.zeros((4, 2))), batch_size=2, tuning=fl.tuning(offload="some"))  # type: ignore[arg-type]


def feedline(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "feedline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_offload_explains_a_decision_in_words_numbers_and_plots(
    serve: Start,
    pictures: Callable[..., Path],
    tmp_path: Path,
) -> None:
    root = pictures(60)
    _, address = serve(root.parent, "--link-mbps", "2")
    plan = tmp_path / "plan.toml"
    plan.write_text(loader_over(f"feedline://{address}/{root.name}").plan.to_toml())
    page, picture = tmp_path / "offload.html", tmp_path / "offload.svg"
    told = feedline("offload", plan, "--json", "--seconds", 3, "--samples", 9, "--html", page, "--svg", picture)
    assert told.returncode == 0, told.stderr
    report = json.loads(told.stdout)
    assert report["policy"] == "auto"
    assert report["samples"] == 60
    assert report["bound_before"] == "network"
    assert report["benefit_share"] > 0.5
    assert report["sent_bytes"] < report["stored_bytes"]
    assert sum(candidate["share"] for candidate in report["candidates"]) == pytest.approx(1)
    assert len(report["points"]) == 9
    assert all(
        len(point["op_bytes"]) == 4 and point["op_bytes"][1] == report["points"][0]["op_bytes"][1]
        for point in report["points"]
    )
    assert report["measured_before"] > 0
    assert report["throughput"]["after"] > report["throughput"]["before"]
    assert page.read_text().count("<svg") == 2
    assert "Size of each sample by op" in page.read_text()
    drawn = ElementTree.parse(picture).getroot()
    assert [plot.get("aria-label") for plot in drawn if plot.get("role") == "img"] == [
        "Size of each sample by op",
        "Bytes saved by size of the sample",
    ]
    words = feedline("offload", plan, "--seconds", 1, "--samples", 2, "--policy", "none")
    assert words.returncode == 0
    assert "raw" in words.stdout
    assert "bottleneck" in words.stdout


def test_offload_without_a_storage_server_says_what_to_do(pictures: Callable[..., Path], tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(loader_over(pictures(4)).plan.to_toml())
    failed = feedline("offload", plan)
    assert failed.returncode == 1
    assert "feedline://" in failed.stderr
