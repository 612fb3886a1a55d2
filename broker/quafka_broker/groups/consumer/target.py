"""Computes the target of each member from all subscriptions. Pure.

The computation works on a copy, made in its first steps, so the group may continue meanwhile.
Changes before they are copied are part of the target; they also raise the group's epoch, so that
another target follows. The steps may run in slices of the event loop. Used by all groups whose
partitions the server assigns.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from quafka_broker.groups.consumer.assignors.spec import Assignor, MemberSpec
from quafka_broker.groups.consumer.topics import Target, TopicMetadata
from quafka_loop.slices import at_once

Copied = Generator[None, None, tuple[list[MemberSpec], Mapping[bytes, TopicMetadata]]]
"""Copies the members, and the topics by id; yields after short steps."""


@dataclass(slots=True)
class Computation:
    """One computation of a target.

    Attributes:
        epoch: the group's epoch for which the target is computed.
        changed: the result: the members whose target changes, each with its new one.
    """

    epoch: int
    assignor: Assignor
    copied: Copied
    changed: list[tuple[MemberSpec, Target]] = field(
        default_factory=list[tuple[MemberSpec, Target]]
    )

    def steps(self) -> Generator[None, None, None]:
        """Compute; yields after short steps (see `quafka_loop.slices.in_slices`)."""
        members, topics = yield from self.copied
        targets = yield from self.assignor(members, topics)
        for spec in members:
            target = targets[spec.id]
            if target != spec.target:
                self.changed.append((spec, target))
            yield

    def run(self) -> None:
        """Compute at once."""
        at_once(self.steps())
