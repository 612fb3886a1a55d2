"""redis-py for links: raw answers, no repeated commands, deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from quafka_broker.sources.redis.bounded import OpenConnections, connection_class
from quafka_mesh_ops.settings import split_address

_CONNECT_SECONDS = 2.0
_READ_SIZE = 1 << 16

Part = bytes | str | int
Command = tuple[Part, ...]
Answer = Any
"""An answer of Redis: bytes, a number, None, an exception or a list of them."""


class ClientLimits(NamedTuple):
    """The limits of a server's resources.

    Attributes:
        seconds: the longest wait for an answer.
        answer_bytes: the longest answer to one command.
    """

    seconds: float
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """How to open connections to a server."""

    db: int
    tls: bool
    user: str | None
    password: str | None
    ca_file: Path | None


class Client:
    """A few connections to one address. Failed commands are not repeated."""

    def __init__(
        self, address: str, access: RedisAccess, limits: ClientLimits, connections: int
    ) -> None:
        host, port = split_address(address)
        self._opened = OpenConnections()
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "db": access.db,
            "username": access.user,
            "password": access.password,
            "protocol": 2,
            "socket_timeout": limits.seconds,
            "socket_connect_timeout": min(_CONNECT_SECONDS, limits.seconds),
            "socket_read_size": _READ_SIZE,
            "retry": Retry(NoBackoff(), 0),
            "connection_class": connection_class(access.tls, limits.answer_bytes, self._opened),
        }
        if access.tls and access.ca_file is not None:
            options["ssl_ca_certs"] = str(access.ca_file)
        pool = BlockingConnectionPool(
            max_connections=connections, timeout=limits.seconds, **options
        )
        self._redis: Any = Redis.from_pool(pool)
        self._redis.response_callbacks.clear()

    async def call(self, *command: Part) -> Answer:
        """Send a command; returns the answer. Raises redis-py's errors."""
        return await self._redis.execute_command(*command)

    async def pipeline(self, commands: Sequence[Command]) -> list[Answer]:
        """Send commands together; returns the answers, with exceptions for error replies."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.response_callbacks.clear()
        for command in commands:
            pipe.execute_command(*command)
        return cast("list[Answer]", await pipe.execute(raise_on_error=False))

    async def close(self) -> None:
        """Close the connections."""
        with suppress(Exception):
            await self._redis.aclose(close_connection_pool=True)

    def drop(self) -> None:
        """Close at once all connections that `close` has left, and open no more."""
        self._opened.close()
