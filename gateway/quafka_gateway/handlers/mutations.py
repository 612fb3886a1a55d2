"""Changes of partitions, charged to the client's controller_mutation_rate (KIP-599).

A client that knows the error THROTTLING_QUOTA_EXCEEDED is refused while it owes changes; an older
one is served, and waits afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_proto.errors import ErrorCode

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
MESSAGE = "The throttling quota has been exceeded."
_TOPICS_PER_SLICE = 500


class Mutations:
    """The changes of one request."""

    def __init__(self, context: RequestContext, strict_from: int) -> None:
        """`strict_from`: the first version whose clients know the error."""
        quotas = context.quotas
        self._quota = None if quotas is None else quotas.mutations
        self._context = context
        self._strict = context.version >= strict_from

    def may_go_on(self) -> bool:
        """Whether the next change may be made."""
        if self._quota is None or not self._strict:
            return True
        seconds = self._quota.debt(clock.monotonic())
        if seconds:
            self._context.throttle(QuotaKind.MUTATIONS, seconds)
        return not seconds

    def made(self, count: int) -> None:
        """Charge partitions that were created or deleted."""
        if self._quota is None or count <= 0:
            return
        seconds = self._quota.charge(count, clock.monotonic())
        if seconds and not self._strict:
            self._context.throttle(QuotaKind.MUTATIONS, seconds)

    async def partitions(
        self, names: Sequence[str], ids: Sequence[bytes]
    ) -> dict[str | bytes, int]:
        """How many partitions topics have, by name and by id; empty if there is no quota."""
        if self._quota is None or not (names or ids):
            return {}
        found: dict[str | bytes, int] = {}
        with suppress(BrokerUnavailableError):  # the change itself will fail
            op = DescribeTopics(list(names), list(ids))
            answer = await self._context.tenant.topics.describe(op, self._context.trace)
            slices = Slices(_TOPICS_PER_SLICE)
            for topic in answer.topics:
                await slices.done()
                if not topic.error_code:
                    found[topic.topic] = found[topic.topic_id] = topic.partitions
        return found
