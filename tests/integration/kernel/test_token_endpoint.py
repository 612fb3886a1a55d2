"""Tokens of a command: from its settings, a file, an HTTP server."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from quafka_client.errors import ClientError
from tests.unit.deploy.test_command_config import security

_JAAS = "org.apache.kafka.common.security"


class _Provider(BaseHTTPRequestHandler):
    token: str = ""
    asked: tuple[str, bytes] = ("", b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        _Provider.asked = (self.headers["Authorization"], body)
        self.send_response(200 if _Provider.token else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": _Provider.token}).encode())

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@contextmanager
def provider() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Provider)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_tokens(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1234}).encode()).decode().rstrip("=")
    token = f"x.{claims}.y"
    (tmp_path / "token").write_text(f"{token}\n")
    base = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
    url = "sasl.oauthbearer.token.endpoint.url="
    module = (
        "sasl.jaas.config=x.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="s:1" scope="kafka";'
    )
    with provider() as address:
        for more, expected in (
            (f"{url}file://{tmp_path}/token", token),
            (f"sasl.oauthbearer.token={token}", token),
            (
                f"{url}{address}\n{module}",
                token,
            ),
        ):
            _Provider.token = token
            credentials = security(tmp_path, base + more).credentials
            assert credentials is not None
            assert credentials.token is not None
            fetch = credentials.token
            assert fetch() == (expected, 1234)
        assert _Provider.asked == (
            f"Basic {base64.b64encode(b'me:s%3A1').decode()}",
            b"grant_type=client_credentials&scope=kafka",
        )
        _Provider.token = ""
        with pytest.raises(ClientError, match=r"no token from http.*: 401") as raised:
            fetch()
        assert "s:1" not in str(raised.value)
    credentials = security(tmp_path, f"{base}sasl.oauthbearer.config=principal=me").credentials
    assert credentials is not None
    assert credentials.token is not None
    assert credentials.token().expires_at > time.time()
