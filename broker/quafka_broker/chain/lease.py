"""Leases: when a takeover is due. They decide who tries to write; no write depends on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from quafka_broker.chain.chain import Chain
from quafka_broker.chain.errors import FencedError
from quafka_proto.chain_format import ShardManifest

LEASE_MS = 4_000
RENEWED_EACH_S = 1.5


async def keep_lease(
    chain: Chain,
    clock: Callable[[], float],
    lease_ms: int = LEASE_MS,
    each_s: float = RENEWED_EACH_S,
) -> None:
    """Renew the lease until the chain fails or is closed. Idle owners notice takeovers here.

    Args:
        clock: wall clock, seconds since 1970.
    """
    while chain.failure is None:
        await asyncio.sleep(each_s)
        try:
            await chain.update(
                lambda now: replace(now, lease_until_ms=int(clock() * 1000) + lease_ms)
            )
        except FencedError:
            return


def should_take_over(manifest: ShardManifest | None, now_ms: int, node: str = "") -> bool:
    """Whether a takeover is due by the wall clock: no owner, a lease that is over, or owner `node`.

    A broker whose clock is ahead would take every shard again and again: where manifests are read
    regularly, use a `LeaseWatch`.
    """
    if manifest is None or manifest.owner is None:
        return True
    return manifest.lease_until_ms < now_ms or manifest.owner.node == node


class LeaseWatch:
    """Determines whether a lease is over from its renewals, not from any wall clock."""

    def __init__(self, lease_ms: int = LEASE_MS) -> None:
        self._lease_s = lease_ms / 1000
        self._nonce: str | None = None
        self._since = 0.0

    def is_over(self, manifest: ShardManifest | None, now: float) -> bool:
        """Whether the manifest, just read, has no owner or was not renewed for a whole lease.

        Args:
            now: a monotonic clock, seconds.
        """
        if manifest is None or manifest.owner is None:
            return True
        if manifest.nonce != self._nonce:
            self._nonce, self._since = manifest.nonce, now
        return now - self._since >= self._lease_s

    @property
    def ends_at(self) -> float:
        """The time at which the lease ends without a renewal, by the clock of `is_over`."""
        return self._since + self._lease_s
