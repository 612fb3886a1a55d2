"""Small calls of a bystander at a steady rate: each kind on a connection of its own.

A latency is counted from when the call was due, so that a call that waits counts for those that
should have been made meanwhile, too. These are made as soon as it is answered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from quafka_client.sasl import Credentials
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.hostile.account import (
    COMMIT,
    HEARTBEAT,
    JOIN,
    LIST_OFFSETS,
    METADATA,
    PRODUCER_ID,
    Ledger,
)
from tests.support.raw_group import Connection, RawMember
from tests.support.sasl_users import log_in

_PER_SECOND = 10
_JOINS_PER_SECOND = 4
_PATIENCE = 60.0
_PAUSE = 0.05
_LATEST = -1
_REJOINED = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION,
}  # fmt: skip
"""Errors after which members join again."""

Call = Callable[[Connection], Awaitable[int]]
"""Makes a call; returns its error code."""


class SmallOps:
    """The connections and their tasks, in one event loop."""

    def __init__(
        self, bootstrap: str, topic: str, settings: Mapping[str, str], ledger: Ledger
    ) -> None:
        """`settings`: those of librdkafka; with a mechanism, the clients log in over TLS."""
        host, port = bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self._topic = topic
        self._settings = settings
        self._ledger = ledger
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._answered: dict[str, float] = {}
        """When the last call of each kind that was answered was due."""
        self._joining = _Member(f"{topic}-joins")
        self._beating = _Member(f"{topic}-beats")

    def run(self) -> None:
        """Until `stop`, in the calling thread."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    def caught_up(self, since: float) -> bool:
        """Whether all calls that were due by this time (`time.monotonic`) have been answered."""
        return bool(self._answered) and min(self._answered.values()) > since

    def stop(self) -> None:
        """End `run`. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._over.set)

    async def _run(self) -> None:
        kinds: dict[str, tuple[Call, int]] = {
            METADATA: (self._metadata, _PER_SECOND),
            LIST_OFFSETS: (self._list_offsets, _PER_SECOND),
            COMMIT: (self._commit, _PER_SECOND),
            PRODUCER_ID: (self._producer_id, _PER_SECOND),
            JOIN: (self._joining.come_and_go, _JOINS_PER_SECOND),
            HEARTBEAT: (self._beating.beat, _PER_SECOND),
        }
        self._answered = dict.fromkeys(kinds, 0.0)
        calling = [
            asyncio.ensure_future(self._repeat(kind, call, 1 / rate))
            for kind, (call, rate) in kinds.items()
        ]
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait([*calling, over], return_when=asyncio.FIRST_COMPLETED)
        for each in calling:
            each.cancel()
        for ended in await asyncio.gather(*calling, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _repeat(self, kind: str, call: Call, period: float) -> None:
        calls = _Calls(kind, call, self._open, self._ledger)
        due = self._loop.time()
        while True:
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            ended = self._ledger.took if await calls.succeeds() else self._ledger.gave_up
            ended(kind, self._loop.time() - due)
            self._answered[kind] = due
            due += period

    async def _open(self) -> Connection:
        mechanism = self._settings.get("sasl.mechanism")
        if mechanism is None:
            return await Connection.open(self._address)
        tls = ssl.create_default_context(cafile=self._settings["ssl.ca.location"])
        connection = Connection(*await asyncio.open_connection(*self._address, ssl=tls))
        name, password = self._settings["sasl.username"], self._settings["sasl.password"]
        await log_in(connection, Credentials(mechanism, name, password))
        return connection

    async def _metadata(self, connection: Connection) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        return (await connection.call(request, MetadataResponse, 12)).topics[0].error_code

    async def _list_offsets(self, connection: Connection) -> int:
        part = ListOffsetsPartition(partition_index=0, timestamp=_LATEST)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(self._topic, [part])])
        answer = await connection.call(request, ListOffsetsResponse, 7)
        return answer.topics[0].partitions[0].error_code

    async def _commit(self, connection: Connection) -> int:
        return await RawMember(connection, f"{self._topic}-commits").commit(self._topic, [1])

    async def _producer_id(self, connection: Connection) -> int:
        request = InitProducerIdRequest(transactional_id=None)
        return (await connection.call(request, InitProducerIdResponse, 4)).error_code


class _Calls:
    """Makes the calls of one kind, each again until it succeeds or fails for good."""

    def __init__(
        self, kind: str, call: Call, connect: Callable[[], Awaitable[Connection]], ledger: Ledger
    ) -> None:
        self._kind = kind
        self._call = call
        self._connect = connect
        self._ledger = ledger
        self._connection: Connection | None = None

    async def succeeds(self) -> bool:
        """Make a call; False: it has failed."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while (again := await self._attempt()) is None:
                    await asyncio.sleep(_PAUSE)
            return again
        except TimeoutError:
            self._ledger.failed(self._kind, f"no answer within {_PATIENCE:.0f} s")
            self._disconnect()
            return False

    async def _attempt(self) -> bool | None:
        """Whether it has succeeded; None: make it again."""
        try:
            if self._connection is None:
                self._connection = await self._connect()
            code = await self._call(self._connection)
        except (OSError, EOFError) as e:
            self._ledger.retried(self._kind, f"connection lost: {type(e).__name__}")
            self._disconnect()
            return None
        if not code:
            return True
        error = ErrorCode(code)
        if error.retriable or error in _REJOINED:
            self._ledger.retried(self._kind, error.name)
            return None
        self._ledger.failed(self._kind, error.name)
        return False

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


class _Member:
    """The only member of a group; it continues on another connection where it was."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._member: RawMember | None = None
        self._joined = False

    async def come_and_go(self, connection: Connection) -> int:
        """Join, get an assignment and leave; the first error."""
        member = self._at(connection)
        code = await self._join(member) or await member.leave_once()
        if not code:
            self._joined, member.id = False, ""
        return self._noted(code)

    async def beat(self, connection: Connection) -> int:
        """A heartbeat of a member that has joined; the first error."""
        member = self._at(connection)
        return self._noted(await self._join(member) or await member.heartbeat())

    def _at(self, connection: Connection) -> RawMember:
        if self._member is None:
            self._member = RawMember(connection, self._group)
        self._member.connection = connection
        return self._member

    async def _join(self, member: RawMember) -> int:
        if self._joined:
            return 0
        code = await member.join_once()
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            code = await member.join_once()
        code = code or await member.sync()
        self._joined = not code
        return code

    def _noted(self, code: int) -> int:
        if code in _REJOINED:
            self._joined = False
        if code == ErrorCode.UNKNOWN_MEMBER_ID and self._member is not None:
            self._member.id = ""
        return code
