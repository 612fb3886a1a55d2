"""Stores in front of others: repetition of what may succeed later, and counting."""

from __future__ import annotations

import http.server
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_objects import bucket
from quafka_objects.bucket import BucketStore
from quafka_objects.costs import GB, MONTH, Prices, estimate, parse_prices
from quafka_objects.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
    TransientStoreError,
)
from quafka_objects.folder import FolderStore
from quafka_objects.meter import MeteredStore, StoreMeter, requests_for
from quafka_objects.retries import RetryingStore, RetryPolicy
from quafka_objects.store import PART_BYTES, ObjectStore
from tests.support.injected_store import Faults, InjectedStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def retrying(inner: ObjectStore, clock: Clock, policy: RetryPolicy) -> RetryingStore:
    return RetryingStore(
        inner, policy, sleep=clock.sleep, now=lambda: clock.now, chance=lambda: 1.0
    )


# --- repetition -------------------------------------------------------------------------------


def test_waits_double_up_to_the_longest_and_end(tmp_path: Path) -> None:
    inner, clock = InjectedStore(FolderStore(tmp_path)), Clock()
    inner.down = True
    store = retrying(inner, clock, RetryPolicy(seconds=10.0, first=0.5, most=3.0))
    with pytest.raises(TransientStoreError, match="Slow Down"):
        store.read("a")
    assert clock.waits == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert RetryPolicy().wait(2_000, 0.0) == 0.0
    assert RetryPolicy().wait(2_000, 1.0) == 5.0


def test_only_what_may_succeed_is_repeated(tmp_path: Path) -> None:
    clock = Clock()
    inner = InjectedStore(FolderStore(tmp_path))
    store = retrying(inner, clock, RetryPolicy())
    etag = store.create("a", b"one")
    with pytest.raises(ObjectExistsError):
        store.create("a", b"two")
    with pytest.raises(ObjectChangedError):
        store.replace("a", b"two", "?")
    with pytest.raises(ObjectNotFoundError):
        store.get("b")
    inner.down = True
    with pytest.raises(TransientStoreError):
        store.put("c", iter([b"chunks"]))
    assert clock.waits == []
    inner.down = False
    assert store.replace("a", b"two", etag) == store.get("a").etag


def test_every_method_survives_faults(tmp_path: Path) -> None:
    inner = InjectedStore(FolderStore(tmp_path), Faults(busy=0.3, lost=0.3), seed=3)
    store = retrying(inner, Clock(), RetryPolicy(seconds=1e6))
    for number in range(20):
        path = f"a/{number:02}"
        etag = store.create(path, b"%d" % number)
        store.replace(path, b"replaced", etag)
        assert [store.read(path), bytes(store.view(path))] == [b"replaced"] * 2
        assert store.read_ranges(path, [(0, 2)]) == [b"re"]
        store.put(path, b"put")
        assert store.get(path).data == b"put"
        assert store.exists(path)
        assert [found.path for found in store.list_objects("a")] == [path]
        assert store.list_folders("") == ["a"]
        store.delete(path)


# --- a bucket's answers -----------------------------------------------------------------------


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


def test_lists_of_express_buckets_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [[{"path": "b", "size": 1}, {"path": "c", "size": 1}], [{"path": "a", "size": 1}]]
    monkeypatch.setattr(bucket, "_list", lambda *_, **__: pages)
    for name, expected in (("x--use1-az5--x-s3", "abc"), ("x", "bca")):
        store = BucketStore(f"s3://{name}/p", {"region": "us-east-1"})
        assert "".join(found.path for found in store.list_objects()) == expected


# --- counting ---------------------------------------------------------------------------------


def test_requests_and_bytes_by_kind(tmp_path: Path) -> None:
    meter = StoreMeter((0.5, 1.0))
    inner = InjectedStore(FolderStore(tmp_path))
    store = MeteredStore(inner, meter)
    etag = store.create("a", b"12345")
    store.replace("a", b"1234", etag)
    with pytest.raises(ObjectExistsError):
        store.create("a", b"?")
    store.put("b", b"x" * (PART_BYTES + 1))
    store.put("c", iter([b"xy", b"z"]))
    store.read("b", 0, 100)
    store.view("b", 0, 50)
    store.read_ranges("b", [(0, 10), (20, 10), (3 << 20, 5)])
    store.get("a")
    store.exists("a")
    list(store.list_objects())
    store.list_folders("")
    store.delete("a")
    inner.down = True
    with pytest.raises(TransientStoreError):
        store.get("a")
    found = {kind: (one.requests, one.bytes) for kind, one in meter.kinds.items()}
    assert found == {
        "create": (2, 5), "replace": (1, 4), "put": (4 + 3, PART_BYTES + 4),
        "get": (6, 179), "head": (1, 0), "list": (2, 0), "delete": (1, 0),
    }  # fmt: skip
    assert (meter.kinds["create"].refused, meter.kinds["get"].transient) == (1, 1)
    assert sum(meter.kinds["get"].buckets) == 5
    assert meter.age > 0


def test_ranges_that_one_request_reads() -> None:
    mib = 1 << 20
    assert requests_for([]) == 0
    assert requests_for([(5 * mib, 1), (0, 1), (mib, 10)]) == 2


# --- costs ------------------------------------------------------------------------------------


def test_prices() -> None:
    assert parse_prices("") == Prices()
    assert parse_prices("put=0.1, stored=0").put == 0.1
    for wrong in ("put", "put=-1", "put=x", "pat=1", "put=1,put=1", "put=nan"):
        with pytest.raises(ValueError):
            parse_prices(wrong)


def test_an_estimate() -> None:
    meter = StoreMeter()
    meter.add("create", 0.1, 20_000, int(2 * GB), None)
    meter.add("get", 0.1, 10_000, int(GB), None)
    meter.add("delete", 0.1, 10_000, 0, None)
    found = estimate(Prices(read=0.09), meter.kinds, MONTH / 100, int(1_000 * GB))
    assert found.requests == pytest.approx(0.1 + 0.004 + 0.09)
    assert found.per_gb == pytest.approx(found.requests / 2)
    assert found.requests_month == pytest.approx(100 * found.requests)
    assert found.storage_month == pytest.approx(23.0)
    assert estimate(Prices(), StoreMeter().kinds, 1.0, 0).per_gb is None
