"""Messages with descriptors over a unix socket, and the wire form of places."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops import descriptors
from quafka_mesh_ops.descriptors import (
    DescriptorMessage,
    DescriptorMessageKind,
    encode_hello,
    encode_message,
)
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.places import Extent, ObjectPlace, extents_of, pack_extents, unpack_extents

KEY = "000000000001-0000abcd"
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(b"contents")
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 60), st.integers(1, 1 << 31), st.integers(1, 1 << 20)),
        min_size=1,
    )
)
def test_extents_come_back(rows: list[tuple[int, int, int]]) -> None:
    extents: list[Extent] = []
    offset = 0
    for position, length, count in rows:
        extents.append(Extent(position, length, offset, count))
        offset += count
    packed = pack_extents(extents)
    assert unpack_extents(packed) == extents
    assert extents_of([ObjectPlace(KEY, packed), ObjectPlace(KEY, packed)]) == extents * 2
    assert extents_of(None) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(23),
        bytes(25),
        pack_extents([(0, 0, 0, 1)]),
        pack_extents([(0, 1, 0, 0)]),
        pack_extents([(0, 1, 5, 2), (1, 1, 6, 1)]),
    ],
)
def test_extents_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_extents(data)


def test_messages_arrive_with_their_descriptor(pair: Pair, file: int) -> None:
    ours, theirs = pair
    descriptors.send(ours, encode_message(DescriptorMessageKind.WELCOME, number=1 << 40))
    descriptors.send(ours, encode_message(DescriptorMessageKind.HANDED, KEY), file)
    descriptors.send(ours, encode_message(DescriptorMessageKind.WITHDRAWN, KEY))
    descriptors.send(ours, encode_message(DescriptorMessageKind.REVOKED))
    assert descriptors.receive_message(theirs) == DescriptorMessage(
        DescriptorMessageKind.WELCOME, number=1 << 40
    )
    handed = descriptors.receive_message(theirs)
    assert handed is not None
    assert handed[:3] == (DescriptorMessageKind.HANDED, 0, KEY)
    assert os.pread(handed.fd, 100, 0) == b"contents"
    assert not os.get_inheritable(handed.fd)
    os.close(handed.fd)
    assert descriptors.receive_message(theirs) == DescriptorMessage(
        DescriptorMessageKind.WITHDRAWN, key=KEY
    )
    assert descriptors.receive_message(theirs) == DescriptorMessage(DescriptorMessageKind.REVOKED)
    assert descriptors.receive_message(theirs) is None
    ours.close()
    with pytest.raises(EOFError):
        descriptors.receive_message(theirs)


def test_a_hello_comes_back(pair: Pair) -> None:
    ours, theirs = pair
    assert descriptors.receive_hello(ours) is None
    descriptors.send(theirs, encode_hello(b"t" * 32, 256))
    assert descriptors.receive_hello(ours) == (b"t" * 32, 256)
    assert descriptors.same_user(ours)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"GET / HTTP/1.1\r\n",
        encode_hello(bytes(32), 1)[:-1],
        encode_hello(bytes(32), 1) + b"x",
        encode_hello(bytes(32), 0),
        encode_hello(bytes(32), 1 << 20),
        bytes(5_000),
    ],
)
def test_what_is_no_hello_is_refused(pair: Pair, data: bytes) -> None:
    ours, theirs = pair
    theirs.send(data)
    with pytest.raises(ProtocolError):
        descriptors.receive_hello(ours)


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\x09", b"\x01\x00", b"\x02", b"\x02" + KEY.encode(), b"\x03", b"\x03\xff\xff",
     b"\x04x", bytes(5_000)],
)  # fmt: skip
def test_what_is_no_message_is_refused(pair: Pair, data: bytes) -> None:
    ours, theirs = pair
    ours.send(data)
    with pytest.raises(ProtocolError):
        descriptors.receive_message(theirs)


@pytest.mark.parametrize("count", [1, 2, 4, 20])
def test_descriptors_in_the_wrong_message_are_closed(pair: Pair, file: int, count: int) -> None:
    ours, theirs = pair
    rights = array.array("i", [file] * count)
    kind = DescriptorMessageKind.WITHDRAWN if count == 1 else DescriptorMessageKind.HANDED
    before = open_files()
    ours.sendmsg([encode_message(kind, KEY)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    with pytest.raises(ProtocolError):
        descriptors.receive_message(theirs)
    assert open_files() == before


def test_only_a_file_that_is_open_for_reading_is_taken(pair: Pair, tmp_path: Path) -> None:
    ours, theirs = pair
    writable = os.open(tmp_path / "writable", os.O_RDWR | os.O_CREAT)
    folder = os.open(tmp_path, os.O_RDONLY)
    reading, writing = os.pipe()
    before = open_files()
    for fd in (writable, folder, reading):
        descriptors.send(ours, encode_message(DescriptorMessageKind.HANDED, KEY), fd)
        with pytest.raises(ProtocolError):
            descriptors.receive_message(theirs)
    assert open_files() == before
    for fd in (writable, folder, reading, writing):
        os.close(fd)


def test_sending_never_waits(pair: Pair, file: int) -> None:
    ours, _ = pair

    def send_on() -> None:
        for _ in range(100_000):
            descriptors.send(ours, encode_message(DescriptorMessageKind.HANDED, KEY), file)

    with pytest.raises(OSError):
        send_on()
