"""Members of a consumer group under a clock that the test sets: what each is told, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.rebalance import RebalancingGroup, Saved
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage
from quafka_mesh_ops.ops.group_offsets import CommitOffsets
from quafka_mesh_ops.ops.groups import (
    JoinGroup,
    JoinGroupResp,
    Leaver,
    SyncGroup,
    SyncGroupResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import JoinGroupRequestProtocol, SyncGroupRequestAssignment

SESSION, REBALANCE = 10, 60
DELAY = 6
"""The initial delay is three seconds, and three more when a second member comes."""


@dataclass(eq=False)
class Told:
    """The answers to one member's joins or syncs."""

    answers: list[Any] = field(default_factory=list[Any])

    def __call__(self, answer: JoinGroupResp | SyncGroupResp) -> None:
        self.answers.append(answer)

    @property
    def parked(self) -> bool:
        return not self.answers

    @property
    def error(self) -> ErrorCode:
        (answer,) = self.answers
        return ErrorCode(answer.error_code)

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        assert answer.error_code == 0, self.error
        return answer


class Clocked:
    """A group, its time, and what it wanted to be durable: `save_now` False leaves that to
    `finish_saving`."""

    def __init__(
        self,
        limits: GroupLimits = GroupLimits(),  # noqa: B008 - frozen
        save_now: bool = True,
        first_id: int = 1,
        usage: OrgUsage | None = None,
    ) -> None:
        ids = count(first_id)
        self.group = ClassicGroup(
            "g",
            limits,
            self._save,
            lambda prefix: f"{prefix}-{next(ids)}",
            usage=usage or OrgUsage(),
        )
        self.now = 0.0
        self.saved: list[dict[str, Any]] = []
        self._waiting: list[Saved] = []
        self._save_now = save_now

    def _save(self, _group: RebalancingGroup, stored: dict[str, Any], saved: Saved) -> None:
        self.saved.append(stored)
        self._waiting.append(saved)
        if self._save_now:
            self.finish_saving()

    @property
    def saving(self) -> bool:
        return bool(self._waiting)

    def finish_saving(self, ok: bool = True) -> None:
        while self._waiting:
            self._waiting.pop(0)(ok, self.now)

    def pass_time(self, seconds: float) -> None:
        """Time passes; every timer fires when it is due."""
        until = self.now + seconds
        while self.group.wake_at <= until:
            self.now = max(self.now, self.group.wake_at)
            self.group.tick(self.now)
        self.now = until

    def join(
        self,
        member_id: str = "",
        instance: str = "",
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        **changes: Any,
    ) -> Told:
        values: dict[str, Any] = {
            "protocol_type": "consumer",
            "session_timeout_ms": SESSION * 1000,
            "rebalance_timeout_ms": REBALANCE * 1000,
            "client_id": "c",
            **changes,
        }
        told = Told()
        op = JoinGroup(
            "g",
            member_id,
            instance,
            protocols=[JoinGroupRequestProtocol(*each) for each in protocols],
            **values,
        )
        self.group.join(op, self.now, told)
        return told

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        instance: str = "",
        **changes: Any,
    ) -> Told:
        told = Told()
        rows = [SyncGroupRequestAssignment(*row) for row in (assignments or {}).items()]
        now = self.group.generation if generation is None else generation
        self.group.sync(SyncGroup("g", now, member_id, instance, rows, **changes), self.now, told)
        return told

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance: str = ""
    ) -> ErrorCode:
        now = self.group.generation if generation is None else generation
        return self.group.heartbeat(now, member_id, instance, self.now)

    def leave(self, *members: tuple[str, str]) -> list[ErrorCode]:
        return self.group.leave([Leaver(*member) for member in members], self.now)

    def may_commit(
        self, member_id: str = "", generation: int = -1, instance: str = ""
    ) -> ErrorCode:
        return self.group.may_commit(
            CommitOffsets("g", generation, member_id, instance, []), self.now
        )

    def stable(self, *instances: str) -> list[str]:
        """Bring a group with these members ("": dynamic) to Stable; their ids, the leader first."""
        told = [self.join(instance=instance) for instance in instances]
        self.pass_time(DELAY)
        ids: list[str] = [each.answer.member_id for each in told]
        synced = [self.sync(member, instance=i) for member, i in zip(ids, instances, strict=True)]
        assert not any(each.parked for each in synced)
        return ids
