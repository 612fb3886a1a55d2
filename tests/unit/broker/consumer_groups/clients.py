"""Members of a group as a test has them: they apply answers, and report what they own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from quafka_broker.groups.consumer.beat import JOIN, BeatAnswer, MemberHeartbeat
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.topics import TopicMetadata
from quafka_proto.errors import ErrorCode

REBALANCE_MS = 60_000


def topic(
    name: str, partitions: int, generation: int = 0, racks: tuple[frozenset[str], ...] = ()
) -> TopicMetadata:
    """A topic whose id is its name and its generation."""
    return TopicMetadata(f"{name}/{generation}".encode().ljust(16, b"."), name, partitions, racks)


def known(*topics: TopicMetadata) -> dict[str, TopicMetadata | None]:
    """Topics by name."""
    return {each.name: each for each in topics}


def joining(member_id: str, *names: str) -> MemberHeartbeat:
    """The first heartbeat of a member."""
    return MemberHeartbeat(
        member_id, JOIN, rebalance_timeout_ms=REBALANCE_MS, topic_names=names, owned={}
    )


def assigned(answer: BeatAnswer) -> dict[bytes, list[int]]:
    """The partitions of an answer that has an assignment."""
    assert answer.assignment is not None
    return {each: sorted(held) for each, held in answer.assignment.items()}


@dataclass
class Client:
    """A member that does what it is asked to."""

    group: ConsumerGroup
    id: str
    names: tuple[str, ...] = ()
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = JOIN
    owned: dict[bytes, set[int]] = field(default_factory=dict[bytes, set[int]])

    def join(self, now: float = 0.0, *topics: TopicMetadata) -> BeatAnswer:
        """Join, or join again."""
        self.epoch, self.owned = JOIN, {}
        beat = replace(
            joining(self.id, *self.names), instance_id=self.instance_id, assignor=self.assignor
        )
        return self.apply(self.group.heartbeat(beat, now, known(*topics)))

    def beat(self, now: float = 0.0) -> BeatAnswer:
        """Send a heartbeat that reports what the member owns."""
        beat = MemberHeartbeat(
            self.id, self.epoch, self.instance_id, assignor=self.assignor, owned=self.owned
        )
        return self.apply(self.group.heartbeat(beat, now))

    def apply(self, answer: BeatAnswer) -> BeatAnswer:
        """Do what an answer asks for."""
        if answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each: set(held) for each, held in answer.assignment.items()}
        return answer

    @property
    def count(self) -> int:
        """How many partitions it owns."""
        return sum(map(len, self.owned.values()))


def settle(*clients: Client, now: float = 0.0) -> int:
    """Send heartbeats until nothing changes; returns how many rounds that took."""
    for rounds in range(1, 20):
        before = [(each.epoch, dict(each.owned)) for each in clients]
        for each in clients:
            each.beat(now)
        if before == [(each.epoch, each.owned) for each in clients]:
            return rounds
    raise AssertionError("the group does not settle")
