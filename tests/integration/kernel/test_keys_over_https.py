"""The keys of tokens, from a real HTTPS server: only from the one that is meant, and in bounds."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from quafka_gateway.security.sasl import key_set
from quafka_gateway.security.sasl.key_set import KeySetError, KeySetSource, read_keys
from tests.support.certificates import Authority
from tests.unit.gateway.sasl.tokens import Issuer

ISSUER = Issuer(kind="EC")


class _Handler(BaseHTTPRequestHandler):
    body = ISSUER.jwks

    def do_GET(self) -> None:
        if self.path == "/keys":
            self._answer(200, self.body)
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif self.path == "/long":
            self._answer(200, bytes(2 << 20))
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            self._trickle()
        else:
            self._answer(404, b"no")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _trickle(self) -> None:
        for _ in range(200):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.02)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that do not trust it, or have had enough, are expected."""


Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers. The system trusts one authority."""
    trusted = Authority(tmp_path, "trusted")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    monkeypatch.setenv("no_proxy", "*")
    running: list[_Server] = []

    def start(hosts: tuple[str, ...] = ("127.0.0.1",), authority: Authority = trusted) -> str:
        server = _Server(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("keys", hosts))
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append(server)
        return f"https://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_keys_are_read_from_a_server_that_the_system_trusts(serve: Serve) -> None:
    (key,) = read_keys(f"{serve()}/keys").keys
    assert key.kid == ISSUER.kid


@contextmanager
def refused(reason: str) -> Iterator[None]:
    with pytest.raises(KeySetError, match=reason):
        yield


def test_no_keys_come_from_a_server_that_is_not_the_one_that_is_meant(
    serve: Serve, tmp_path: Path
) -> None:
    with refused("self-signed certificate in certificate chain|unable to get local issuer"):
        read_keys(f"{serve(authority=Authority(tmp_path, 'stranger'))}/keys")
    with refused("IP address mismatch"):
        read_keys(f"{serve(hosts=('other.example.org',))}/keys")
    with refused("302"):
        read_keys(f"{serve()}/moved")


def test_an_answer_has_a_size_and_a_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    url = serve()
    with refused("404"):
        read_keys(f"{url}/none")
    with refused("more than 1048576 bytes"):
        read_keys(f"{url}/long")
    monkeypatch.setattr(key_set, "_TIMEOUT", 2.0)  # of which a single read may take half
    with refused("takes more than 2 seconds"):
        read_keys(f"{url}/slow")


async def test_a_new_key_is_found_while_a_client_waits(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "_LEAST_PAUSE", 0.0)
    source = KeySetSource(f"{serve()}/keys", 3_600.0)
    await source.start()
    try:
        monkeypatch.setattr(_Handler, "body", Issuer("two", "EC").jwks)
        assert await source.wait_newer(10.0)
        assert [key.kid for key in source.keys.keys] == ["two"]
    finally:
        await source.close()
