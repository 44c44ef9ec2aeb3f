"""A storage server: the same samples as from the folder, over a real connection, also when it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feedline as fl
from feedline import ops

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


def contents(loader: fl.Loader) -> list[tuple[bytes, ...]]:
    return [tuple(array.tobytes() for array in batch.values()) for batch in loader]


def loader_over(root: str | Path, **options: Any) -> fl.Loader:
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(12), ops.Normalize()]
    return fl.Loader(fl.folder(root), chain, **({"batch_size": 4, "shuffle": True, "seed": 2} | options))


def test_law_1_a_folder_of_a_server_gives_the_batches_of_the_folder(
    serve: Start, pictures: Callable[..., Path]
) -> None:
    root = pictures(30)
    process, address = serve(root.parent)
    remote = loader_over(f"feedline://{address}/{root.name}")
    local = loader_over(root)
    assert remote.source.classes == local.source.classes
    for _ in range(2):
        assert contents(remote) == contents(local)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 0


def test_a_server_killed_with_kill_9_and_started_again_loses_nothing(
    serve: Start, pictures: Callable[..., Path]
) -> None:
    root = pictures(60)
    expected = contents(loader_over(root))
    process, address = serve(root.parent)
    loader, found = loader_over(f"feedline://{address}/{root.name}", num_workers=2, prefetch_batches=2), []
    for batch in loader:
        found.append(tuple(array.tobytes() for array in batch.values()))
        if len(found) in (3, 8):
            process.kill()
            process.wait()
            time.sleep(0.2)
            process, _ = serve(root.parent, listen=address)
    assert found == expected


def test_tokens_are_asked_for_and_never_needed_on_this_machine_alone(
    serve: Start, pictures: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pictures(6)
    token = tmp_path / "token"
    token.write_text("secret\n")
    _, address = serve(root.parent, "--token-file", str(token))
    url = f"feedline://{address}/{root.name}"
    with pytest.raises(fl.FeedlineError, match="token is wrong or missing"):
        fl.folder(url)
    monkeypatch.setenv("FEEDLINE_TOKEN_FILE", str(token))
    assert len(fl.folder(url)) == 6
    command = [sys.executable, "-m", "feedline", "storage", "--root", str(root), "--listen", "0.0.0.0:0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert refused.returncode == 1
    assert "--token-file" in refused.stderr


def test_names_that_are_no_server_are_refused_by_name() -> None:
    for url in ("feedline://", "feedline:///train", "feedline://host/train", "feedline://host:99999/train"):
        with pytest.raises(fl.FeedlineError, match="no address of a storage server"):
            fl.folder(url)


def test_volumes_and_shards_of_a_server(serve: Start, pictures: Callable[..., Path], tmp_path: Path) -> None:
    from volumes import case, write

    root = pictures(12)
    shards = tmp_path / "shards"
    packed = subprocess.run([sys.executable, "-m", "feedline", "pack", str(root), str(shards)], capture_output=True)
    assert packed.returncode == 0, packed.stderr
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    for number in range(3):
        image, label = case(number, (20, 18, 16))
        write(volumes / f"{number}_imaging.nii.gz", image)
        write(volumes / f"{number}_segmentation.nii.gz", label)
    _, address = serve(tmp_path)
    for where in (str(tmp_path), f"feedline://{address}"):
        assert len(fl.tar(f"{where}/shards/*.tar")) == 12
        assert len(fl.volumes(f"{where}/volumes")) == 3
    decode = [ops.DecodeImage(), ops.CenterCrop(8)]
    streams = [
        [batch["image"].tobytes() for batch in fl.Loader(fl.tar(f"{where}/shards/*.tar"), decode, batch_size=4)]
        for where in (str(tmp_path), f"feedline://{address}")
    ]
    assert streams[0] == streams[1]
    crop: list[Any] = [ops.RandomBalancedCrop((8, 8, 8))]
    streams = [
        [batch["image"].tobytes() for batch in fl.Loader(fl.volumes(f"{where}/volumes"), crop, batch_size=1)]
        for where in (str(tmp_path), f"feedline://{address}")
    ]
    assert streams[0] == streams[1]
