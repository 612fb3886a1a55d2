"""Chunks inside the TLS connection: their order, their bounds, and every bad input. No sockets."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quafka_mesh_ops.bulk.chunks import (
    MAX_CHUNK,
    MAX_UNFINISHED,
    WINDOW,
    ChunkKind,
    ChunkReader,
    TotalReader,
    data_header,
    empty_chunk,
    encode_received,
)
from quafka_mesh_ops.bulk.sender import BulkSender
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.frames import MAX_FRAME, Frame, Tag, frame_header
from quafka_mesh_ops.ops.base import Buffer

READY = empty_chunk(ChunkKind.READY)
MIB = 1 << 20


def answer(size: int, fill: int = 0) -> list[Buffer]:
    """A frame in two pieces, the second of which has `size` bytes."""
    return [frame_header(Tag.RESPONSE, size), bytes([fill]) * size]


def feed(reader: ChunkReader, data: bytes) -> list[Frame]:
    """Pass bytes to a reader."""
    left = memoryview(data)

    def read_into(buffer: memoryview) -> int:
        nonlocal left
        count = min(len(buffer), len(left))
        buffer[:count], left = left[:count], left[count:]
        return count

    return reader.read(read_into)


def ready_reader() -> ChunkReader:
    reader = ChunkReader()
    assert feed(reader, READY) == []
    return reader


def drain(sender: BulkSender, reader: ChunkReader) -> list[bytes]:
    """Send everything; returns the payloads in the order of their completion."""
    done: list[bytes] = []
    while chunk := sender.next_chunk():
        done += [bytes(payload) for _, payload in feed(reader, b"".join(chunk))]
        sender.acknowledge(reader.received)
    return done


def test_a_small_answer_overtakes_large_ones_that_keep_advancing() -> None:
    sender, reader = BulkSender(), ready_reader()
    sender.add(1, answer(50 * MIB, 1))
    sender.add(2, answer(50 * MIB, 2))
    for _ in range(4):
        feed(reader, b"".join(sender.next_chunk()))
    sender.add(3, answer(20_000, 3))
    found: list[int] = []
    for _ in range(3):
        found += [len(payload) for _, payload in feed(reader, b"".join(sender.next_chunk()))]
    assert found == [20_000]
    before = reader.received
    for number in range(4, 104):  # small ones without end: the oldest answer gets every other chunk
        sender.add(number, answer(20_000))
        feed(reader, b"".join(sender.next_chunk()))
        sender.acknowledge(reader.received)
    assert reader.received - before > 40 * MAX_CHUNK


def test_no_more_than_the_window_is_under_way() -> None:
    sender, reader = BulkSender(), ready_reader()
    sender.add(1, answer(2 * WINDOW))
    while chunk := sender.next_chunk():
        feed(reader, b"".join(chunk))
    assert WINDOW <= sender.sent < WINDOW + MAX_CHUNK
    assert sender.backlog == 2 * WINDOW + 5
    sender.acknowledge(MAX_CHUNK)
    feed(reader, b"".join(sender.next_chunk()))
    assert sender.next_chunk() == []
    sender.acknowledge(reader.received)
    assert [len(payload) for payload in drain(sender, reader)] == [2 * WINDOW]
    assert sender.backlog == 0


def test_incomplete_answers_are_bounded_in_number_and_bytes() -> None:
    sender = BulkSender()
    for number in range(40):
        sender.add(number, answer(200_000))
    streams = {sender.next_chunk()[0][1:5] for _ in range(80)}
    assert len(streams) <= 40
    sender = BulkSender()
    for number in range(3):
        sender.add(number, [bytes(MAX_FRAME)])
    for _ in range(20):
        sender.next_chunk()
    assert len(sender._under_way) == 2


def test_an_answer_may_be_dropped_before_during_and_after_it_is_sent() -> None:
    sender, reader = BulkSender(), ready_reader()
    sender.add(1, answer(MIB, 1))
    sender.drop(1)
    assert not sender.backlog
    assert sender.next_chunk() == []
    sender.add(2, answer(MIB, 2))
    sender.add(3, answer(MIB, 3))
    for _ in range(2):
        feed(reader, b"".join(sender.next_chunk()))
    sender.drop(2)
    assert sender.next_chunk() == [empty_chunk(ChunkKind.RESET, 2)]
    feed(reader, empty_chunk(ChunkKind.RESET, 2))
    payloads: list[bytes] = []
    while chunk := sender.next_chunk():
        payloads += [bytes(payload) for _, payload in feed(reader, b"".join(chunk))]
    assert payloads == [bytes([3]) * MIB]
    sender.drop(3)  # sent, but not acknowledged
    assert [request_id for request_id, _ in sender.unacknowledged()] == [3]
    sender.acknowledge(reader.received)
    assert not sender.backlog
    assert sender.unacknowledged() == []
    sender.drop(77)


def test_what_is_not_acknowledged_is_known_in_order() -> None:
    sender, reader = BulkSender(), ready_reader()
    for number in range(1, 5):
        sender.add(number, answer(300_000, number))
    while not feed(reader, b"".join(sender.next_chunk())):
        pass
    sender.acknowledge(reader.received)
    left = sender.unacknowledged()
    assert len(left) == 3
    assert [number for number, _ in left] == sorted(number for number, _ in left)
    assert sender.backlog == sum(len(piece) for _, frame in left for piece in frame)


def test_an_acknowledgement_of_more_or_of_less_is_an_error() -> None:
    sender = BulkSender()
    sender.add(1, answer(1_000))
    sender.next_chunk()
    with pytest.raises(ProtocolError):
        sender.acknowledge(sender.sent + 1)
    sender.acknowledge(500)
    with pytest.raises(ProtocolError):
        sender.acknowledge(499)


@pytest.mark.parametrize(
    "data",
    [
        data_header(1, 10, 10),
        READY + READY,
        READY + b"\x09" + bytes(12),
        READY + data_header(1, 1 << 20, MAX_CHUNK + 1),
        READY + data_header(1, 10, 0),
        READY + data_header(1, 10, 11),
        READY + data_header(1, 0, 0),
        READY + data_header(1, MAX_FRAME + 7, 1),
        READY + data_header(1, 10, 5) + bytes(5) + data_header(1, 11, 5),
        READY + data_header(1, 10, 5) + bytes(5) + data_header(1, 10, 6),
        READY + b"\x02" + bytes(11) + b"\x01",
        b"\x00" + bytes(11) + b"\x01",
        READY + data_header(1, 2, 2) + b"\xff\x00",
        READY + data_header(1, 3, 3) + frame_header(Tag.RESPONSE, 9) + b"x",
        READY + data_header(1, 4, 4) + 2 * frame_header(Tag.RESPONSE, 0),
    ],
)
def test_what_are_no_chunks_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        feed(ChunkReader(), data)


@pytest.mark.parametrize("size", [2, MAX_FRAME])
def test_too_many_incomplete_answers_are_refused(size: int) -> None:
    reader = ready_reader()
    parts = [data_header(stream, size, 1) + b"\x02" for stream in range(100)]
    with pytest.raises(ProtocolError, match="too many incomplete answers"):
        feed(reader, b"".join(parts))


@given(
    parts=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda stream, size, length: data_header(stream, size, length) + b"\x02" * length,
                st.integers(0, 3),
                st.integers(0, 60),
                st.integers(0, 60),
            ),
            st.builds(lambda stream: empty_chunk(ChunkKind.RESET, stream), st.integers(0, 3)),
        ),
        max_size=12,
    )
)
@example(parts=[data_header(1, 0x2301_0000, 0)])  # refused: it must not be counted as held
def test_any_bytes_are_read_or_refused(parts: list[bytes]) -> None:
    reader = ready_reader()
    with suppress(ProtocolError):
        for part in parts:
            feed(reader, part)
    assert 0 <= reader._unfinished_bytes <= MAX_UNFINISHED
    held = sum(len(frame.bytes) for frame in reader._unfinished.values())
    assert held == reader._unfinished_bytes


def test_acknowledgements_may_be_fragmented() -> None:
    reader = TotalReader()
    data = encode_received(7) + encode_received(9)
    assert [reader.feed(data[at : at + 5]) for at in range(0, 20, 5)] == [None, 7, None, 9]


@given(
    sizes=st.lists(st.integers(0, 400_000), min_size=1, max_size=8),
    seed=st.integers(0, 1 << 30),
)
def test_frames_arrive_whole_however_they_are_interleaved_and_cut(
    sizes: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    sender, reader = BulkSender(), ready_reader()
    waiting = dict(enumerate(sizes, 1))
    kept = dict(waiting)
    found: list[int] = []
    sent = bytearray()
    while waiting or sender.backlog:
        if waiting and chance.random() < 0.5:
            number = min(waiting)
            sender.add(number, answer(waiting.pop(number), number))
        if chance.random() < 0.1:
            number = chance.choice(list(sizes and kept) or [0])
            if number not in waiting and number not in found:
                sender.drop(number)
                kept.pop(number, None)
        sent += b"".join(sender.next_chunk())
        cut = chance.randrange(len(sent) + 1)
        for _, payload in feed(reader, bytes(sent[:cut])):
            found += [number for number in kept if bytes(payload) == bytes([number]) * kept[number]]
        del sent[:cut]
        sender.acknowledge(reader.received)
    assert set(kept) <= set(found) | {n for n, size in kept.items() if not size}
