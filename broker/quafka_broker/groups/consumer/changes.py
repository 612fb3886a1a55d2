"""The changes of a group that are not in the log yet. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.facts import TOPICS
from quafka_broker.groups.consumer.member import ConsumerGroupMember
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.group import GroupChange


class Changes:
    """Collects changed facts until the caller takes them for the log."""

    def __init__(
        self, members: Mapping[str, ConsumerGroupMember], subscriptions: Subscriptions
    ) -> None:
        self._members = members
        self._subscriptions = subscriptions
        self._own = False
        self._changed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._packed: dict[str, bytes] | None = None  # while `taken_in_steps` runs

    def __bool__(self) -> bool:
        return self._own or bool(self._changed) or bool(self._gone)

    def mark_own(self) -> None:
        """Note that the epochs have changed."""
        self._own = True

    def mark_topics(self) -> None:
        """Note that the metadata of topics has changed."""
        self.mark(TOPICS)

    def mark(self, member_id: str) -> None:
        """Note a changed member."""
        self._gone.pop(member_id, None)
        self._changed[member_id] = None
        if self._packed is not None:
            self._packed.pop(member_id, None)

    def mark_gone(self, member_id: str) -> None:
        """Note a removed member."""
        self._changed.pop(member_id, None)
        self._gone[member_id] = None
        if self._packed is not None:
            self._packed.pop(member_id, None)

    def take(self, own: dict[str, object]) -> GroupChange:
        """All changes since the last time; `own` is the group's own fact."""
        change = GroupChange(
            own if self._own else None,
            {each: self._fact(each) for each in self._changed},
            list(self._gone),
        )
        self._own = False
        self._changed, self._gone = {}, {}
        return change

    def take_in_steps(self) -> Generator[None, None, dict[str, bytes]]:
        """The members that have changed; yields after each.

        Other changes may be taken meanwhile, and stored first. So their members are left out here.
        """
        assert self._packed is None, "changes are being taken already"
        packed: dict[str, bytes] = {}
        self._packed = packed
        todo, self._changed = self._changed, {}
        for each in todo:
            if each not in self._changed and each not in self._gone and self._is_there(each):
                packed[each] = self._fact(each)
            yield
        self._packed = None
        return packed

    def put_back(self, change: GroupChange) -> None:
        """Put back a change that was taken but is not in the log: it is part of the next one."""
        self._own = self._own or change.own is not None
        for each in (*change.members, *change.gone):
            if self._is_there(each):
                self.mark(each)
            else:
                self.mark_gone(each)

    def _is_there(self, each: str) -> bool:
        return each == TOPICS or each in self._members

    def _fact(self, each: str) -> bytes:
        if each == TOPICS:
            return facts.of_topics(self._subscriptions)
        return facts.of_member(self._members[each])
