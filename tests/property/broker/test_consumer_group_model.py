# pyright: reportPrivateUsage=false
"""A model of a consumer group and its members, in which everything is lost, repeated or late.

The members of the model hold partitions as real clients do: from the answer that assigns them to
the answer that takes them away. The group never lets two members in it hold one partition; and once
all members do as they are asked, it gives out every partition, evenly, within a few heartbeats. A
restart may come at any time, with the last change stored or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.beat import (
    JOIN,
    LEAVE,
    LEAVE_FOR_NOW,
    BeatAnswer,
    MemberHeartbeat,
)
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember
from quafka_broker.groups.consumer.ownership import Ownership
from quafka_broker.groups.consumer.reconciliation import advance
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer.topics import Partitions, Target, TopicMetadata
from quafka_broker.groups.group import GroupChange
from quafka_loop.slices import at_once
from quafka_proto.errors import ErrorCode
from tests.support.suites import examples

NAMES = ("a", "b", "c")
ROUNDS = 8
"""Heartbeats of every member until a group is stable, at most."""
_SEEN = frozenset("a")
"""What the pattern of the model matches, of the topics that exist."""


@dataclass
class Client:
    """A member: what it last knew, and what it holds."""

    id: str
    names: tuple[str, ...] | None
    regex: str | None
    instance_id: str | None = None
    epoch: int = JOIN
    held: dict[bytes, set[int]] = field(default_factory=dict[bytes, set[int]])
    wanted: dict[bytes, set[int]] = field(default_factory=dict[bytes, set[int]])
    away: bool = False
    sends_all: bool = True
    classic: bool = False
    """Whether it uses the classic protocol, with cooperative rebalancing."""

    def places(self) -> set[tuple[bytes, int]]:
        return {(topic, number) for topic, numbers in self.held.items() for number in numbers}

    def give_up(self) -> None:
        """Stop holding what it has been asked to give up."""
        self.held = {
            topic: kept
            for topic, numbers in self.held.items()
            if (kept := numbers & self.wanted.get(topic, set()))
        }

    def beat(self) -> MemberHeartbeat:
        beat = MemberHeartbeat(self.id, self.epoch, self.instance_id, owned=dict(self.held))
        if not self.sends_all and self.epoch != JOIN:
            return beat
        return replace(
            beat, rebalance_timeout_ms=30_000, topic_names=self.names, topic_regex=self.regex
        )

    def apply(self, answer: BeatAnswer) -> None:
        self.epoch = answer.member_epoch
        self.sends_all = False
        if answer.assignment is not None:
            self.wanted = {topic: set(numbers) for topic, numbers in answer.assignment.items()}
            fresh = {topic: set(numbers) for topic, numbers in self.wanted.items()}
            for topic, numbers in self.held.items():
                fresh.setdefault(topic, set()).update(numbers)
            self.held = fresh


class GroupModel(RuleBasedStateMachine):
    """The model; each rule is one thing that happens."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.group = ConsumerGroup("g")
        self.own: dict[str, object] | None = None
        self.stored: dict[str, bytes] = {}
        self.clients: dict[str, Client] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.born = 0

    @initialize(small=st.sampled_from([0, 1_000]))
    def begin(self, small: int) -> None:
        self.settings = ConsumerGroupSettings(small=small, assignment_interval=0.0)
        self.group.settings = self.settings

    # --- the log ----------------------------------------------------------------------------

    def store(self, change: GroupChange) -> None:
        self.own = change.own or self.own
        self.stored.update(change.members)
        for member_id in change.gone:
            self.stored.pop(member_id, None)

    def step(self, fate: str, what: Callable[[], BeatAnswer | None]) -> BeatAnswer | None:
        """Run a step of the group; returns its answer, if that arrives.

        fate: "stored", "unsent" (stored, the answer is lost), "refused" (by the log, no answer), or
        "crash" (before it is stored).
        """
        answer = what()
        if fate == "crash":
            self.restart()
            return None
        change = self.group.take_change()
        if fate == "refused":
            self.group.not_stored(change)
            return None
        self.store(change)
        return answer if fate == "stored" else None

    def restart(self) -> None:
        group = ConsumerGroup("g", self.settings)
        if self.own is not None:
            group.restore(self.own, self.stored, self.now)
        self.group = group

    def known(self) -> dict[str, TopicMetadata | None]:
        return {name: self.topics.get(name) for name in NAMES}

    def send(self, beat: MemberHeartbeat, fate: str) -> BeatAnswer | None:
        if beat.topic_regex:
            beat = replace(beat, regex_topics=_SEEN & self.topics.keys())
        return self.step(fate, lambda: self.group.heartbeat(beat, self.now, self.known()))

    def join_classic(self, client: Client, fate: str) -> BeatAnswer | None:
        """Send the heartbeat of a client of the classic protocol, and its JoinGroup if need be."""
        member = self.group.members.get(client.id)
        if member is None:
            client.epoch, client.held, client.wanted = JOIN, {}, {}
        elif client.epoch == member.epoch and not client.sends_all:
            rejoins = self.group.beat_classic(member, self.now)
            self.store(self.group.take_change())
            if not rejoins:
                return BeatAnswer(member_epoch=client.epoch)
        client.sends_all = True
        beat = replace(client.beat(), topic_regex="")
        if member is not None:
            beat = replace(beat, member_epoch=member.epoch)
        side = ClassicSide(45.0, [("range", b"")])
        return self.step(fate, lambda: self.group.join_classic(beat, side, self.now, self.known()))

    def exchange(self, client: Client, fate: str = "stored") -> None:
        """Send a client's heartbeat; it applies the answer."""
        if client.classic:
            answer = self.join_classic(client, fate)
        else:
            answer = self.send(client.beat(), fate)
        if answer is None:
            client.sends_all = True
        elif answer.error is ErrorCode.NONE:
            client.apply(answer)
        else:
            fenced = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            assert answer.error in fenced, answer
            assert answer.error is not fenced[0] or client.id not in self.group.members, answer
            client.epoch, client.held, client.wanted = JOIN, {}, {}
            client.sends_all = True

    # --- what happens -----------------------------------------------------------------------

    fates = st.sampled_from(["stored"] * 4 + ["unsent", "refused", "crash"])

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        regex=st.booleans(),
        static=st.booleans(),
        classic=st.booleans(),
        fate=fates,
    )
    def join(self, names: set[str], regex: bool, static: bool, classic: bool, fate: str) -> None:
        self.born += 1
        client = Client(f"m{self.born}", tuple(sorted(names)), "a" if regex else "")
        if classic:
            client.classic, client.regex = True, ""
        client.instance_id = f"i{self.born}" if static else None
        self.clients[client.id] = client
        self.exchange(client, fate)

    @precondition(lambda self: self.present())
    @rule(data=st.data(), fate=fates, gives_up=st.booleans())
    def beat(self, data: st.DataObject, fate: str, gives_up: bool) -> None:
        client = data.draw(st.sampled_from(self.present()))
        if gives_up:
            client.give_up()
        self.exchange(client, fate)

    @precondition(lambda self: self.present())
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        """A heartbeat arrives twice."""
        client = data.draw(st.sampled_from(self.present()))
        if client.classic:
            return
        beat = client.beat()
        self.exchange(client)
        self.send(beat, "stored")

    @precondition(lambda self: self.present())
    @rule(data=st.data(), names=st.sets(st.sampled_from(NAMES)), regex=st.booleans(), fate=fates)
    def subscribe(self, data: st.DataObject, names: set[str], regex: bool, fate: str) -> None:
        client = data.draw(st.sampled_from(self.present()))
        client.names = tuple(sorted(names))
        client.regex = "a" if regex and not client.classic else ""
        client.sends_all = True
        self.exchange(client, fate)

    @precondition(lambda self: self.present())
    @rule(data=st.data(), fate=st.sampled_from(["stored", "unsent"]))
    def leave(self, data: st.DataObject, fate: str) -> None:
        client = data.draw(st.sampled_from(self.present()))
        self.send(MemberHeartbeat(client.id, LEAVE, client.instance_id), fate)
        del self.clients[client.id]

    @precondition(lambda self: any(c.instance_id for c in self.present()))
    @rule(data=st.data())
    def move_to_the_other_protocol(self, data: st.DataObject) -> None:
        """A static member is restarted with another setting, without leaving if it is classic."""
        static = [client for client in self.present() if client.instance_id]
        client = data.draw(st.sampled_from(static))
        if not client.classic:
            self.send(MemberHeartbeat(client.id, LEAVE_FOR_NOW, client.instance_id), "stored")
        client.classic, client.regex = not client.classic, ""
        self.come_back(client)

    @precondition(lambda self: any(c.instance_id and not c.classic for c in self.present()))
    @rule(data=st.data(), returns=st.booleans())
    def leave_for_now(self, data: st.DataObject, returns: bool) -> None:
        static = [c for c in self.present() if c.instance_id and not c.classic]
        client = data.draw(st.sampled_from(static))
        self.send(MemberHeartbeat(client.id, LEAVE_FOR_NOW, client.instance_id), "stored")
        client.away, client.held, client.wanted = True, {}, {}
        if returns:
            self.come_back(client)

    def come_back(self, client: Client) -> None:
        del self.clients[client.id]
        self.born += 1
        again = Client(f"m{self.born}", client.names, client.regex, client.instance_id)
        again.classic = client.classic
        self.clients[again.id] = again
        self.exchange(again)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 4), fate=fates)
    def grow(self, name: str, more: int, fate: str) -> None:
        before = self.topics.get(name)
        if before is not None and before.partitions > 12:
            return
        self.born += 1
        made = TopicMetadata(f"{name}{self.born}".encode().ljust(16), name, 0)
        before = before or made
        self.topics[name] = replace(before, partitions=before.partitions + more)
        self.news(fate)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), fate=fates)
    def delete(self, data: st.DataObject, fate: str) -> None:
        del self.topics[data.draw(st.sampled_from(sorted(self.topics)))]
        self.news(fate)

    def news(self, fate: str) -> None:
        def tell() -> None:
            self.group.learn(self.known())
            for regex in self.group.subscriptions.regexes:
                self.group.resolve(regex, _SEEN & self.topics.keys())

        self.step(fate, tell)

    @rule(seconds=st.sampled_from([1.0, 20.0, 31.0, 46.0]), fate=fates)
    def wait(self, seconds: float, fate: str) -> None:
        self.now += seconds
        self.step(fate, lambda: self.group.tick(self.now))

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(data=st.data())
    def assign(self, data: st.DataObject) -> None:
        """Compute a target; members send heartbeats before and while it is installed."""
        computation = self.group.begin_target(self.now)
        if computation is None:
            return
        computation.run()
        group = self.group
        steps = group.install(computation, self.now)
        next(steps)
        for client in self.present():
            if data.draw(st.booleans()):
                self.exchange(client)
        if data.draw(st.booleans()):
            self.store(at_once(steps))
        else:
            self.restart()

    # --- what holds -------------------------------------------------------------------------

    def present(self) -> list[Client]:
        return [client for client in self.clients.values() if not client.away]

    @invariant()
    def no_partition_has_two_members(self) -> None:
        holders: dict[tuple[bytes, int], str] = {}
        for client in self.present():
            member = self.group.members.get(client.id)
            if member is None:
                continue
            for place in client.places():
                assert place not in holders, (place, client.id, holders[place])
                holders[place] = client.id
                owned = (member.assigned, member.revoking)
                assert any(place[1] in held.get(place[0], ()) for held in owned), (place, client)

    @invariant()
    def nobody_holds_what_it_is_not_subscribed_to(self) -> None:
        for member in self.group.members.values():
            if member.is_at(self.group.assignment_epoch):
                ids = self.group.subscriptions.ids(member.names, member.regex)
                assert ids.issuperset(member.assigned) or self.group.state != "Stable"

    @rule()
    def converge(self) -> None:
        """All members do as they are asked from now on."""
        for client in [client for client in self.clients.values() if client.away]:
            self.come_back(client)
        strangers = self.group.members.keys() - self.clients.keys()
        if strangers:
            for member_id in strangers:
                self.group.remove(member_id, self.now)
            self.store(self.group.take_change())
        self.news("stored")
        for _ in range(ROUNDS):
            computation = self.group.begin_target(self.now)
            if computation is not None:
                computation.run()
                self.store(at_once(self.group.install(computation, self.now)))
            for client in self.present():
                client.give_up()
                self.exchange(client)
        if self.clients:
            assert self.group.state == "Stable", self.group.members
            self.check_that_all_is_assigned()

    def check_that_all_is_assigned(self) -> None:
        subscribed: dict[str, set[str]] = {}
        for client in self.clients.values():
            regex = _SEEN if client.regex else frozenset[str]()
            subscribed[client.id] = (set(client.names or ()) | regex) & self.topics.keys()
        for topic in self.topics.values():
            readers = {each for each, names in subscribed.items() if topic.name in names}
            for number in range(topic.partitions):
                holders = {c.id for c in self.clients.values() if (topic.id, number) in c.places()}
                assert len(holders) == bool(readers), (topic, number, holders)
                assert holders <= readers
        if len(set(map(frozenset, subscribed.values()))) == 1:
            sizes = [len(client.places()) for client in self.clients.values()]
            assert max(sizes) - min(sizes) <= 1, sizes

    def teardown(self) -> None:
        if hasattr(self, "settings"):
            self.converge()


