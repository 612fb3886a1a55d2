"""A consumer of a classic group: eager or cooperative rebalances (KIP-429)."""

from __future__ import annotations

import asyncio

from quafka_proto.consumer_protocol import CONSUMER, assigned_partitions, assignment_of
from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.groups import (
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
from tests.sim.clients import assigning
from tests.sim.clients.answers import NO_MEMBER
from tests.sim.clients.job import Job, Place
from tests.sim.clients.member import REBALANCE_S, GroupMember
from tests.sim.clients.wire import LostError

_SESSION_S = 6.0
_BEAT_S = 2.0
_EXPELLED = NO_MEMBER | {E.ILLEGAL_GENERATION}


class ClassicConsumer(GroupMember):
    """Joins, syncs, and sends heartbeats."""

    protocol = "classic"

    def __init__(self, job: Job, group: str, topics: list[str], *, cooperative: bool) -> None:
        super().__init__(job, group, topics)
        self._cooperative = cooperative
        self._protocol = "cooperative-sticky" if cooperative else "range"
        self._must_join = True

    async def _step(self) -> None:
        if self._must_join:
            await self._join()
        else:
            await self.work()

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            if self._must_join:
                continue
            member = self.member, self.epoch
            request = HeartbeatRequest(
                group_id=self.group, generation_id=self.epoch, member_id=self.member
            )
            try:
                answer = await self.coordinator.call(request, HeartbeatResponse)
            except LostError:
                continue
            if answer.error_code and member == (self.member, self.epoch):
                self.refused(answer.error_code)

    async def _leave(self) -> None:
        await self.commit()
        self.release(self.owned, leaving=True)
        if self.member:
            request = LeaveGroupRequest(
                group_id=self.group, members=[MemberIdentity(member_id=self.member)]
            )
            await self.coordinator.call(request, LeaveGroupResponse)

    def refused(self, code: int) -> None:
        """Rejoin if the group rebalances; start over if it has gone on without this member."""
        if code == E.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif code in _EXPELLED:
            self._must_join = True
            self.lose()
            self.epoch = -1
            if code != E.ILLEGAL_GENERATION:
                self.member = ""

    # --- rebalances -------------------------------------------------------------------------

    async def _join(self) -> None:
        """One attempt to become a member of the next generation. Raises LostError."""
        if not await self.find_coordinator():
            return
        await self._before_join()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=round(_SESSION_S * 1000),
            rebalance_timeout_ms=round(REBALANCE_S * 1000),
            member_id=self.member,
            protocol_type=CONSUMER,
            protocols=[
                JoinGroupRequestProtocol(
                    name=self._protocol,
                    metadata=assigning.subscription(self.subscription, self.owned, self.epoch),
                )
            ],
        )
        within = REBALANCE_S + 5
        answer = await self.coordinator.call(request, JoinGroupResponse, within=within)
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            self.member = answer.member_id
        elif answer.error_code:
            await self._refused_to_join(answer.error_code)
        else:
            self.member, self.epoch = answer.member_id, answer.generation_id
            await self._sync(answer)

    async def _before_join(self) -> None:
        """Give up everything, or in cooperative groups nothing yet."""
        if not self.owned:
            return
        try:
            await self.commit()
        except LostError:
            await self.coordinator.back_off()
        if not self._cooperative:
            self.release(self.owned)

    async def _refused_to_join(self, code: int) -> None:
        self.refused(code)
        if code not in _EXPELLED and code != E.REBALANCE_IN_PROGRESS:
            await self.coordinator.back_off()

    async def _sync(self, joined: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member,
            protocol_type=CONSUMER,
            protocol_name=self._protocol,
            assignments=await self._assignments(joined),
        )
        within = REBALANCE_S + 5
        answer = await self.coordinator.call(request, SyncGroupResponse, within=within)
        if answer.error_code:
            await self._refused_to_join(answer.error_code)
            return
        self._must_join = False
        assigned = {
            (name, partition)
            for name, its in assigned_partitions(bytes(answer.assignment)).items()
            for partition in its
        }
        await self._after_sync(assigned)

    async def _after_sync(self, assigned: set[Place]) -> None:
        revoked = self.owned - assigned
        self.gain(assigned - self.owned)
        if not revoked:
            return
        self._must_join = True  # others get the revoked ones in the next generation
        try:
            await self.commit()
        finally:
            self.release(revoked & self.owned)

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """What the leader brings; others bring nothing."""
        if joined.leader != self.member or joined.skip_assignment:
            return []
        topics = await self.topics.find(*self.subscription)
        places = [(name, n) for name, topic in topics.items() for n in range(topic.partitions)]
        claims = {each.member_id: assigning.claims(each.metadata) for each in joined.members}
        found = assigning.assign(places, claims, cooperative=self._cooperative)
        return [
            SyncGroupRequestAssignment(
                member_id=member, assignment=assignment_of(0, assigning.by_name(its))
            )
            for member, its in found.items()
        ]
