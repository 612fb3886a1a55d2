"""This broker as a member of its cluster: registers it, and reads the manifests of all shards.

`view.py` decides which shards move, and `shard_moves.py` moves them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from quafka_broker.cluster.hosted_shard import HostResources
from quafka_broker.cluster.members import ALIVE_SECONDS, BEAT_SECONDS
from quafka_broker.cluster.notices import SECONDS
from quafka_broker.cluster.peers import OtherBrokers
from quafka_broker.cluster.placement import placement
from quafka_broker.cluster.registration import OwnRegistration
from quafka_broker.cluster.shard_map import ShardMap
from quafka_broker.cluster.shard_moves import ShardMoves
from quafka_broker.cluster.store_calls import StoreCalls
from quafka_broker.cluster.view import ClusterView
from quafka_loop import clock
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.node_ids import is_node_id
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.cluster import ClusterBroker, LookAtShards, LookAtShardsResp, ShardOwner
from quafka_objects.cluster import read_brokers
from quafka_proto.chain_format import ShardManifest
from quafka_proto.cluster_format import broker_path
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.broker.cluster")

LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 3.0  # between two reads: changes in between may have been missed
_SAME_KEY = "the broker at {} has the same node key: give each broker a key of its own"


class ClusterMember:
    """This broker in its cluster. For one event loop."""

    def __init__(self, hosting: HostResources, shard_map: ShardMap, brokers: OtherBrokers) -> None:
        self._hosting = hosting
        self._map = shard_map
        self._brokers = brokers
        self._registration = OwnRegistration(hosting.owner, hosting.store)
        self.view = ClusterView(hosting.owner, hosting.cluster.shards)
        self._wake = asyncio.Event()
        self.moves = ShardMoves(hosting, self.view, brokers, self._publish, self._wake.set)
        self._settled = asyncio.Event()
        self._looked_at = self._beat_seen_at = 0.0
        self._reading = StoreCalls("the cluster cannot be seen")
        self._warned_of = ""
        self._tasks: list[asyncio.Task[None]] = []

    # --- for the mesh ---------------------------------------------------------------------------

    @property
    def handlers(self) -> Mapping[OpCode, Handler]:
        """The handler of the op between brokers."""
        return dict((LookAtShards.handled_by(self._told_to_look),))

    async def _told_to_look(self, context: OpContext, op: LookAtShards) -> LookAtShardsResp:
        self._beat_seen_at = float("-inf")  # draining brokers are in the registrations
        self._wake.set()
        if op.offered is not None:
            self.moves.take_offered(op.offered, context.trace)
        return LookAtShardsResp()

    # --- start and end --------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, and take the free shards that are placed here; others follow later.

        Raises:
            StartupError: a shard cannot be opened.
        """
        mine = self._registration
        await mine.beat()
        self._tasks = [asyncio.create_task(mine.keep_beating()), asyncio.create_task(self._run())]
        await self._settled.wait()
        for shard, problem in self.view.problems.items():
            raise StartupError(
                f"cannot open shard {shard} in {self._hosting.config.store}: {problem}"
            )

    async def close(self) -> None:
        """Give up all shards, one by one if another broker can take them."""
        self.moves.is_closing = True
        self._registration.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.moves.end_moves()
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._registration.beat()
        me = self._hosting.owner.node
        ready = [node for node in self.view.members.ready() if node != me]
        shards = self._hosting.cluster.shards
        await self.moves.give_up_all(placement(shards, ready) if ready else ())
        await self._registration.remove()
        await self.moves.close()

    # --- looking --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await self._read()
                self._reading.succeed()
                self._decide()
            except (OSError, TimeoutError) as e:
                self._reading.fail(e, asyncio.get_running_loop().time())
            except Exception:  # otherwise this broker would keep its shards for ever, and take none
                log.exception("the check of the cluster failed")
            # Until the next look, or until the end of a lease if that is sooner.
            leases = self.view.until_lease_ends(asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(min([LOOK_SECONDS, *leases])):
                    await self._wake.wait()

    def shown_problems(self) -> dict[str, str]:
        """What keeps this broker from its work, by its subject."""
        found = {f"shard {number}": problem for number, problem in self.view.problems.items()}
        now = asyncio.get_running_loop().time()
        silent = self._registration.calls.problem(now) or self._reading.problem(now)
        if silent:
            found["store"] = silent
        if rival := self._rival():
            found["node key"] = _SAME_KEY.format(rival)
        return found

    async def _read(self) -> None:
        """Read the registrations and manifests of other brokers. Raises OSError."""
        loop, view = asyncio.get_running_loop(), self.view
        if loop.time() - self._beat_seen_at >= BEAT_SECONDS:
            await self._read_registrations()
        hosted = self.moves.hosted
        away = [shard for shard in range(len(view.manifests)) if shard not in hosted]
        answers = await asyncio.gather(*(self.moves.read(shard) for shard in away))
        for shard, answer in zip(away, answers, strict=True):
            if shard not in hosted:
                view.note(shard, answer)
        self._looked_at = loop.time()
        self._publish()

    async def _read_registrations(self) -> None:
        loop, store = asyncio.get_running_loop(), self._hosting.store
        found = await asyncio.to_thread(read_brokers, store.blocking)
        found = [each for each in found if is_node_id(each.node)]
        if loop.time() - self._looked_at > _PAUSE_SECONDS:
            self.view.forget()
        self._beat_seen_at = loop.time()
        wall_ms = clock.time_ns() // 10**6
        self.view.members.observe(found, loop.time(), wall_ms)
        for node in self.view.members.gone(loop.time(), wall_ms):
            await store.calls.delete(broker_path(node))

    def _publish(self) -> None:
        """Update the map for gateways and other brokers, and the nodes that this broker trusts."""
        view, me = self.view, self._registration.latest
        for shard, hosted in self.moves.hosted.items():
            view.manifests[shard] = hosted.stored.chain.manifest
        owners = [_owner_of(each) for each in view.manifests]
        there = {each.node: each for each in view.members.there()}
        there[me.node] = me
        self._brokers.follow(owners)
        nodes = {owner.node for owner in owners} | there.keys() | set(view.members.known())
        self._hosting.allowed.trust(
            f"{node} may=coordinate" for node in sorted(filter(is_node_id, nodes))
        )
        self._map.update(
            owners,
            [
                ClusterBroker(node, each.address, each.draining)
                for node, each in sorted(there.items())
            ],
        )

    def _decide(self) -> None:
        if self.moves.is_closing:
            return
        rival = self._rival()
        if rival and rival != self._warned_of:
            log.error("%s", _SAME_KEY.format(rival))
        self._warned_of = rival
        moves = self.moves
        hosted = {shard: each.broken for shard, each in moves.hosted.items()}
        now = asyncio.get_running_loop().time()
        for move in self.view.decide(now, hosted, moves.moving):
            moves.begin(move)
        if not moves.moving:
            self._settled.set()

    def _rival(self) -> str:
        return self.view.rival(self.moves.hosted.keys() | self.moves.moving.keys())


def _owner_of(manifest: ShardManifest | None) -> ShardOwner:
    if manifest is None:
        return ShardOwner(0, "", "")
    if manifest.owner is None:
        return ShardOwner(manifest.epoch, "", "")
    return ShardOwner(manifest.epoch, manifest.owner.node, manifest.owner.address)
