"""A real S3-compatible server (moto) on loopback, behind a proxy that counts and can be made to fail."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "pictures"
KEY, SECRET = "a-key", "a-secret"
HOP_HEADERS = ("connection", "transfer-encoding", "content-length", "date", "server")

Fault = Callable[[str, str], str | None]
"""The fault for a method and a path: ``"503"``, ``"cut"`` (half of the body), ``"hang"``, or nothing."""


@dataclass
class Counts:
    """Counts of the traffic through the proxy."""

    requests: int = 0
    body_bytes: int = 0
    ranges: list[tuple[str, str]] = field(default_factory=list)


class Proxy:
    """Passes requests on; ``fault`` and ``delay_seconds`` may be changed while it runs."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.fault: Fault | None = None
        self.delay_seconds = 0.0
        self.counts = Counts()
        self.authorization = ""
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._connections: set[Any] = set()
        self.released = threading.Event()
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                proxy._connections.add(self.connection)

            def finish(self) -> None:
                proxy._connections.discard(self.connection)
                try:
                    super().finish()
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def pass_on(self) -> None:
                with proxy.counting():
                    proxy.answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that disconnects is not an error here."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def settle(self, still_seconds: float = 1.0, most_seconds: float = 60.0) -> None:
        """Wait until no request has come for a while."""
        start = since = time.monotonic()
        seen = self.counts.requests
        while time.monotonic() - since < still_seconds:
            assert time.monotonic() - start < most_seconds, "requests do not stop"
            time.sleep(0.02)
            if self._at_once > 0 or self.counts.requests != seen:
                seen, since = self.counts.requests, time.monotonic()

    def stop(self) -> None:
        """Stop listening and cut all connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            try:
                connection.shutdown(2)
            except OSError:
                continue

    @contextmanager
    def counting(self) -> Iterator[None]:
        with self._lock:
            self.counts.requests += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        self.authorization = request.headers.get("authorization", "")
        fault = self.fault(request.command, request.path) if self.fault else None
        if self.delay_seconds:
            time.sleep(self.delay_seconds)
        if fault == "hang":
            self.released.wait(600)
        if fault == "503":
            request.send_response(503)
            request.send_header("content-length", "0")
            request.end_headers()
            return
        upstream = http.client.HTTPConnection(*self.target)
        upstream.request(request.command, request.path, body, dict(request.headers))
        answer = upstream.getresponse()
        content = answer.read()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_HEADERS or (request.command == "HEAD" and name.lower() == "content-length"):
                request.send_header(name, value)
        if request.command != "HEAD":
            request.send_header("content-length", str(len(content)))
        request.end_headers()
        if request.headers.get("range"):
            with self._lock:
                self.counts.ranges.append((request.path, request.headers["range"]))
        sent = content[: len(content) // 2] if fault == "cut" else content
        if request.command != "HEAD":
            # Counted before the client has the bytes, because it may reset the counts then.
            with self._lock:
                self.counts.body_bytes += len(sent)
            request.wfile.write(sent)
        if fault == "cut":
            request.close_connection = True
        upstream.close()


class Bucket:
    """A bucket with shards, behind a proxy."""

    def __init__(self, proxy: Proxy, client: Any) -> None:
        self.proxy = proxy
        self.client = client

    def put(self, folder: Path, prefix: str = "shards") -> str:
        """Upload the files of a folder. Gives their base URL."""
        for path in sorted(folder.iterdir()):
            if path.is_file():
                self.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.name}", Body=path.read_bytes())
        self.proxy.counts = Counts()
        return f"s3://{BUCKET}/{prefix}"


@contextmanager
def bucket_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Start a server with an empty bucket. The environment has its address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = Proxy(server.get_host_and_port())
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client(
        "s3", endpoint_url=proxy.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    try:
        yield Bucket(proxy, client)
    finally:
        proxy.released.set()
        proxy.stop()
        reset = http.client.HTTPConnection(*server.get_host_and_port())
        reset.request("POST", "/moto-api/reset")
        reset.getresponse().read()
        server.stop()
