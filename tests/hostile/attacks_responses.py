"""Clients of one org that ask for much and read it by drops: the memory for responses is theirs."""

from __future__ import annotations

import contextlib
import socket
import time

from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from tests.hostile.arena import Arena, frame
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import create_topic, fetch, fetch_request, produce
from tests.support.raw_client import RawClient

_MIB = 1 << 20
_LIMIT = 64 * _MIB
_LISTENERS = "OWN://127.0.0.1:0,OTHER://127.0.0.1:0"
_GATEWAY = (
    *("--listener-security-protocol-map", "OWN:PLAINTEXT,OTHER:PLAINTEXT"),
    *("--listener-org", "OTHER:2", "--fetch-cache-bytes", str(64 * _MIB)),
    *("--queued-max-response-bytes", str(_LIMIT), "--mesh-records", "value"),
)
_READERS, _PIPELINED = 200, 80
_WANTED = _MIB
_PATIENCE = 60.0
_DROP, _PAUSE = 1_000, 0.1
_STUCK_SECONDS = 12.0
"""Longer than a client may leave a response unread while memory is short."""
_HELD = "quafka_gateway_response_memory_bytes"


@attack("an org's clients fetch all that they may and read it by drops, until responses fill "
        "their memory", "33",
        part_of_tests=True, gateway=_GATEWAY, listeners=_LISTENERS)  # fmt: skip
def drops(arena: Arena) -> None:
    """Clients of another org get as much as before, at once, and may pause."""
    ours = arena.topic()
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(arena.connect(_PATIENCE))
        for _ in range(8):
            produce(client, ours, bytes(_WANTED // 4))
        before = _fetched(client, ours)
        paused = opened.enter_context(_slow(arena.address))
        readers = _fill(arena, opened)
        paused.sendall(frame(fetch_request(ours, 0, **_sizes(_WANTED)), 12) * _PIPELINED)
        since = time.monotonic()
        smallest = before
        while time.monotonic() < since + _STUCK_SECONDS:
            _read_drops(readers)
            smallest = min(smallest, _fetched(client, ours))
            _describe_all(client)
        assert smallest == before, f"a fetch returns {smallest} bytes instead of {before}"
        _read_all(paused)


def _fill(arena: Arena, opened: contextlib.ExitStack) -> list[socket.socket]:
    """Clients of the other org, which hold the limit and more."""
    address, theirs = arena.cluster.address_of("OTHER"), arena.name()
    with RawClient(address, _PATIENCE, "attacker") as client:
        create_topic(client, theirs)
        for _ in range(48):
            produce(client, theirs, bytes(_MIB - 1_000))
    readers = [opened.enter_context(_slow(address)) for _ in range(_READERS)]
    for number, reader in enumerate(readers):
        request = fetch_request(theirs, number % 24, **_sizes(_LIMIT))
        reader.sendall(frame(request, 12) * _PIPELINED)
    until = time.monotonic() + _PATIENCE
    while (held := arena.figures("gateway")[_HELD]) <= _LIMIT:
        assert time.monotonic() < until, f"responses hold only {held / _MIB:.0f} MiB"
        _read_drops(readers)
    return readers


def _slow(address: tuple[str, int]) -> socket.socket:
    """A client with little room in its kernel."""
    client = socket.socket()
    client.settimeout(_PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(address)
    return client


def _sizes(most: int) -> dict[str, int]:
    return {"max_bytes": most, "partition_max_bytes": most}


def _read_drops(readers: list[socket.socket]) -> None:
    """So much that no reader is stuck."""
    for each in readers:
        with contextlib.suppress(BlockingIOError):
            each.recv(_DROP, socket.MSG_DONTWAIT)
    time.sleep(_PAUSE)


def _fetched(client: RawClient, topic: str) -> int:
    return len(fetch(client, topic, 0, **_sizes(_WANTED)).records or b"")


def _describe_all(client: RawClient) -> None:
    """A request that names everything: its answer may be long."""
    began = time.monotonic()
    answer = client.call(MetadataRequest(topics=None), MetadataResponse, 12)
    assert answer.topics, "no topics"
    assert time.monotonic() - began < _PATIENCE / 10, "a list of topics is late"


def _read_all(client: socket.socket) -> None:
    """What was left unread comes whole."""
    for _ in range(_PIPELINED):
        size = int.from_bytes(_read(client, 4), "big")
        assert size > _WANTED // 2, "a fetch of a client that has paused returns less"
        _read(client, size)


def _read(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = client.recv(size - len(found))
        assert data, "a client that has paused lost its connection"
        found += data
    return bytes(found)
