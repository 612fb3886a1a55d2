"""Members of consumer groups without a client library, so that one process can be thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Self, TypeVar, cast

from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Message
from quafka_proto.schema.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

MEMBER_ID_REQUIRED, UNKNOWN_MEMBER, REBALANCE = 79, 25, 27
LOADING, NOT_THERE, MOVED = 14, 15, 16
M = TypeVar("M", bound=Message)


class Connection:
    """One connection; one call after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address))

    async def call(self, request: Message, response_type: type[M], version: int) -> M:
        self._writer.write(b"".join(encode_request(next(self._numbers), "raw", request, version)))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        _, at = decode_response_header(response_type, version, frame)
        return cast(M, decode(response_type, version, frame, at))

    def close(self) -> None:
        self._writer.close()


async def find_coordinator(connection: Connection, group: str) -> None:
    """Wait until there is one: Apache Kafka makes a topic first."""
    async with asyncio.timeout(60):
        while True:
            request = FindCoordinatorRequest(key=group)
            answer = await connection.call(request, FindCoordinatorResponse, 3)
            if not answer.error_code:
                return
            await asyncio.sleep(0.1)


@dataclass(slots=True, eq=False)
class RawMember:
    """One member. Its metadata is opaque; a leader gives each member its number in the group."""

    connection: Connection
    group: str
    id: str = ""
    generation: int = -1
    assignment: bytes = b""
    session_ms: int = 30_000
    others: list[str] = field(default_factory=list[str])
    """All members, where it leads."""

    async def join(self) -> int:
        """Join, as often as it takes; the error."""
        while True:
            error = await self.join_once()
            if error not in (MEMBER_ID_REQUIRED, LOADING, NOT_THERE, MOVED):
                return error

    async def join_once(self) -> int:
        """Send one request; the error. It may be MEMBER_ID_REQUIRED, with the id."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=60_000,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
        )
        answer = await self.connection.call(request, JoinGroupResponse, 5)
        self.id = answer.member_id or self.id
        self.generation = answer.generation_id
        self.others = [member.member_id for member in answer.members]
        return answer.error_code

    async def sync(self) -> int:
        """Get the assignment; the leader brings all. The error."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            assignments=[
                SyncGroupRequestAssignment(member_id=other, assignment=b"%d" % number)
                for number, other in enumerate(self.others)
            ],
        )
        answer = await self.connection.call(request, SyncGroupResponse, 3)
        self.assignment = answer.assignment
        return answer.error_code

    async def settle(self) -> None:
        """Join and sync until there is an assignment."""
        while True:
            error = await self.join() or await self.sync()
            if not error:
                return
            assert error in (REBALANCE, UNKNOWN_MEMBER), error
            if error == UNKNOWN_MEMBER:
                self.id = ""

    async def heartbeat(self) -> int:
        request = self.heartbeat_request()
        return (await self.connection.call(request, HeartbeatResponse, 3)).error_code

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id
        )

    async def leave(self) -> None:
        assert await self.leave_once() == 0

    async def leave_once(self) -> int:
        """Leave; the error."""
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.id)]
        )
        answer = await self.connection.call(request, LeaveGroupResponse, 3)
        return answer.error_code or answer.members[0].error_code

    async def commit(self, topic: str, offsets: Sequence[int]) -> int:
        """Commit the offsets of partitions 0, 1, ...; the first error."""
        parts = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            for partition, offset in enumerate(offsets)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
        )
        answer = await self.connection.call(request, OffsetCommitResponse, 8)
        return next((p.error_code for p in answer.topics[0].partitions if p.error_code), 0)

    async def committed(self) -> dict[tuple[str, int], int]:
        """All committed offsets of the group."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)]
        )
        (found,) = (await self.connection.call(request, OffsetFetchResponse, 8)).groups
        assert found.error_code == 0
        return {
            (topic.name, part.partition_index): part.committed_offset
            for topic in found.topics
            for part in topic.partitions
        }


async def members(address: tuple[str, int], groups: Sequence[str]) -> list[RawMember]:
    """One member, with a connection of its own, for each of these group names."""
    made: list[RawMember] = []
    for at in range(0, len(groups), 100):
        some = groups[at : at + 100]
        connections = await asyncio.gather(*(Connection.open(address) for _ in some))
        made += [RawMember(c, group) for c, group in zip(connections, some, strict=True)]
    return made
