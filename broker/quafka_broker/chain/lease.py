"""Leases: when a takeover is due. No write depends on them, only who tries to write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from quafka_broker.chain.chain import Chain
from quafka_broker.chain.errors import FencedError
from quafka_proto.chain_format import Manifest

LEASE_MS = 4_000
RENEWED_EACH_S = 1.5


async def keep_lease(
    chain: Chain,
    clock: Callable[[], float],
    lease_ms: int = LEASE_MS,
    each_s: float = RENEWED_EACH_S,
) -> None:
    """Renew the lease until the chain has failed or is closed. An idle owner learns it here.

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


def should_take_over(manifest: Manifest | None, now_ms: int, node: str = "") -> bool:
    """Whether a takeover is due by the wall clock: no owner, its lease is over, or it was `node`.

    A broker whose clock is ahead would take every shard again and again: use a `LeaseWatch` where
    manifests are looked at regularly.
    """
    if manifest is None or manifest.owner is None:
        return True
    return manifest.lease_until_ms < now_ms or manifest.owner.node == node


class LeaseWatch:
    """Tells from the renewals of a lease, not from anybody's wall clock, whether it is over."""

    def __init__(self, lease_ms: int = LEASE_MS) -> None:
        self._lease_s = lease_ms / 1000
        self._nonce: str | None = None
        self._since = 0.0

    def is_over(self, manifest: Manifest | None, now: float) -> bool:
        """Whether the manifest, read just now, has no owner or was not renewed for a whole lease.

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
        """When the lease will be over if it is not renewed, by the clock of `is_over`."""
        return self._since + self._lease_s
