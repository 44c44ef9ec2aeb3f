"""Shards in a bucket: the same batches as from disk, few bytes and requests. Faults cause no hang and no wrong data."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from buckets import BUCKET, Bucket, Counts, bucket_server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from making import HANG_SECONDS, natural, save
from test_fork import forked

import feedline as fl
from feedline import ops

PICTURES, PER_SHARD = 60, 20
# Two batches ahead, and no sample before its batch, so the fetched bytes are known.
FEW_AHEAD: dict[str, Any] = {"tuning": fl.tuning(prefetch_batches=2, start="first-come")}
CROP = [ops.DecodeImage(), ops.RandomResizedCrop(64), ops.RandomHorizontalFlip(), ops.ToTensor(dtype="uint8")]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket_server(monkeypatch) as server:
        yield server


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEG pictures, packed: a folder of shards with their indexes."""
    root = tmp_path_factory.mktemp("packed")
    for number in range(PICTURES):
        save(root / "plain" / f"class{number % 3}" / f"{number:04}.jpg", natural(240, 320, seed=number), quality=90)
    size = sum(path.stat().st_size for path in (root / "plain").rglob("*.jpg"))
    pack = ["pack", root / "plain", root / "shards", "--shard-size", size * PER_SHARD // PICTURES]
    subprocess.run([sys.executable, "-m", "feedline", *map(str, pack)], check=True, capture_output=True)
    assert 3 <= len(list((root / "shards").glob("*.tar"))) <= 5
    return root / "shards"


@pytest.fixture
def bare(shards: Path, tmp_path: Path) -> Path:
    """The same shards without indexes."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for path in shards.glob("*.tar"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def loader_of(place: object, chain: list[ops.Op] | None = None, **options: Any) -> fl.Loader:
    settings: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 5, "num_workers": 2} | options
    return fl.Loader(fl.tar(f"{place}/*.tar"), CROP if chain is None else chain, **settings)


def epoch_of(loader: fl.Loader) -> list[tuple[bytes, bytes]]:
    return [(batch["index"].tobytes(), batch["image"].tobytes()) for batch in loader]


def check_same(ours: fl.Loader, theirs: fl.Loader, epochs: int = 3) -> None:
    for epoch in range(epochs):
        assert epoch_of(ours) == epoch_of(theirs), f"epoch {epoch}"


@pytest.mark.parametrize("order", ["strict", fl.planned(), fl.arrival()])
def test_packed_shards_in_a_bucket_give_the_batches_of_those_on_disk(bucket: Bucket, shards: Path, order: Any) -> None:
    remote, local = loader_of(bucket.put(shards), order=order), loader_of(shards, order=order)
    if order != fl.arrival():
        check_same(remote, local)
        return
    for _ in range(2):
        given = [sorted(index for batch in loader for index in batch["index"].tolist()) for loader in (remote, local)]
        assert given[0] == given[1] == list(range(PICTURES))


def test_shards_without_an_index_are_listed_once_and_give_the_same_batches(bucket: Bucket, bare: Path) -> None:
    url = bucket.put(bare)
    check_same(loader_of(url), loader_of(bare))
    size = sum(path.stat().st_size for path in bare.iterdir())
    # Requests that the loader sent ahead may still be in flight.
    bucket.proxy.settle()
    bucket.proxy.counts = Counts()
    fl.tar(f"{url}/*.tar")
    assert bucket.proxy.counts.body_bytes < size / 50, "the index is kept in the cache folder"


def test_other_chains_fields_and_subsets_give_the_same_batches(bucket: Bucket, shards: Path) -> None:
    url = bucket.put(shards)
    whole = [ops.DecodeImage(), ops.Resize((32, 32))]
    check_same(loader_of(url, whole, shuffle=False), loader_of(shards, whole, shuffle=False), epochs=2)
    parts = [fl.tar(f"{place}/*.tar").split({"a": 0.5, "b": 0.5})["a"] for place in (url, shards)]
    ours, theirs = (fl.Loader(part, CROP, batch_size=7, sampler=fl.weighted([1.0] * len(part))) for part in parts)
    check_same(ours, theirs, epochs=2)
    keys = [next(iter(loader_of(place, fields=("key", "label"))))[0] for place in (url, shards)]
    assert keys[0] == keys[1]


def test_a_folder_in_a_bucket_gives_the_batches_of_that_on_disk(bucket: Bucket, tmp_path: Path) -> None:
    for number in range(12):
        picture = save(tmp_path / f"class{number % 2}" / f"{number:02}.jpg", natural(80, 120, seed=number))
        key = str(picture.relative_to(tmp_path))
        bucket.client.put_object(Bucket=BUCKET, Key=f"folder/{key}", Body=picture.read_bytes())
    roots = (f"s3://{BUCKET}/folder", tmp_path)
    ours, theirs = (fl.Loader(fl.folder(root), CROP, batch_size=5, shuffle=True, seed=2) for root in roots)
    check_same(ours, theirs, epochs=2)


def test_with_the_index_a_sample_is_one_request_for_the_rows_it_needs(bucket: Bucket, shards: Path) -> None:
    loader = loader_of(bucket.put(shards), **FEW_AHEAD)
    whole_bytes = sum(path.stat().st_size for path in shards.glob("*.tar"))
    for _ in range(3):
        epoch_of(loader)
        assert whole_bytes / loader.snapshot()["store"]["bytes_received_epoch"] > 1.3
    store = loader.snapshot()["store"]
    assert store["retries"] == 0
    assert store["requests"] <= 3 * PICTURES + 3 * 8, "one for each sample, those ahead included"


def test_counts_are_those_of_the_wire(bucket: Bucket, shards: Path, wait_until: Callable[..., None]) -> None:
    loader = loader_of(bucket.put(shards), **FEW_AHEAD)
    bucket.proxy.counts = Counts()
    bucket.proxy.fault = lambda method, path: "503" if bucket.proxy.counts.requests % 7 == 0 else None
    sums = []
    for _ in range(3):
        epoch_of(loader)
        sums.append(loader.snapshot()["store"]["bytes_received_epoch"])

    def counted() -> tuple[int, int]:
        store = loader.snapshot()["store"]
        return store["requests"], store["bytes_received"]

    def sent() -> tuple[int, int]:
        return bucket.proxy.counts.requests, bucket.proxy.counts.body_bytes

    wait_until(lambda: counted() == sent(), "all that was fetched ahead has come, and both counts agree")
    assert loader.snapshot()["store"]["retries"] > 0
    assert sum(sums) <= counted()[1] < sum(sums) + max(sums), "less than an epoch ahead"
    assert len(set(sums)) == 3, "crops differ from epoch to epoch, and so do their bytes"


def test_bytes_of_an_epoch_do_not_depend_on_what_is_fetched_ahead(bucket: Bucket, shards: Path) -> None:
    url = bucket.put(shards)
    sums = []
    for prefetch in (1, 20):
        loader = loader_of(url, tuning=fl.tuning(prefetch_batches=prefetch))
        received = []
        for _ in range(2):
            epoch_of(loader)
            received.append(loader.snapshot()["store"]["bytes_received_epoch"])
        sums.append(received)
    assert sums[0] == pytest.approx(sums[1], rel=0.05), "but for gaps between neighbours that are fetched together"


def test_neighbours_in_sequence_share_requests(bucket: Bucket, shards: Path) -> None:
    loader = loader_of(
        bucket.put(shards), shuffle=False, tuning=fl.tuning(seek_index="never", prefetch_batches=1), batch_size=PICTURES
    )
    epoch_of(loader)
    loader.close()
    assert loader.snapshot()["store"]["requests"] < PICTURES


def test_many_requests_are_under_way_with_few_threads(bucket: Bucket, shards: Path) -> None:
    loader = loader_of(bucket.put(shards), num_workers=1)
    bucket.proxy.most_at_once = 0
    bucket.proxy.delay_seconds = 0.1
    epoch_of(loader)
    assert bucket.proxy.most_at_once >= 16


def test_the_cache_keeps_samples_of_a_bucket(bucket: Bucket, shards: Path) -> None:
    url = bucket.put(shards)
    chain = [ops.DecodeImage(), ops.Resize((48, 48)), ops.RandomCrop(32), ops.ToTensor(dtype="uint8")]
    cache = fl.cache(disk="1GB", form="resized")
    loader, local = loader_of(url, chain, cache=cache), loader_of(shards, chain)
    check_same(loader, local, epochs=1)
    check_same(loader, local, epochs=1)
    loader.close()
    again = loader_of(url, chain, cache=cache)
    bucket.proxy.counts = Counts()
    epoch_of(again)
    assert bucket.proxy.counts.requests == 0
    assert again.snapshot()["store"]["bytes_received"] == 0


def test_503s_and_cut_answers_are_asked_again_and_counted(bucket: Bucket, shards: Path) -> None:
    loader, local = loader_of(bucket.put(shards)), loader_of(shards)
    numbers = iter(range(10**9))
    bucket.proxy.fault = lambda method, path: {0: "503", 5: "cut"}.get(next(numbers) % 10)
    check_same(loader, local, epochs=2)
    store = loader.snapshot()["store"]
    assert store["retries"] >= 10
    assert store["requests"] > 3 * store["retries"]


def test_a_server_that_is_away_for_a_while_costs_time_and_nothing_else(bucket: Bucket, shards: Path) -> None:
    loader, local = loader_of(bucket.put(shards), tuning=fl.tuning(prefetch_batches=1)), loader_of(shards)
    expected = epoch_of(local)
    given = []
    for number, batch in enumerate(loader):
        given.append((batch["index"].tobytes(), batch["image"].tobytes()))
        if number == 2:
            bucket.proxy.stop()
            threading.Timer(1.0, bucket.proxy.start).start()
    assert given == expected


def test_a_slow_server_is_waited_for(bucket: Bucket, shards: Path) -> None:
    loader, local = loader_of(bucket.put(shards)), loader_of(shards)
    expected, given = epoch_of(local), []
    for number, batch in enumerate(loader):
        given.append((batch["index"].tobytes(), batch["image"].tobytes()))
        bucket.proxy.delay_seconds = 0.5 if number >= 3 else 0.0
    assert given == expected


def test_a_server_that_never_answers_does_not_keep_a_loader_from_closing(bucket: Bucket, shards: Path) -> None:
    loader = loader_of(bucket.put(shards))
    iterator = iter(loader)
    next(iterator)
    bucket.proxy.fault = lambda method, path: "hang"
    loader.set_epoch(7)
    threading.Timer(0.3, loader.close).start()
    start = time.monotonic()
    with pytest.raises(fl.ClosedError):
        for _ in loader:
            pass
    assert time.monotonic() - start < HANG_SECONDS


@pytest.mark.parametrize("how", ["replaced", "truncated", "removed"])
def test_an_object_that_changes_under_way_makes_its_samples_fail_by_name(
    bucket: Bucket, shards: Path, how: str
) -> None:
    url = bucket.put(shards)
    loader = loader_of(url, tuning=fl.tuning(prefetch_batches=1))
    next(iter(loader))
    victim = sorted(shards.glob("*.tar"))[1]
    key, content = f"shards/{victim.name}", victim.read_bytes()
    if how == "removed":
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
    else:
        changed = bytes(reversed(content)) if how == "replaced" else content[: len(content) // 2]
        bucket.client.put_object(Bucket=BUCKET, Key=key, Body=changed)
    with pytest.raises(fl.SampleError) as caught:
        epoch_of(loader)
    assert f"{url}/{victim.name}" in str(caught.value)
    assert ("no such file" if how == "removed" else "open the source again") in str(caught.value)


def test_samples_of_a_bad_object_are_replaced_where_that_is_allowed(bucket: Bucket, shards: Path) -> None:
    url = bucket.put(shards)
    loader = loader_of(url, on_error=fl.substitute(max_fraction=1.0))
    victim = sorted(shards.glob("*.tar"))[0]
    bucket.client.delete_object(Bucket=BUCKET, Key=f"shards/{victim.name}")
    assert sum(len(batch["index"]) for batch in loader) == PICTURES
    assert loader.snapshot()["substituted"] > 0


def test_missing_buckets_objects_and_patterns_are_told_apart(bucket: Bucket, shards: Path) -> None:
    bucket.put(shards)
    with pytest.raises(fl.SourceError, match=r"there is no such bucket.*AWS_ENDPOINT_URL"):
        fl.tar("s3://no-such-bucket/x/*.tar")
    with pytest.raises(fl.SourceError, match="no-such-bucket"):
        fl.tar("s3://no-such-bucket/x/a.tar")
    with pytest.raises(fl.SourceNotFoundError, match=f"s3://{BUCKET}/shards/nothing.tar"):
        fl.tar(f"s3://{BUCKET}/shards/nothing.tar")
    with pytest.raises(fl.SourceError, match="no shards match"):
        fl.tar(f"s3://{BUCKET}/elsewhere/*.tar")
    with pytest.raises(fl.SourceError, match="names no bucket"):
        fl.tar("s3:///x.tar")


def test_wrong_credentials_say_what_to_set(bucket: Bucket, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = bucket.put(shards)
    connection = http.client.HTTPConnection(*bucket.proxy.target)
    connection.request("POST", "/moto-api/reset-auth", b"0")
    connection.getresponse().read()
    try:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
        with pytest.raises(fl.SourceError, match="AWS_ACCESS_KEY_ID") as caught:
            fl.tar(f"{url}/*.tar")
        assert url in str(caught.value)
    finally:
        connection.request("POST", "/moto-api/reset-auth", b"inf")
        connection.getresponse().read()


def test_keys_and_region_may_be_those_of_a_profile(
    bucket: Bucket, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, endpoint = bucket.put(shards), bucket.proxy.url
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[training]\naws_access_key_id = of-a-file\naws_secret_access_key = s\n")
    (tmp_path / "config").write_text(f"[profile training]\nregion = eu-west-3\nendpoint_url = {endpoint}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "training")
    assert len(fl.tar(f"{url}/*.tar")) == PICTURES
    assert "Credential=of-a-file/" in bucket.proxy.authorization
    assert "/eu-west-3/" in bucket.proxy.authorization


def test_an_index_of_another_shard_of_the_same_length_is_not_believed(bucket: Bucket, shards: Path) -> None:
    url = bucket.put(shards)
    first = sorted(shards.glob("*.tar"))[0]
    content = bytearray(first.read_bytes())
    stem = content.index(b".jpg", len(content) // 2)
    old, place = bytes(content[stem - 4 : stem + 1]), 0
    while (place := content.find(old, place)) >= 0:
        content[place : place + 2] = b"99"
        start = place // 512 * 512
        header = content[start : start + 512]
        header[148:156] = b" " * 8
        content[start + 148 : start + 156] = f"{sum(header):06o}\0 ".encode()
    bucket.client.put_object(Bucket=BUCKET, Key=f"shards/{first.name}", Body=bytes(content))
    source = fl.tar(f"{url}/*.tar")
    assert [key for key in map(source.key, source.indices) if "/99" in key] != []


def test_a_source_opened_before_a_fork_can_be_loaded_in_the_child(bucket: Bucket, shards: Path) -> None:
    source = fl.tar(f"{bucket.put(shards)}/*.tar")

    def first() -> list[int]:
        return next(iter(fl.Loader(source, CROP, batch_size=8, num_workers=1)))["index"].tolist()  # type: ignore[no-any-return]

    assert forked(first) == list(range(8))
    assert first() == list(range(8))


class Ranges(SimpleHTTPRequestHandler):
    """A web server's files, with range requests."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        asked = self.headers.get("range")
        path = Path(self.translate_path(self.path))
        if not asked or not path.is_file():
            return super().do_GET()
        first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        content = path.read_bytes()
        part = content[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(part)
        return None


class Whole(SimpleHTTPRequestHandler):
    """The same without range requests, as `python -m http.server`."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def web() -> Iterator[Callable[..., str]]:
    servers = []

    def serve(folder: Path, handler: type[SimpleHTTPRequestHandler], certificate: Path | None = None) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_shards_of_a_web_server_give_the_batches_of_those_on_disk(web: Callable[..., str], shards: Path) -> None:
    url = web(shards, Ranges)
    names = sorted(path.name for path in shards.glob("*.tar"))
    ours = fl.Loader(fl.tar([f"{url}/{name}" for name in names]), CROP, batch_size=8, shuffle=True, seed=5)
    check_same(ours, loader_of(shards), epochs=2)


def certificate_in(folder: Path) -> Path:
    """Make a certificate for loopback that signs itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(address, critical=False)
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(signed + key.private_bytes(*form))
    return folder / "server.pem"


def test_shards_come_over_tls_from_a_server_whose_certificate_is_trusted(
    web: Callable[..., str], shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_in(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    url = web(shards, Ranges, certificate)
    name = sorted(path.name for path in shards.glob("*.tar"))[0]
    ours, theirs = (fl.Loader(fl.tar(place), CROP, batch_size=8) for place in (f"{url}/{name}", shards / name))
    check_same(ours, theirs, epochs=1)


def test_a_web_server_cannot_be_searched_and_has_to_know_ranges(web: Callable[..., str], shards: Path) -> None:
    with pytest.raises(fl.SourceError, match="name the shards"):
        fl.tar(f"{web(shards, Ranges)}/*.tar")
    name = sorted(shards.glob("*.tar"))[0].name
    with pytest.raises(fl.SourceError, match="does not answer range requests"):
        fl.tar(f"{web(shards, Whole)}/{name}")


def test_a_plan_over_a_bucket_runs_from_the_command_line(bucket: Bucket, shards: Path, tmp_path: Path) -> None:
    loader = loader_of(bucket.put(shards))
    (tmp_path / "plan.toml").write_text(loader.plan.to_toml())
    command = [sys.executable, "-m", "feedline", "--json", "run", str(tmp_path / "plan.toml")]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert report["samples"] == PICTURES
