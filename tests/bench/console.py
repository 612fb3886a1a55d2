"""`python -m tests.bench console`: the times of the console's pages with 10,000 topics and 1,000
groups, and the cost of 50 open browsers.

A page's time is that of the GET request: the server reads the cluster and builds the page before it
answers. A browser is a NiceGUI client over a websocket that reads everything it is sent. The
producer writes 200 records a second, one at a time, with acks=all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import re
import statistics
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncGenerator, Generator, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlencode

import websockets
from confluent_kafka import KafkaError, Message, Producer

from quafka_client.cluster import ClientCluster
from quafka_client.group_offsets import commit
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.bench.parked import resident_mib
from tests.support.cluster import Cluster, Process
from tests.support.consoles import console_of
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient

WIDE = "wide"
_AT_ONCE = 500
_REPEATS = 5
_RATE = 200
_PAGES = (
    "/", "/topics", "/topics?search=9999", f"/topic?name={WIDE}", "/groups", "/groups?order=lag",
    "/groups?search=group-099", "/group?name=group-0001", "/group?name=wide-reader",
    "/transactions", "/shards", "/slow", "/users", "/acls", "/quotas", "/orgs", "/snapshots",
    "/audit", "/traces",
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="tests.bench console")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--browsers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of the producer")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Cluster(folder) as cluster:
            began = time.perf_counter()
            _seed(cluster, options)
            print(f"seeded in {time.perf_counter() - began:.0f} s", flush=True)
            with console_of(cluster, folder, "--console-nice", "10") as (url, console):
                _browsers(cluster, console, url, _pages(url), options)


# --- the data set ---------------------------------------------------------------------------------


def _seed(cluster: Cluster, options: argparse.Namespace) -> None:
    with RawClient(cluster.address, 120) as client:
        names = [f"topic-{number:05}" for number in range(options.topics)]
        for at in range(0, len(names), _AT_ONCE):
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in names[at : at + _AT_ONCE]
            ]
            client.call(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 5)
        create_topic(client, WIDE, partitions=options.partitions)
        create_topic(client, "written", partitions=1)
        for _ in range(20):
            produce(client, "written", b"a", b"b")
    asyncio.run(_groups(cluster.address, options))


async def _groups(address: tuple[str, int], options: argparse.Namespace) -> None:
    async with ClientCluster([address], 60.0) as cluster:
        for number in range(options.groups):
            place = (f"topic-{number % options.topics:05}", 0)
            wanted = {place: 0, ("written", 0): number % 40}
            await commit(cluster, f"group-{number:04}", wanted)
        every = {(WIDE, number): 0 for number in range(options.partitions)}
        await commit(cluster, "wide-reader", every)


# --- pages ----------------------------------------------------------------------------------------


def _pages(url: str) -> list[str]:
    """Print the times of all pages that this console has, and return their paths."""
    known: list[str] = []
    print(f"{'page':<34} {'median':>10} {'slowest':>10} {'size':>10}")
    for path in _PAGES:
        took: list[float] = []
        size = 0
        for _ in range(_REPEATS + 1):
            began = time.perf_counter()
            try:
                with urllib.request.urlopen(url + path, timeout=60) as answer:
                    size = len(answer.read())
            except urllib.error.HTTPError as e:
                e.close()
                break
            took.append((time.perf_counter() - began) * 1e3)
        if not took:
            continue
        known.append(path)
        _, *warm = took
        median, slowest = statistics.median(warm), max(warm)
        print(f"{path:<34} {median:7.1f} ms {slowest:7.1f} ms {size / 1024:6.0f} KiB", flush=True)
    return known


_OPENED = ("/groups", "/topics", "/", "/group?name=group-0001", f"/topic?name={WIDE}")


# --- browsers -------------------------------------------------------------------------------------


def _browsers(
    cluster: Cluster, console: Process, url: str, paths: list[str], options: argparse.Namespace
) -> None:
    before = resident_mib(console)
    without = _producer(cluster.bootstrap, options.seconds)
    with _opened(url, paths, options.browsers):
        beside = _producer(cluster.bootstrap, options.seconds)
        after = resident_mib(console)
    again = _producer(cluster.bootstrap, options.seconds)
    print(f"memory of the console: {before:.0f} MiB, with {options.browsers} browsers "
          f"{after:.0f} MiB")  # fmt: skip
    for what, found in (("without", without), ("beside them", beside), ("without again", again)):
        print(
            f"a producer {what}: median {_quantile(found, 0.5):.2f} ms, "
            f"p99 {_quantile(found, 0.99):.2f} ms"
        )


@contextlib.contextmanager
def _opened(url: str, paths: list[str], count: int) -> Generator[None]:
    """Browsers with open pages, in a process of their own: the producer must not wait for them."""
    spawning = multiprocessing.get_context("spawn")
    ready, stop = spawning.Event(), spawning.Event()
    process = spawning.Process(target=_run_browsers, args=(url, paths, count, ready, stop))
    process.start()
    while not ready.wait(0.1):
        assert process.is_alive(), "a browser could not open its page"
    try:
        yield
    finally:
        stop.set()
        process.join()


def _run_browsers(url: str, paths: list[str], count: int, ready: Event, stop: Event) -> None:
    asyncio.run(_open(url, paths, count, ready, stop))


async def _open(url: str, paths: list[str], count: int, ready: Event, stop: Event) -> None:
    opened = [each for each in _OPENED if each in paths]
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            await stack.enter_async_context(_browser(url, opened[number % len(opened)]))
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _browser(url: str, path: str) -> AsyncGenerator[None]:
    """An open page, which reads everything."""
    page = await asyncio.to_thread(asked_page, url + path)
    async with joined(url, *page) as (socket, answer):
        assert answer.startswith("40"), answer
        reading = asyncio.create_task(_read(socket))
        try:
            yield
        finally:
            reading.cancel()


@contextlib.asynccontextmanager
async def joined(
    url: str, page: str, cookie: str
) -> AsyncGenerator[tuple[websockets.ClientConnection, str]]:
    """The websocket of a page, and what the console answers to it: Engine.IO 4 and Socket.IO 5, as
    NiceGUI's script speaks them. An answer that begins with 44 is a refusal.
    """
    found = _CLIENT.search(page)
    assert found, "no page of NiceGUI"
    query = {
        "client_id": found[1], "next_message_id": 0, "implicit_handshake": "true",
        "tab_id": uuid.uuid4(), "document_id": uuid.uuid4(), "EIO": 4, "transport": "websocket",
    }  # fmt: skip
    address = f"{url.replace('http', 'ws', 1)}/_nicegui_ws/socket.io/?{urlencode(query)}"
    headers = {"Cookie": cookie, "Origin": url}
    async with websockets.connect(address, additional_headers=headers, max_size=None) as socket:
        await socket.recv()
        await socket.send("40")
        yield socket, str(await socket.recv())


_CLIENT = re.compile(r"'client_id': '([0-9a-f-]+)'")


def asked_page(url: str) -> tuple[str, str]:
    """A page and its cookies."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        cookies = [each.partition(";")[0] for each in answer.headers.get_all("set-cookie") or ()]
        return answer.read().decode(), "; ".join(cookies)


async def _read(socket: websockets.ClientConnection) -> None:
    async for message in socket:
        if message == "2":
            await socket.send("3")


# --- a producer -----------------------------------------------------------------------------------


def _producer(bootstrap: str, seconds: float) -> list[float]:
    """The times until each record was acknowledged, in ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    found: list[float] = []

    def sent(began: float) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            assert error is None, error
            found.append((time.perf_counter() - began) * 1e3)

        producer.produce("written", b"x" * 100, on_delivery=delivered)

    end = time.perf_counter() + seconds
    due = time.perf_counter()
    while due < end:
        sent(time.perf_counter())
        due += 1 / _RATE
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
    producer.flush(10)
    return found[_RATE:]


def _quantile(found: Sequence[float], share: float) -> float:
    return sorted(found)[round(share * (len(found) - 1))]
