"""A storage server: the same samples as from the folder, over a real connection, even when it is killed."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from buckets import BUCKET, bucket_server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from making import HANG_SECONDS

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
    assert process.wait(HANG_SECONDS) == 0


def test_a_server_killed_with_kill_9_and_started_again_loses_nothing(
    serve: Start, pictures: Callable[..., Path]
) -> None:
    root = pictures(60)
    expected = contents(loader_over(root))
    process, address = serve(root.parent)
    loader, found = (
        loader_over(f"feedline://{address}/{root.name}", num_workers=2, tuning=fl.tuning(prefetch_batches=2)),
        [],
    )
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
    refused = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert refused.returncode == 1
    assert "--token-file" in refused.stderr


def write_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A self-signed certificate for an address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "storage")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(names, critical=False)
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    certificate, key_file = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return certificate, key_file


def test_law_1_a_server_with_tls_gives_the_batches_of_the_folder_to_clients_that_trust_it(
    serve: Start, pictures: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pictures(12)
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    _, address = serve(root.parent, "--tls-cert", str(certificate), "--tls-key", str(key))
    url = f"feedlines://{address}/{root.name}"
    began = time.monotonic()
    with pytest.raises(fl.FeedlineError, match="set FEEDLINE_TLS_CA"):
        fl.folder(url)
    with pytest.raises(fl.FeedlineError, match="use feedlines://"):
        fl.folder(url.replace("feedlines", "feedline"))
    assert time.monotonic() - began < HANG_SECONDS
    monkeypatch.setenv("FEEDLINE_TLS_CA", str(certificate))
    loader = loader_over(url)
    assert contents(loader) == contents(loader_over(root))
    assert loader.plan.to_toml().count(url) == 1


def test_law_1_a_server_of_a_bucket_gives_the_batches_of_the_folder(
    serve: Start, pictures: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pictures(12)
    with bucket_server(monkeypatch) as bucket:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                key = f"data/train/{path.relative_to(root)}"
                bucket.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
        bucket.client.put_object(Bucket=BUCKET, Key="secret", Body=b"secret")
        _, address = serve(f"s3://{BUCKET}/data")
        remote = loader_over(f"feedline://{address}/train")
        assert contents(remote) == contents(loader_over(root))
        with pytest.raises(fl.FeedlineError, match="outside of the root that this server serves"):
            fl.folder(f"feedline://{address}/../secret")


def test_a_server_says_over_http_how_it_is_doing(serve: Start, pictures: Callable[..., Path]) -> None:
    root = pictures(6)
    process, address = serve(root.parent, "--http", "127.0.0.1:0", "--cpus", "0.5")
    pages = re.search(r"http://[\d.:]+", process.stderr.readline()).group()

    def page(path: str) -> str:
        with urllib.request.urlopen(pages + path, timeout=HANG_SECONDS) as answer:
            return answer.read().decode()

    assert page("/health") == "serving\n"
    contents(loader_over(f"feedline://{address}/{root.name}"))
    stats = json.loads(page("/stats"))
    assert stats["requests"]["list"] == 1
    assert stats["requests"]["prepare"] >= 6
    assert stats["cpus"] == 0.5
    assert 'feedline_storage_requests_total{kind="list"} 1\n' in page("/metrics")


@pytest.mark.parametrize("spare", [10 << 20, 24 << 20, 44 << 20])
def test_a_server_that_gets_no_memory_says_so_and_goes_on(serve: Start, tmp_path: Path, spare: int) -> None:
    """The address space of the server is limited to slightly more than it uses."""
    for name, content in (("large", bytes(15 << 20)), ("small", b"x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_bytes(content)
    process, address = serve(tmp_path, "--cpus", "1")
    source = fl.folder(f"feedline://{address}/large")
    in_use = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * 4096
    resource.prlimit(process.pid, resource.RLIMIT_AS, (in_use + spare, in_use + spare))
    # With enough memory the file arrives, but it is not a picture.
    loader = fl.Loader(source, [ops.DecodeImage()], batch_size=1, num_workers=1)
    with loader, pytest.raises(fl.FeedlineError) as raised:
        next(iter(loader))
    assert spare > 10 << 20 or re.search(r"no \d+ bytes left", str(raised.value)), raised.value
    assert len(fl.folder(f"feedline://{address}/small")) == 1
    assert process.poll() is None


def test_bytes_from_a_server_are_counted_for_each_epoch(serve: Start, pictures: Callable[..., Path]) -> None:
    root = pictures(10)
    _, address = serve(root.parent)
    loader = loader_over(f"feedline://{address}/{root.name}", tuning=fl.tuning(offload="none"))
    contents(loader)
    store = loader.snapshot()["store"]
    files = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    assert files < store["bytes_received_epoch"] < files + 200 * 10
    assert store["requests"] >= 10
    assert store["retries"] == 0


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
