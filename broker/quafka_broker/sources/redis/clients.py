"""The open connections to one address of a server, and the first requests there."""

from __future__ import annotations

from dataclasses import dataclass, field

from redis import exceptions

from quafka_broker.sources.redis import scripts
from quafka_broker.sources.redis.client import Answer, Client
from quafka_broker.sources.redis.requests import Connected


@dataclass(slots=True)
class Clients:
    """Open connections to one address."""

    readers: Client
    writer: Client
    watcher: Client
    watcher_id: int = -1
    scripts: dict[bytes, str] = field(default_factory=dict[bytes, str])

    async def close(self) -> None:
        """Close the connections."""
        clients = (self.readers, self.writer, self.watcher)
        try:
            for client in clients:
                await client.close()
        finally:
            for client in clients:
                client.drop()


async def greet(clients: Clients, address: str) -> Connected:
    """Look at a server, and load the scripts."""
    try:
        role = await _optional(clients.readers, "ROLE")
        info = await _optional(clients.readers, "INFO", "server")
        for script in (scripts.BOUNDS, scripts.APPEND):
            await load_script(clients, script)
        watcher_id = await _optional(clients.watcher, "CLIENT", "ID")
        clients.watcher_id = watcher_id if isinstance(watcher_id, int) else -1
    except BaseException:
        await clients.close()
        raise
    return Connected(address, role[0].decode() if role else "", _version(info))


async def load_script(clients: Clients, script: bytes) -> None:
    """Load a script into the server; EVALSHA then runs it."""
    try:
        loaded = await clients.readers.call("SCRIPT", "LOAD", scripts.FLAGS[script] + script)
    except exceptions.NoPermissionError:
        raise
    except exceptions.ResponseError:  # Redis 6 has no flags
        loaded = await clients.readers.call("SCRIPT", "LOAD", script)
    clients.scripts[script] = loaded.decode()


async def _optional(client: Client, *command: str) -> Answer:
    """An answer, or None if access rules forbid the command."""
    try:
        return await client.call(*command)
    except exceptions.NoPermissionError:
        return None


def _version(info: Answer) -> str:
    if not isinstance(info, bytes):
        return ""
    lines = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    valkey = lines.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {lines.get('redis_version', '?')}"
