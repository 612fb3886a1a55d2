"""The client of one connection."""

from __future__ import annotations

from typing import NamedTuple


class ConnectedClient(NamedTuple):
    """The address of a client and the number of its connection.

    Attributes:
        host: the client's address without its port; "?" before it is known.
        port: the client's port.
        serial: the connection's number in this gateway. It is the lane of its produces.
    """

    host: str
    port: int
    serial: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def kafka_host(self) -> str:
        """The address as Kafka shows it among the members of a group."""
        return f"/{self.host}"
