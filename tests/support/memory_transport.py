"""The transport of a client's connection, without a network."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """Collects what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.paused = 0
        self.gone = False
        self.buffered = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.paused -= 1

    def is_closing(self) -> bool:
        return self.gone

    def abort(self) -> None:
        self.gone = True

    def close(self) -> None:
        self.gone = True

    def answered(self) -> list[int]:
        """The correlation ids of the answers written, in order."""
        found: list[int] = []
        at = 0
        while at < len(self.written):
            size = int.from_bytes(self.written[at : at + 4], "big")
            found.append(int.from_bytes(self.written[at + 4 : at + 8], "big"))
            at += 4 + size
        return found