_RUN = examples(
    120,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
_NO_SHRINKING = (Phase.explicit, Phase.generate)


def test_groups_keep_their_promises() -> None:
    run_state_machine_as_test(GroupModel, settings=_RUN)


# --- known defects: the model finds each ----------------------------------------------------


def _everything_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(self: Ownership, member: ConsumerGroupMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.id))

    def release(self: Ownership, assigned: object, revoking: object) -> None:
        pass

    def taken(_self: Ownership, _topic_id: bytes) -> Collection[int]:
        return ()

    monkeypatch.setattr(Ownership, "claim", claim)
    monkeypatch.setattr(Ownership, "release", release)
    monkeypatch.setattr(Ownership, "taken", taken)


def _revocations_are_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once_given_up(
        member: ConsumerGroupMember,
        epoch: int,
        target: Target,
        _owned: Partitions | None,
        taken: Callable[[bytes], Collection[int]],
    ) -> bool:
        return advance(member, epoch, target, {}, taken)

    monkeypatch.setattr("quafka_broker.groups.consumer.group.advance", at_once_given_up)


def _revocations_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    really = facts.of_member

    def of_member(member: ConsumerGroupMember) -> bytes:
        revoking, member.revoking = member.revoking, {}
        stored = really(member)
        member.revoking = revoking
        return stored

    monkeypatch.setattr(facts, "of_member", of_member)


def _leavers_keep_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    really = ConsumerGroup._remove

    def remove(self: ConsumerGroup, member: ConsumerGroupMember) -> None:
        held = dict(member.assigned)
        really(self, member)
        ghost = ConsumerGroupMember(member.id, assigned=held)
        self._ownership.claim(ghost)

    monkeypatch.setattr(ConsumerGroup, "_remove", remove)


def _static_members_lose_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: ConsumerGroup, member: ConsumerGroupMember) -> None:
        self._ownership.release(member.assigned, member.revoking)
        member.revoking, member.epoch = {}, LEAVE_FOR_NOW

    monkeypatch.setattr(ConsumerGroup, "_leave_for_now", leave)


@pytest.mark.parametrize(
    "defect",
    [
        _everything_is_free,
        _revocations_are_not_awaited,
        _revocations_are_not_stored,
        _leavers_keep_their_partitions,
        _static_members_lose_their_partitions,
    ],
)
def test_the_model_finds(
    defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    found = settings(
        _RUN,
        max_examples=1_000,
        stateful_step_count=45,
        database=None,
        phases=_NO_SHRINKING,
        derandomize=True,
    )
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(GroupModel, settings=found)
