"""When a response is handed to the transport, and which bytes of it."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from quafka_gateway.edge.file_sender import TURN_BYTES, Turn
from quafka_gateway.edge.progress import RequiredProgress
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.memory import OrgResponses, ResponseMemory
from quafka_gateway.stats import GatewayStats
from tests.support.memory_transport import MemoryTransport
from tests.support.org_turns import Alone, Waiting

MIB = 1 << 20


class Breaking(MemoryTransport):
    """Breaks on the first write, as a socket whose peer has gone does."""

    writes = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writes += 1
        self.abort()


def writer(
    transport: asyncio.Transport, turn: Turn | None = None
) -> tuple[ResponseWriter, OrgResponses]:
    memory = ResponseMemory(64 * MIB).of(1)
    writer = ResponseWriter(
        transport,
        memory,
        GatewayStats(),
        RequiredProgress(60, 1_000),
        lambda: None,
        turn or Alone(),
    )
    return writer, memory


def test_a_response_leaves_whole_and_in_order() -> None:
    transport = MemoryTransport()
    writing, memory = writer(transport)
    writing.write([b"head", bytes(3 * MIB), b"tail"])
    assert transport.written == b"head" + bytes(3 * MIB) + b"tail"
    assert writing.empty
    assert memory.held == 0


def test_a_client_that_does_not_read_receives_nothing_until_it_reads() -> None:
    transport = MemoryTransport()
    writing, memory = writer(transport)
    writing.pause()
    writing.write([b"later"])
    assert transport.written == b""
    assert memory.held == 5
    writing.resume()
    assert transport.written == b"later"


def test_a_short_response_that_the_system_takes_in_part_is_counted_until_it_is_taken() -> None:
    class Full(MemoryTransport):
        def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
            super().write(data)
            self.buffered += 3
            writing.pause()

    transport = Full()
    writing, memory = writer(transport)
    writing.write([b"short"])
    writing.write([b"later"])
    assert transport.written == b"short"
    assert memory.held == writing.unread == 8
    assert not writing.ready
    transport.buffered = 0
    writing.resume()
    assert transport.written == b"shortlater"
    assert memory.held == writing.unread == 3
    transport.buffered = 0
    writing.resume()
    assert memory.held == 0


def test_a_short_response_is_not_written_to_a_client_that_has_gone() -> None:
    transport = MemoryTransport()
    writing, memory = writer(transport)
    transport.abort()
    writing.write([b"short"])
    assert transport.written == b""
    writing.close()
    assert memory.held == 0


def test_nothing_more_is_written_once_the_client_has_gone() -> None:
    transport = Breaking()
    writing, memory = writer(transport)
    writing.write([bytes(10 * MIB)])
    assert transport.writes == 1
    writing.close()
    assert memory.held == 0


def test_a_client_that_reads_nothing_or_too_slowly_is_detected() -> None:
    transport = MemoryTransport()
    writing, _ = writer(transport)
    writing.pause()
    writing.write([bytes(5 * MIB)])
    assert writing.seconds_stuck(1_000.0) == 0  # the first call has nothing to compare with
    assert writing.seconds_stuck(1_030.0) == 30
    assert writing.seconds_stuck(1_061.0) == math.inf
    transport.buffered = 0
    writing.resume()
    assert writing.unread == 0
    transport.buffered = 5
    writing.write([b"later"])
    assert writing.seconds_stuck(2_000.0) == 0
    transport.buffered = 0
    writing.write([])
    transport.buffered = 5
    assert writing.seconds_stuck(2_061.0) == 0


def test_a_client_that_goes_on_reading_has_all_the_time() -> None:
    transport = MemoryTransport()
    writing, _ = writer(transport)
    assert writing.seconds_stuck(0.0) == 0
    transport.buffered = MIB
    writing.write([bytes(MIB)])
    for second in range(5, 1_000, 5):
        transport.buffered -= 5_000
        assert writing.seconds_stuck(float(second)) == 0
    assert writing.seconds_stuck(1_050.0) == 55
    assert writing.seconds_stuck(1_056.0) == math.inf


def test_an_org_that_shares_the_loop_writes_a_part_of_a_long_response_in_each_turn() -> None:
    transport, turn = MemoryTransport(), Waiting()
    response = [bytes([number]) * MIB for number in range(3)]
    written, memory = writer(transport, turn)
    written.write([*response])
    turns = 0
    while turn.work:
        assert len(transport.written) == (turns + 1) * TURN_BYTES
        assert memory.held == written.unread == 3 * MIB - len(transport.written)
        assert not written.ready
        turn.work.popleft()()
        turns += 1
    assert transport.written == b"".join(response)
    assert turns == 3 * MIB // TURN_BYTES - 1
    assert written.ready


def test_a_client_that_goes_before_its_org_has_its_turn_is_forgotten() -> None:
    transport, turn = MemoryTransport(), Waiting()
    written, memory = writer(transport, turn)
    written.write([bytes(4 * MIB)])
    transport.abort()
    written.close()
    before = transport.written
    turn.work.popleft()()
    assert transport.written == before
    assert not memory.held
