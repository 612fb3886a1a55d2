"""The part of Kubernetes' API that the chart's Job uses: Secrets of one namespace, over HTTPS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.support.certificates import Authority
from tests.support.chart import NAMESPACE

_PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets"


class SecretsApi:
    """Serves GET, POST and merge patches of Secrets to who has the token.

    Attributes:
        secrets: the content, by name and key.
        requests: method and name of each request.
        authority: the certificate of the server's authority.
    """

    token = "token-of-the-job"

    def __init__(self, folder: Path) -> None:
        self.secrets: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        issuer = Authority(folder)
        self.authority = issuer.file
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issuer.issue("kubernetes", ("127.0.0.1",)))
        api = self

        class Handler(_Handler):
            of = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: SecretsApi

    def do_GET(self) -> None:
        name = self._name()
        if name is not None:
            known = self.of.secrets.get(name)
            self._answer(404 if known is None else 200, known)

    def do_POST(self) -> None:
        if self._name() is None:
            return
        secret = self._body("application/json")
        name = secret["metadata"]["name"]
        if name in self.of.secrets:
            self._answer(409)
            return
        self.of.secrets[name] = _decoded(secret["data"])
        self._answer(201, self.of.secrets[name])

    def do_PATCH(self) -> None:
        name = self._name()
        if name is None:
            return
        patch = self._body("application/merge-patch+json")
        if name not in self.of.secrets:
            self._answer(404)
            return
        self.of.secrets[name] |= _decoded(patch["data"])
        self._answer(200, self.of.secrets[name])

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """The test reads `requests`."""

    def _name(self) -> str | None:
        path, _, name = self.path.partition(f"{_PATH}/")
        if self.headers["Authorization"] != f"Bearer {self.of.token}" or path not in ("", _PATH):
            self._answer(403)
            return None
        self.of.requests.append((self.command, name))
        return name

    def _body(self, kind: str) -> Any:
        assert self.headers["Content-Type"] == kind
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, secret: dict[str, bytes] | None = None) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in (secret or {}).items()}
        body = json.dumps({"kind": "Secret", "data": data}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _decoded(data: dict[str, str]) -> dict[str, bytes]:
    return {key: base64.b64decode(value, validate=True) for key, value in data.items()}
