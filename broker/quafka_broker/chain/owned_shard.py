"""The part of a shard that its folder needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quafka_broker.chain.chain import DurableEnd
from quafka_proto.chain_format import ShardManifest


class OwnedShard(Protocol):
    """The shard that owns a folder; implemented by `Chain`."""

    @property
    def shard(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def next_seq(self) -> int:
        """The number of the next chain object."""
        ...

    @property
    def durable(self) -> DurableEnd:
        """The position up to which the chain is durable."""
        ...

    def update_blocking(
        self, change: Callable[[ShardManifest], ShardManifest], seconds: float | None = None
    ) -> ShardManifest:
        """Change the manifest from a thread, within `seconds`. Raises FencedError, OSError."""
        ...
