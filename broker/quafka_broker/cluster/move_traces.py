"""Traces of shards that come to this broker and leave it.

A move is rare, and explains why ops have waited: each is traced, whatever the sampling ratio. Both
brokers make a trace of their own; that of a takeover has a link to the offer.
"""

from __future__ import annotations

from quafka_broker.chain.takeover import Seen
from quafka_proto.chain_format import ShardManifest
from quafka_telemetry import semconv
from quafka_telemetry.tracing import AttributeValue, Span, Steps, TraceContext, Tracer

NEW, RELEASED, EARLIER_RUN, LEASE_ENDED = "new", "released", "earlier run", "lease ended"
"""Why a shard is taken over."""
PLACED_ELSEWHERE, STOPPING, DISK_LOST = "placed elsewhere", "stopping", "disk lost"
"""Why a shard is given up."""


class MoveTraces:
    """Makes the traces of one broker."""

    def __init__(self, tracer: Tracer, node: str) -> None:
        """`node`: the node id of this broker."""
        self._tracer = tracer
        self._node = node

    def take_over(
        self,
        shard: int,
        seen: Seen,
        offer: TraceContext | None = None,
        begun: int | None = None,
    ) -> Span:
        """Begin the trace of a takeover.

        Args:
            seen: the facts of the decision.
            offer: the trace of the offer by the last owner.
            begun: when the takeover began, in ns since the epoch; None: now.
        """
        manifest = ShardManifest(shard) if seen.manifest is None else seen.manifest.manifest
        about: dict[str, AttributeValue] = {
            semconv.SHARD: shard,
            semconv.NODE: self._node,
            semconv.SHARD_EPOCH: manifest.epoch + 1,
            semconv.REASON: self._reason(seen),
        }
        if manifest.owner is not None:
            about[semconv.PREVIOUS_OWNER] = manifest.owner.node
        span = self._tracer.own_root(semconv.TAKE_OVER, about, begun)
        if offer is not None:
            span.link((offer,))
        return span

    def _reason(self, seen: Seen) -> str:
        if seen.manifest is None:
            return NEW
        owner = seen.manifest.manifest.owner
        if owner is None:
            return RELEASED
        return EARLIER_RUN if owner.node == self._node else LEASE_ENDED

    def give_up(self, shard: int, epoch: int, reason: str, to: str = "") -> Span:
        """Begin the trace of giving a shard up. `to`: the node of the next owner, if known."""
        about: dict[str, AttributeValue] = {
            semconv.SHARD: shard,
            semconv.NODE: self._node,
            semconv.SHARD_EPOCH: epoch,
            semconv.REASON: reason,
        }
        if to:
            about[semconv.NEXT_OWNER] = to
        return self._tracer.own_root(semconv.GIVE_UP, about)

    def steps(self, span: Span) -> Steps:
        """The steps of a move."""
        return Steps(self._tracer, span.context)
