"""The next step of a member towards its target. Pure.

A member first gives up the partitions that it must, then moves to the epoch of the target and gets
the free ones. A partition is free when no member has it or still has to give it up. So a member
that gives up nothing delays only the members that wait for its partitions, and no partition ever
has two members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from quafka_broker.groups.consumer.member import ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.topics import Held, Partitions, Target, overlap


def advance(
    member: ConsumerGroupMember,
    epoch: int,
    target: Target,
    owned: Partitions | None,
    taken: Callable[[bytes], Collection[int]],
) -> bool:
    """Take the member's next step; returns whether the member changes.

    `epoch` is that of the target; `owned`: the partitions that the member reports, None without a
    report. `taken` returns the partitions of a topic that members have.
    """
    still_revoking = bool(member.revoking) and (owned is None or overlap(owned, member.revoking))
    if still_revoking and not member.recheck:
        return False
    kept, lost = _split(member.assigned, target)
    if still_revoking:
        if not lost:
            return False
        _merge(lost, member.revoking)
    elif not lost or not (owned is None or overlap(owned, lost)):
        return _reach(member, epoch, target, kept, taken)
    member.progress = MemberProgress.UNREVOKED
    member.assigned, member.revoking = kept, lost
    return True


def _split(assigned: Held, target: Target) -> tuple[Held, Held]:
    """The partitions that the member keeps, and those that it gives up."""
    kept: Held = {}
    lost: Held = {}
    for topic_id, epochs in assigned.items():
        wanted = target.get(topic_id, frozenset())
        if wanted.issuperset(epochs):
            kept[topic_id] = epochs
            continue
        stay = {number: at for number, at in epochs.items() if number in wanted}
        if stay:
            kept[topic_id] = stay
        lost[topic_id] = {number: at for number, at in epochs.items() if number not in wanted}
    return kept, lost


def _merge(into: Held, more: Held) -> None:
    for topic_id, epochs in more.items():
        into[topic_id] = {**into.get(topic_id, {}), **epochs}


def _reach(
    member: ConsumerGroupMember,
    epoch: int,
    target: Target,
    kept: Held,
    taken: Callable[[bytes], Collection[int]],
) -> bool:
    """Move to the target's epoch with all of its partitions that are free."""
    waits = False
    assigned = dict(kept)
    for topic_id, wanted in target.items():
        has = assigned.get(topic_id)
        missing = wanted if has is None else wanted.difference(has)
        if not missing:
            continue
        others = taken(topic_id)
        free: Collection[int] = missing
        if others:
            mine = member.revoking.get(topic_id, {})
            free = [number for number in missing if number in mine or number not in others]
            waits = waits or len(free) < len(missing)
        if free:
            new = dict.fromkeys(free, epoch)
            assigned[topic_id] = new if has is None else {**has, **new}
    progress = MemberProgress.UNRELEASED if waits else MemberProgress.STABLE
    changed = (
        member.epoch != epoch
        or member.progress is not progress
        or bool(member.revoking)
        or member.assigned != assigned
    )
    member.epoch, member.progress = epoch, progress
    member.assigned, member.revoking = assigned, {}
    return changed
