"""What of an answer is handed to a transport, and when."""

from __future__ import annotations

import asyncio
from typing import Any

from quafka_gateway.request_stats import GatewayStats
from quafka_gateway.response_memory import ResponseMemory
from quafka_gateway.response_writer import ResponseWriter
from tests.support.memory_transport import MemoryTransport

MIB = 1 << 20


class Breaking(MemoryTransport):
    """Breaks on the first write, as a socket whose peer has gone does."""

    writes = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writes += 1
        self.abort()


def writer(transport: asyncio.Transport) -> tuple[ResponseWriter, ResponseMemory]:
    memory = ResponseMemory(64 * MIB)
    return ResponseWriter(transport, memory, GatewayStats()), memory


def test_an_answer_leaves_whole_and_in_order() -> None:
    transport = MemoryTransport()
    writing, memory = writer(transport)
    writing.write([b"head", bytes(3 * MIB), b"tail"])
    assert transport.written == b"head" + bytes(3 * MIB) + b"tail"
    assert writing.empty
    assert memory.held == 0


def test_a_client_that_does_not_read_is_given_nothing_until_it_does() -> None:
    transport = MemoryTransport()
    writing, memory = writer(transport)
    writing.pause()
    writing.write([b"later"])
    assert transport.written == b""
    assert memory.held == 5
    writing.resume()
    assert transport.written == b"later"


def test_nothing_more_is_written_once_the_client_has_gone() -> None:
    transport = Breaking()
    writing, memory = writer(transport)
    writing.write([bytes(10 * MIB)])
    assert transport.writes == 1
    writing.close()
    assert memory.held == 0
