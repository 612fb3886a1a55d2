"""A schema registry for commands under test: answers by path, in a thread."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from quafka_loop import threads


@contextmanager
def serving(answers: Mapping[str, Any], authorization: str | None = None) -> Generator[str]:
    """Yield its URL. `authorization`: the header that it asks for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in answers
            body = json.dumps(answers.get(self.path, {})).encode()
            allowed = authorization in (None, self.headers.get("authorization"))
            self.send_response(401 if not allowed else 200 if known else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threads.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
