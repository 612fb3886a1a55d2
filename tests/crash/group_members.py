"""Members of a group of KIP-848 in the crash workload: they join, stay and leave.

After a power cut a member is there if the last answer said so, at that epoch or a later one, unless
it had asked to leave by then; and no partition has two members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

from quafka_broker.groups.served_consumer import ServedConsumerGroup
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import ConsumerGroupTopicPartitions
from tests.unit.broker.tools import ORG

GROUP, NAMES = "members", ("m0", "m1", "m2")
_JOIN, _LEAVE = 0, -1
_REFUSED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


@dataclass
class Beat:
    """The numbers of disk operations at a heartbeat and its answer, and the epoch in that."""

    asked: int
    answered: int | None = None
    epoch: int = _JOIN


@dataclass
class Members:
    """The heartbeats of each member, in their order: one at a time."""

    beats: dict[str, list[Beat]] = field(default_factory=dict)
    _epochs: dict[str, int] = field(default_factory=dict)
    _owned: dict[str, list[ConsumerGroupTopicPartitions]] = field(default_factory=dict)

    async def beat_one(
        self, state: BrokerState, rng: Random, now: Callable[[], int], topics: Collection[str]
    ) -> None:
        """A heartbeat of a random member.

        Raises:
            StorageError: the log has failed.
        """
        name = rng.choice(NAMES)
        epoch = self._epochs.get(name, _JOIN)
        joins = epoch == _JOIN
        sent = _LEAVE if not joins and rng.random() < 0.2 else epoch
        op = ConsumerHeartbeat(
            GROUP, name, sent, is_whole=True,
            rebalance_timeout_ms=60_000 if joins else -1,
            topics=sorted(topics) if joins else None,
            owned=[] if joins else self._owned.get(name, []),
        )  # fmt: skip
        beat = Beat(now())
        self.beats.setdefault(name, []).append(beat)
        answer = await state.groups.consumer.heartbeat(ORG, op)
        self._epochs[name] = _JOIN
        if answer.error_code == ErrorCode.NONE:
            beat.answered, beat.epoch = now(), answer.member_epoch
            self._epochs[name] = max(_JOIN, answer.member_epoch)
            if answer.assignment is not None:
                self._owned[name] = answer.assignment
        elif answer.error_code not in _REFUSED:
            code = ErrorCode(answer.error_code)
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE, code.name  # a full disk
            if state.log.failure is not None:
                raise StorageError("the log has failed")

    def verify(self, state: BrokerState, operations: int) -> None:
        """Check what is left after a cut after a number of operations."""
        entry = state.groups.find(ORG, GROUP)
        group = entry.group if entry is not None else None
        members = group.core.members if isinstance(group, ServedConsumerGroup) else {}
        for name, beats in self.beats.items():
            mine = [beat for beat in beats if beat.asked <= operations]
            if not mine or mine[-1].answered is None or mine[-1].answered > operations:
                continue
            if mine[-1].epoch == _LEAVE:
                assert name not in members, f"{name} has left"
            else:
                assert name in members, f"{name} is in the group"
                assert members[name].epoch >= mine[-1].epoch
        owners = Counter(
            (topic_id, number)
            for member in members.values()
            for held in (member.assigned, member.revoking)
            for topic_id, numbers in held.items()
            for number in numbers
        )
        assert not owners or max(owners.values()) == 1, "a partition has two members"
