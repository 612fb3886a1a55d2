"""The records of a handshake, and of a whole connection, in pieces of any size."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quafka_gateway.edge.tls.records import MOST_BYTES, HandshakeRecords, NotTlsError
from quafka_gateway.edge.tls.transport import TlsTransport
from quafka_loop import clock
from tests.support.certificates import Authority
from tests.support.memory_transport import MemoryTransport

RECORDS = st.lists(st.tuples(st.integers(20, 23), st.binary(max_size=300)), max_size=20)


def encoded(kind: int, content: bytes) -> bytes:
    return bytes([kind, 3, 1]) + len(content).to_bytes(2, "big") + content


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of these sizes, again and again."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


@pytest.fixture(autouse=True, scope="module")
def _no_cost() -> Iterator[None]:
    """What a record costs under Hypothesis is no measure."""
    with patch.object(clock, "thread_time", return_value=0.0):
        yield


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=5)


@given(RECORDS, st.binary(max_size=4), SIZES)
def test_only_whole_records_pass(
    records: list[tuple[int, bytes]], rest: bytes, sizes: list[int]
) -> None:
    first = encoded(22, b"hello")
    whole = first + b"".join(encoded(*each) for each in records)
    tail = encoded(23, rest)[:-1]
    intake = HandshakeRecords()
    passed = b""
    for piece in cut(whole + tail, sizes):
        out = intake.feed(piece)
        passed += out
        assert whole.startswith(passed)
    assert passed == whole
    assert intake.rest == tail


@given(st.binary(min_size=1, max_size=50))
def test_other_bytes_are_refused_or_wait_for_more(data: bytes) -> None:
    try:
        out = HandshakeRecords().feed(data)
    except NotTlsError:
        return
    assert data[0] == 22
    assert data.startswith(out)


def test_a_handshake_has_a_most_length() -> None:
    intake, record = HandshakeRecords(), encoded(22, bytes(16_000))
    for _ in range(MOST_BYTES // len(record)):
        intake.feed(record)
    with pytest.raises(NotTlsError):
        intake.feed(record)


class Application:
    """Collects what a transport gives it."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = 0

    def connection_made(self, transport: object) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.received += data


class Pair:
    """A client and a `TlsTransport` after their handshake, joined by hand."""

    def __init__(self, folder: Path) -> None:
        ca = Authority(folder)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(ca.issue("server", ("localhost",)))
        client = ssl.create_default_context(cafile=ca.file)
        self.client_in, self.client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.client_in, self.client_out, server_hostname="localhost")
        tls = server.wrap_bio(incoming, outgoing, server_side=True)
        for _ in range(3):
            for side in (self.client, tls):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                self.client_in.write(outgoing.read())
                incoming.write(self.client_out.read())
        self.application = Application()
        self.socket = MemoryTransport()
        self.transport = TlsTransport(self.socket, tls, incoming, outgoing, self.application)  # type: ignore[arg-type]
        self.transport.begin()

    def feed(self, data: bytes) -> None:
        """Bytes from the network to the transport, at most a buffer at a time."""
        while data:
            buffer = self.transport.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.transport.buffer_updated(count)
            data = data[count:]

    def answered(self) -> bytes:
        """What the client reads of all that was written."""
        self.client_in.write(self.socket.written)
        self.socket.written = b""
        found = b""
        while True:
            try:
                piece = self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return found
            if not piece:
                return found
            found += piece


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


LENGTHS = st.lists(st.one_of(st.integers(1, 200), st.integers(1, 60_000)), max_size=8)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Pair:
    return Pair(folder)


@settings(deadline=None)  # up to a megabyte each, on a machine with other work
@given(lengths=LENGTHS, sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=4))
def test_any_messages_in_any_pieces_arrive(
    pair: Pair, lengths: list[int], sizes: list[int]
) -> None:
    """One connection for all examples: each goes on where the last one has ended."""
    messages = [random.randbytes(length) for length in lengths]
    pair.application.received = b""
    for message in messages:
        at = 0
        while at < len(message):
            at += pair.client.write(message[at:])
    for piece in cut(pair.client_out.read(), sizes):
        pair.feed(piece)
    assert pair.application.received == b"".join(messages)
    for message in messages:
        pair.transport.write(message)
    pair.transport.writelines([memoryview(message) for message in messages])
    assert pair.answered() == 2 * b"".join(messages)


def test_a_damaged_record_ends_the_connection(folder: Path) -> None:
    pair = Pair(folder)
    pair.client.write(b"x" * 100)
    sealed = bytearray(pair.client_out.read())
    sealed[-1] ^= 1
    pair.feed(bytes(sealed))
    assert pair.application.received == b""
    assert pair.socket.gone
    pair.transport.write(b"too late")  # is dropped
    assert pair.transport.is_closing()


def test_records_that_cost_too_much_end_the_connection(folder: Path) -> None:
    pair = Pair(folder)
    with patch.object(clock, "thread_time", side_effect=count(0, 0.01)):
        turns = 0
        while not pair.socket.gone:
            pair.client.write(bytes(8_000))
            pair.feed(pair.client_out.read())
            turns += 1
    assert turns == 6, "after the second window"


def test_both_sides_say_farewell(folder: Path) -> None:
    pair = Pair(folder)
    pair.transport.close()
    assert pair.socket.gone
    assert pair.answered() == b""
    assert pair.client.read(1) == b""  # close_notify, not just the end of the bytes
    other = Pair(folder)
    with pytest.raises(ssl.SSLWantReadError):
        other.client.unwrap()
    other.feed(other.client_out.read())
    assert other.socket.gone
