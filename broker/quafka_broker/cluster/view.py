"""The cluster as one broker sees it, and the moves of shards that follow. Pure.

All brokers read the manifests every second, and compute the same placement from the living brokers.
A broker takes the shards without an owner that are placed at it. An owner gives up shards that are
placed at another broker, one at a time, once that broker has been alive for a while. Whatever two
brokers decide, the manifest's compare and swap lets one of them have the shard.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from quafka_broker.chain.lease import LeaseWatch
from quafka_broker.chain.manifest import StoredManifest
from quafka_broker.cluster.members import ClusterMembers
from quafka_broker.cluster.own_epochs import OwnEpochs
from quafka_broker.cluster.placement import NOBODY, placement
from quafka_proto.chain_format import Owner, ShardManifest

log = logging.getLogger("quafka.broker.cluster")

SETTLED_SECONDS = 3.0
"""How long a broker has been alive and a shard has been placed at it before the shard moves."""
_FREE_SECONDS = 10.0
"""How long a shard waits for the broker that it is placed at before another broker takes it."""
_DECLINED_SECONDS = 60.0


class Action(Enum):
    """What a broker does about a shard; with the meaning of `Move.detail`."""

    TAKE = "take it over; empty"
    HAND_OVER = "give it to another broker; its node"
    ABANDON = "give it up; the reason"


class Move(NamedTuple):
    """A move that a broker begins."""

    shard: int
    action: Action
    detail: str = ""


class ClusterView:
    """Shards and brokers of one cluster. Times are by a monotonic clock, in seconds.

    Attributes:
        members: the brokers.
        stored: the manifests of the shards, as last read.
        manifests: the same, or as this broker has changed them.
        epochs: the epochs that this broker has begun.
        target: the node that each shard is placed at.
        free: shards without an owner, or whose owner does not renew its lease.
        problems: why shards placed here cannot be opened.
    """

    def __init__(self, me: Owner, shards: int) -> None:
        self._me = me.node
        self.members = ClusterMembers()
        self.stored: list[StoredManifest | None] = [None] * shards
        self.manifests: list[ShardManifest | None] = [None] * shards
        self.epochs = OwnEpochs(me)
        self.target: list[str] = [NOBODY] * shards
        self.free: set[int] = set()
        self.problems: dict[int, str] = {}
        self._watches = [LeaseWatch() for _ in self.manifests]
        self._free_since: dict[int, float] = {}
        self._placed_since: dict[int, tuple[str, float]] = {}
        self._declined: dict[tuple[int, str], float] = {}

    # --- facts ----------------------------------------------------------------------------------

    def note(self, shard: int, found: StoredManifest | None) -> None:
        """Take over a manifest that was read."""
        self.stored[shard] = found
        self.manifests[shard] = None if found is None else found.manifest
        self.epochs.see(shard, self.manifests[shard])

    def forget(self) -> None:
        """Restart the observation of leases and beats after a pause."""
        self._watches = [LeaseWatch() for _ in self.manifests]
        self._free_since.clear()
        self.members = ClusterMembers()

    def opened(self, shard: int, epoch: int) -> None:
        """Note that this broker has taken a shard over."""
        self.epochs.begin(shard, epoch)
        self.problems.pop(shard, None)
        self._free_since.pop(shard, None)

    def decline(self, shard: int, problem: str, now: float) -> None:
        """Leave a shard that this broker cannot open to others for a while."""
        self.problems[shard] = problem
        self._declined[shard, self._me] = now + _DECLINED_SECONDS

    def may_take(self, shard: int) -> bool:
        """Whether this broker has not declined the shard."""
        return 0 <= shard < len(self.manifests) and (shard, self._me) not in self._declined

    def until_lease_ends(self, now: float) -> list[float]:
        """Seconds until the end of each lease that is not renewed."""
        return [left for watch in self._watches if (left := watch.ends_at - now) > 0]

    def rival(self, busy: Collection[int]) -> str:
        """The address of another process with this broker's node key; empty: none has a shard.

        `busy`: the shards that this process has, or that move.
        """
        found = (
            self.epochs.rival(shard, manifest)
            for shard, manifest in enumerate(self.manifests)
            if manifest is not None and shard not in busy
        )
        return next(filter(None, found), "")

    # --- decisions ------------------------------------------------------------------------------

    def decide(
        self, now: float, hosted: Mapping[int, str | None], moving: Collection[int]
    ) -> list[Move]:
        """The moves to begin. `hosted`: why each shard here cannot be served; None: it can."""
        self.free = self._find_free(now, hosted)
        ready = {*self.members.ready(), self._me}
        self._declined = {which: until for which, until in self._declined.items() if until > now}
        self.target = placement(len(self.manifests), ready, self._declined.keys())
        moves: list[Move] = []
        for shard, to in enumerate(self.target):
            move = None
            if shard in moving:
                continue
            if shard in hosted:
                move = self._decide_hosted(shard, to, hosted[shard], now)
                if move and move.action is Action.HAND_OVER and (moving or moves):
                    continue  # one at a time
            elif shard in self.free:
                move = self._decide_free(shard, to, now)
            else:
                self._free_since.pop(shard, None)
            if move is not None:
                moves.append(move)
        return moves

    def _decide_hosted(self, shard: int, to: str, broken: str | None, now: float) -> Move | None:
        if broken:
            return Move(shard, Action.ABANDON, broken)
        return Move(shard, Action.HAND_OVER, to) if self._is_due(shard, to, now) else None

    def _decide_free(self, shard: int, to: str, now: float) -> Move | None:
        since = self._free_since.setdefault(shard, now)
        if to == self._me:
            self._warn_of_takeover(shard)
            return Move(shard, Action.TAKE)
        if to and now - since > _FREE_SECONDS:
            log.warning("shard %d is free, and broker %s does not take it over", shard, to[:16])
            self._declined[shard, to] = now + _DECLINED_SECONDS
        return None

    def _warn_of_takeover(self, shard: int) -> None:
        """Log that another broker has stopped without giving its shard up."""
        manifest = self.manifests[shard]
        owner = None if manifest is None else manifest.owner
        if owner is not None and owner.node != self._me:
            log.warning(
                "shard %d is taken over: broker %s at %s does not renew its lease",
                shard, owner.node[:16], owner.address,
            )  # fmt: skip

    def _is_due(self, shard: int, to: str, now: float) -> bool:
        """Whether to give a shard of this broker to another one at which it has been placed for
        long enough: brokers that are slow for a moment must not make shards move back and forth."""
        if to in (self._me, NOBODY):
            self._placed_since.pop(shard, None)
            return False
        if self._placed_since.get(shard, (NOBODY, 0.0))[0] != to:
            self._placed_since[shard] = to, now
        settled = min(now - self._placed_since[shard][1], self.members.there_for(to, now))
        return settled >= SETTLED_SECONDS

    def _find_free(self, now: float, hosted: Collection[int]) -> set[int]:
        """The shards without an owner, and those of an earlier run of this broker."""
        free: set[int] = set()
        for shard, manifest in enumerate(self.manifests):
            if shard in hosted:
                continue
            owner = None if manifest is None else manifest.owner
            over = self._watches[shard].is_over(manifest, now)
            if owner is not None and over and owner.node != self._me:
                self.members.suspect(owner.node)
            if over or (manifest is not None and self.epochs.is_own(shard, manifest)):
                free.add(shard)
        return free
