"""What a bucket's client makes of the answers of an HTTP server."""

from __future__ import annotations

import http.server
import threading
from collections import deque
from collections.abc import Iterator

import pytest

from quafka_objects.bucket import BucketStore
from quafka_objects.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectStoreError,
    TransientStoreError,
)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by a list of status codes; 0 closes the connection. Of objects it has one body."""

    protocol_version = "HTTP/1.1"
    codes: deque[int]
    body = b"theirs"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.body)

    def _answer(self, body: bytes) -> None:
        code = self.codes.popleft()
        if not code:
            self.close_connection = True
            return
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def answers() -> Iterator[tuple[deque[int], BucketStore]]:
    codes: deque[int] = deque()
    handler = type("Handler", (Answers,), {"codes": codes})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "endpoint": f"http://127.0.0.1:{server.server_port}", "region": "us-east-1",
            "access_key_id": "a", "secret_access_key": "b",
        }  # fmt: skip
        yield codes, BucketStore("s3://bucket/prefix", options, attempt_seconds=5.0)
        server.shutdown()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (503, TransientStoreError), (429, TransientStoreError), (500, TransientStoreError),
        (0, TransientStoreError), (403, AccessDeniedError), (400, ObjectStoreError),
    ],
)  # fmt: skip
def test_one_request_and_its_error(
    answers: tuple[deque[int], BucketStore], code: int, error: type[OSError]
) -> None:
    codes, store = answers
    codes.extend([code] * 4)
    for call in (
        lambda: store.get("a"),
        lambda: store.create("a", b"x"),
        lambda: store.replace("a", b"x", '"0"'),
        lambda: store.put("a", b"x"),
    ):
        with pytest.raises(ObjectStoreError) as raised:
            call()
        assert type(raised.value) is error
    assert not codes, "each call was one request"


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        ([409, 404], TransientStoreError),  # nobody has written yet
        ([409, 200], ObjectExistsError),
        ([412, 200], ObjectExistsError),
        ([412, 404], ObjectExistsError),  # deleted since
        ([409, 503], TransientStoreError),
    ],
)
def test_a_refused_creation(
    answers: tuple[deque[int], BucketStore], codes: list[int], error: type[OSError]
) -> None:
    answers[0].extend(codes)
    with pytest.raises(error):
        answers[1].create("a", b"mine")
    answers[0].extend([409, 200])
    assert answers[1].create("a", Answers.body) == '"1"', "our own object, of an earlier attempt"


@pytest.mark.parametrize(
    ("codes", "expected", "error"),
    [
        ([409, 200], '"1"', TransientStoreError),  # as the caller has read it
        ([409, 200], '"0"', ObjectChangedError),
        ([412, 200], '"0"', ObjectChangedError),
        ([409, 404], '"0"', ObjectChangedError),
    ],
)
def test_a_refused_swap(
    answers: tuple[deque[int], BucketStore], codes: list[int], expected: str, error: type[OSError]
) -> None:
    answers[0].extend(codes)
    with pytest.raises(error):
        answers[1].replace("a", b"mine", expected)
