"""This broker as a member of its cluster: registers it, and takes and gives up shards.

All members read the manifests every second, and compute the same placement from the living brokers.
A broker takes the shards without an owner that are placed at it. An owner gives up shards that are
placed at another broker, one at a time, once that broker has been alive for a while, and notifies
it. Whatever two brokers decide, the manifest's compare and swap lets one of them have the shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace

from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.lease import LeaseWatch
from quafka_broker.chain.manifest import StoredManifest, read_manifest, taken_by
from quafka_broker.chain.takeover import Seen, look
from quafka_broker.cluster.hosted_shard import HostedShard, Hosting
from quafka_broker.cluster.members import ALIVE_SECONDS, BEAT_SECONDS, Members
from quafka_broker.cluster.move_traces import DISK_LOST, PLACED_ELSEWHERE, STOPPING, MoveTraces
from quafka_broker.cluster.notices import SECONDS, Notice, Notices
from quafka_broker.cluster.own_epochs import OwnEpochs
from quafka_broker.cluster.peers import OtherBrokers, ShardPeers
from quafka_broker.cluster.placement import NOBODY, placement
from quafka_broker.cluster.shard_map import ShardMap
from quafka_broker.cluster.store_calls import StoreCalls
from quafka_broker.wal.errors import DamagedLogError
from quafka_loop import clock
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.node_ids import is_node_id
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.cluster import ClusterBroker, LookAtShards, LookAtShardsResp, ShardOwner
from quafka_objects.cluster import read_brokers, read_cluster
from quafka_proto.chain_format import Manifest, Owner
from quafka_proto.cluster_format import Registration, broker_path, encode_registration
from quafka_proto.errors import Malformed
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Span, TraceContext

log = logging.getLogger("quafka.broker.cluster")

LOOK_SECONDS = 1.0
SETTLED_SECONDS = 3.0
"""How long a broker has been alive and a shard has been placed at it before the shard moves."""
_FREE_SECONDS = 10.0
"""How long a shard waits for the broker that it is placed at before another broker takes it."""
_DECLINED_SECONDS = 60.0
_PAUSE_SECONDS = 3.0  # between two reads: changes in between may have been missed
_HANDED_OVER_SECONDS = 3.0
_HANDED_OVER_POLL = 0.05
_SAME_KEY = "the broker at {} has the same node key: give each broker a key of its own"
_AT_ONCE = 4
"""Shards that a broker hands over at once when it stops."""


class ClusterMember:
    """This broker in its cluster. For one event loop."""

    def __init__(self, hosting: Hosting, shard_map: ShardMap, brokers: OtherBrokers) -> None:
        self._hosting = hosting
        self._map = shard_map
        self._brokers = brokers
        self._me = Registration(hosting.owner.node, hosting.owner.address, 0, 0)
        self.members = Members()
        self.hosted: dict[int, HostedShard] = {}
        self.manifests: list[Manifest | None] = [None] * hosting.cluster.shards
        """As last read."""
        self._stored: list[StoredManifest | None] = [None] * hosting.cluster.shards
        self.target: list[str] = [NOBODY] * hosting.cluster.shards
        """The node that each shard is placed at."""
        self.free: set[int] = set()
        """Shards without an owner, or whose owner does not renew its lease."""
        self.problems: dict[int, str] = {}
        """Why shards placed here cannot be opened."""
        self.taken = self.given_up = self.lost = 0
        """Shards that this broker has taken over, given up, and lost to another one."""
        self._watches = [LeaseWatch() for _ in self.manifests]
        self._epochs = OwnEpochs(hosting.owner)
        self._free_since: dict[int, float] = {}
        self._placed_since: dict[int, tuple[str, float]] = {}
        self._declined: dict[tuple[int, str], float] = {}
        self._moving: dict[int, asyncio.Task[None]] = {}
        self._warned_of = ""
        self._looked_at = self._beat_seen_at = 0.0
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._reading = StoreCalls("the cluster cannot be seen")
        self._registering = StoreCalls("this broker cannot register")
        self._notices = Notices(brokers, self._me.node)
        self._traces = MoveTraces(brokers.tracer, self._me.node)
        self._ending: set[asyncio.Task[None]] = set()
        self._closing = False

    # --- for the mesh ---------------------------------------------------------------------------

    @property
    def handlers(self) -> Mapping[OpCode, Handler]:
        """The handler of the op between brokers."""
        return dict((LookAtShards.handled_by(self._told_to_look),))

    async def _told_to_look(self, context: OpContext, op: LookAtShards) -> LookAtShardsResp:
        self._beat_seen_at = float("-inf")  # draining brokers are in the registrations
        self._wake.set()
        shard = op.offered
        if shard is not None and 0 <= shard < len(self.manifests) and self._may_take(shard):
            self._begin(shard, self._take_offered(shard, context.trace))
        return LookAtShardsResp()

    def _may_take(self, shard: int) -> bool:
        declined = (shard, self._me.node) in self._declined
        return not (self._closing or declined or shard in self.hosted or shard in self._moving)

    def handlers_of(self, shard: int) -> Mapping[OpCode, Handler] | None:
        """See `peers.Hosting`."""
        hosted = self.hosted.get(shard)
        return None if hosted is None else hosted.shard.handlers

    # --- start and end --------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, and take the free shards that are placed here; others follow later.

        Raises:
            StartupError: a shard cannot be opened.
        """
        await self._beat()
        self._tasks = [asyncio.create_task(self._keep_beating()), asyncio.create_task(self._run())]
        await self._settled.wait()
        for shard, problem in self.problems.items():
            raise StartupError(
                f"cannot open shard {shard} in {self._hosting.config.store}: {problem}"
            )

    async def close(self) -> None:
        """Give up all shards, one by one if another broker can take them."""
        self._closing = True
        self._me = replace(self._me, draining=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        moving = list(self._moving.values())
        if moving:
            await asyncio.wait(moving, timeout=_HANDED_OVER_SECONDS)
        for task in moving:
            task.cancel()
        await asyncio.gather(*moving, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._beat()
        ready = [node for node in self.members.ready() if node != self._me.node]
        target = placement(len(self.manifests), ready)
        if ready:
            gate = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(
                *(self._hand_over(shard, target[shard], gate) for shard in sorted(self.hosted))
            )
        else:
            hosted = list(self.hosted.items())
            await asyncio.gather(*(self._end_last(*each) for each in hosted))
            await asyncio.gather(*(each.close() for _, each in hosted))
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._hosting.store.calls.delete(broker_path(self._me.node))
        await self._notices.close()
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- registration ---------------------------------------------------------------------------

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self._beat()

    async def _beat(self) -> None:
        self._me = me = replace(self._me, beat=self._me.beat + 1, at_ms=clock.time_ns() // 10**6)
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                await self._hosting.store.calls.put(broker_path(me.node), encode_registration(me))
        except (OSError, TimeoutError) as e:
            self._registering.fail(e, asyncio.get_running_loop().time())
        else:
            self._registering.succeed()

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
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next_look()):
                    await self._wake.wait()

    def shown_problems(self) -> dict[str, str]:
        """What keeps this broker from its work, by its subject."""
        found = {f"shard {number}": problem for number, problem in self.problems.items()}
        now = asyncio.get_running_loop().time()
        silent = self._registering.problem(now) or self._reading.problem(now)
        if silent:
            found["store"] = silent
        if rival := self._rival():
            found["node key"] = _SAME_KEY.format(rival)
        return found

    def _until_next_look(self) -> float:
        """Seconds until the next look, or until the end of a lease if that is sooner."""
        now = asyncio.get_running_loop().time()
        left = (watch.ends_at - now for watch in self._watches)
        return min([LOOK_SECONDS, *(seconds for seconds in left if seconds > 0)])

    async def _read(self) -> None:
        """Read the registrations and manifests of other brokers. Raises OSError."""
        loop, store = asyncio.get_running_loop(), self._hosting.store
        if loop.time() - self._beat_seen_at >= BEAT_SECONDS:
            found = await asyncio.to_thread(read_brokers, store.blocking)
            found = [each for each in found if is_node_id(each.node)]
            if loop.time() - self._looked_at > _PAUSE_SECONDS:
                self._forget()
            self._beat_seen_at = loop.time()
            wall_ms = clock.time_ns() // 10**6
            self.members.observe(found, loop.time(), wall_ms)
            for node in self.members.gone(loop.time(), wall_ms):
                await store.calls.delete(broker_path(node))
        away = [shard for shard in range(len(self.manifests)) if shard not in self.hosted]
        answers = await asyncio.gather(*(self._manifest(shard) for shard in away))
        for shard, answer in zip(away, answers, strict=True):
            if shard not in self.hosted:
                self._note(shard, answer)
        self._looked_at = loop.time()
        self._publish()

    async def _manifest(self, shard: int) -> StoredManifest | None:
        try:
            found = await read_manifest(self._hosting.store.calls, shard)
        except Malformed as e:
            self.problems[shard] = str(e)
            return self._stored[shard]
        owner = _stored_owner(found)
        if owner is not None and owner != self._hosting.owner:
            self.problems.pop(shard, None)  # it is not this broker's any more
        return found

    def _note(self, shard: int, found: StoredManifest | None) -> None:
        self._stored[shard] = found
        self.manifests[shard] = None if found is None else found.manifest
        self._epochs.see(shard, self.manifests[shard])

    def _forget(self) -> None:
        """Restart the observation of leases and beats after a pause."""
        self._watches = [LeaseWatch() for _ in self.manifests]
        self._free_since.clear()
        self.members = Members()

    def _publish(self) -> None:
        """Update the map for gateways and other brokers, and the nodes that this broker trusts."""
        for shard, hosted in self.hosted.items():
            self.manifests[shard] = hosted.stored.chain.manifest
        owners = [_owner_of(each) for each in self.manifests]
        there = {each.node: each for each in self.members.there()}
        there[self._me.node] = self._me
        self._brokers.follow(owners)
        nodes = {owner.node for owner in owners} | there.keys() | set(self.members.known())
        self._hosting.allowed.trust(
            f"{node} may=coordinate" for node in sorted(filter(is_node_id, nodes))
        )
        self._map.update(
            owners,
            [ClusterBroker(*each) for each in _told(there)],
        )

    # --- deciding -------------------------------------------------------------------------------

    def _decide(self) -> None:
        if self._closing:
            return
        now, me = asyncio.get_running_loop().time(), self._me.node
        free = self.free = self._find_free(now)
        ready = {*self.members.ready(), me}
        self._declined = {which: until for which, until in self._declined.items() if until > now}
        self.target = target = placement(len(self.manifests), ready, self._declined.keys())
        for shard, to in enumerate(target):
            if shard in self._moving:
                continue
            if shard in self.hosted:
                self._decide_hosted(shard, to, now)
            elif shard in free:
                since = self._free_since.setdefault(shard, now)
                if to == me:
                    self._warn_of_takeover(shard)
                    self._begin(shard, self._take(shard, Seen(self._stored[shard])))
                elif to and now - since > _FREE_SECONDS:
                    log.warning(
                        "shard %d is free, and broker %s does not take it over", shard, to[:16]
                    )
                    self._declined[shard, to] = now + _DECLINED_SECONDS
            else:
                self._free_since.pop(shard, None)
        if not self._moving:
            self._settled.set()

    def _warn_of_takeover(self, shard: int) -> None:
        """Log that another broker has stopped without giving its shard up."""
        manifest = self.manifests[shard]
        owner = None if manifest is None else manifest.owner
        if owner is not None and owner.node != self._me.node:
            log.warning(
                "shard %d is taken over: broker %s at %s does not renew its lease",
                shard, owner.node[:16], owner.address,
            )  # fmt: skip

    def _decide_hosted(self, shard: int, to: str, now: float) -> None:
        if reason := self.hosted[shard].broken:
            self._begin(shard, self._abandon(shard, reason))
        elif self._is_due(shard, to, now) and not self._moving:
            self._begin(shard, self._hand_over(shard, to, asyncio.Semaphore()))

    def _is_due(self, shard: int, to: str, now: float) -> bool:
        """Whether to give a shard of this broker to another one at which it has been placed for
        long enough: brokers that are slow for a moment must not make shards move back and forth."""
        if to in (self._me.node, NOBODY):
            self._placed_since.pop(shard, None)
            return False
        if self._placed_since.get(shard, (NOBODY, 0.0))[0] != to:
            self._placed_since[shard] = to, now
        settled = min(now - self._placed_since[shard][1], self.members.there_for(to, now))
        return settled >= SETTLED_SECONDS

    def _find_free(self, now: float) -> set[int]:
        """The shards without an owner, and those of an earlier run of this broker."""
        self._warn_of_rival()
        free: set[int] = set()
        for shard, manifest in enumerate(self.manifests):
            if shard in self.hosted:
                continue
            owner = None if manifest is None else manifest.owner
            over = self._watches[shard].is_over(manifest, now)
            if owner is not None and over and owner.node != self._me.node:
                self.members.suspect(owner.node)
            if over or (manifest is not None and self._epochs.is_own(shard, manifest)):
                free.add(shard)
        return free

    def _warn_of_rival(self) -> None:
        rival = self._rival()
        if rival and rival != self._warned_of:
            log.error("%s", _SAME_KEY.format(rival))
        self._warned_of = rival

    def _rival(self) -> str:
        """The address of another process with this broker's node key; empty: none has a shard."""
        away = [
            (shard, manifest)
            for shard, manifest in enumerate(self.manifests)
            if manifest is not None and not (shard in self.hosted or shard in self._moving)
        ]
        return next(filter(None, (self._epochs.rival(*each) for each in away)), "")

    def _begin(self, shard: int, move: Coroutine[None, None, None]) -> None:
        # Not in the context of the op that offers a shard: log lines would name it for ever.
        task = asyncio.get_running_loop().create_task(move, context=Context())
        self._moving[shard] = task

        def ended(_task: asyncio.Task[None]) -> None:
            self._moving.pop(shard, None)
            self._wake.set()

        task.add_done_callback(ended)

    # --- moving ---------------------------------------------------------------------------------

    async def _take(self, shard: int, seen: Seen, trace: Span | None = None) -> None:
        """Take a shard over. `trace`: the span of the takeover; None: it begins now."""
        self._hosting.mesh.shards.expect(shard)
        try:
            await self._open(shard, seen, trace or self._traces.take_over(shard, seen))
        finally:
            self._hosting.mesh.shards.expect_no_more(shard)

    async def _open(self, shard: int, seen: Seen, trace: Span) -> None:
        began = clock.monotonic()
        try:
            with trace:
                hosted = await self._opened(shard, seen, trace)
        except FencedError as e:
            log.info("shard %d: %s", shard, e)
            return
        except (DamagedLogError, Malformed, StartupError) as e:
            log.error("shard %d cannot be opened: %s", shard, e)  # noqa: TRY400
            self.problems[shard] = str(e)
            self._decline(shard)
            self._epochs.begin(shard, _next_epoch(seen))
            return
        except OSError as e:
            log.warning("shard %d cannot be taken over now: %s", shard, e)
            self._epochs.begin(shard, _next_epoch(seen))
            return
        self._epochs.begin(shard, hosted.stored.chain.epoch)
        self.problems.pop(shard, None)
        self._free_since.pop(shard, None)
        self.hosted[shard] = hosted
        self.taken += 1
        log.info("shard %d is here after %.2f s", shard, clock.monotonic() - began)
        hosted.stored.on_lost = lambda reason: self._lost(shard, reason)
        if hosted.stored.chain.failure is not None:  # meanwhile
            self._lost(shard, hosted.stored.chain.failure)
        self._publish()
        for each in self.members.there():
            self._notices.send(each.node, each.address)

    async def _opened(self, shard: int, seen: Seen, trace: Span) -> HostedShard:
        steps = self._traces.steps(trace)
        if seen.manifest is None:
            with steps.begin(semconv.SHARD_LOOK):
                seen = await self._look_at_new(shard)
        peers = ShardPeers(shard, len(self.manifests), self, self._brokers)
        hosted = await HostedShard.open(self._hosting, shard, seen, peers, steps)
        if trace.context is not None:
            trace.set({semconv.LEADER_EPOCH: hosted.stored.log.epochs.current})
        return hosted

    async def _look_at_new(self, shard: int) -> Seen:
        """A shard without a manifest is a new one, unless the store has lost what it had: a new log
        would hide the loss, and mix with what is left or comes back.

        Raises:
            StartupError, Malformed: the store has lost it.
            FencedError: it has been made meanwhile.
        """
        seen = await look(self._hosting.store.calls, shard)
        if seen.manifest is not None:  # also if it was read last before this broker made it
            raise FencedError(taken_by(seen.manifest))
        cluster = await asyncio.to_thread(read_cluster, self._hosting.store.blocking)
        if cluster != self._hosting.cluster or self._epochs.was_there(shard):
            what = "the cluster" if cluster != self._hosting.cluster else f"shard {shard}"
            raise StartupError(f"the store has lost the description of {what}")
        return seen

    async def _take_offered(self, shard: int, offer: TraceContext | None) -> None:
        """Take a shard that its owner has just given up in favour of this broker."""
        began = clock.time_ns()
        with suppress(OSError, Malformed):  # the next look will decide
            seen = await look(self._hosting.store.calls, shard, self.manifests[shard])
            self._note(shard, seen.manifest)
            if seen.manifest is not None and seen.manifest.manifest.owner is None:
                trace = self._traces.take_over(shard, seen, offer, began)
                self._traces.steps(trace).begin(semconv.SHARD_LOOK, begun=began).end()
                await self._take(shard, seen, trace)

    def _decline(self, shard: int) -> None:
        until = asyncio.get_running_loop().time() + _DECLINED_SECONDS
        self._declined[shard, self._me.node] = until

    def _lost(self, shard: int, reason: str) -> None:
        """Stop answering for a shard that another broker has taken."""
        hosted = self.hosted.pop(shard, None)
        if hosted is None:
            return
        log.warning("shard %d belongs to another broker: %s", shard, reason)
        self.lost += 1
        task = asyncio.get_running_loop().create_task(hosted.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self._wake.set()

    async def _end(
        self, shard: int, hosted: HostedShard, trace: Span, *, last_view: bool = False
    ) -> None:
        """Stop serving a shard, and give it up."""
        hosted.stored.on_lost = lambda _reason: None
        try:
            await hosted.end(self._traces.steps(trace), last_view=last_view)
        except Exception as e:  # the shard becomes free when its lease ends
            log.exception("shard %d was not closed cleanly", shard)
            trace.fail(type(e).__name__)
        self.hosted.pop(shard, None)
        self.manifests[shard] = hosted.stored.chain.manifest
        self.given_up += 1

    async def _end_last(self, shard: int, hosted: HostedShard) -> None:
        """Give a shard up that no other broker can take over."""
        with self._traces.give_up(shard, hosted.stored.chain.epoch, STOPPING) as trace:
            await self._end(shard, hosted, trace, last_view=True)

    async def _abandon(self, shard: int, reason: str) -> None:
        """Give up a shard whose local disk is lost. Whoever takes it next begins on a new folder:
        another broker, or this one if its disk can be used."""
        hosted = self.hosted.get(shard)
        if hosted is not None:
            log.error("shard %d is given up: %s", shard, reason)
            with self._traces.give_up(shard, hosted.stored.chain.epoch, DISK_LOST) as trace:
                await self._end(shard, hosted, trace)
            self._publish()
            await hosted.close()

    async def _hand_over(self, shard: int, to: str, gate: asyncio.Semaphore) -> None:
        """Give a shard up, and wait briefly until its next owner has it."""
        async with gate:
            hosted = self.hosted.get(shard)
            if hosted is None:
                return
            address = next((each.address for each in self.members.there() if each.node == to), "")
            reason = STOPPING if self._closing else PLACED_ELSEWHERE
            with self._traces.give_up(shard, hosted.stored.chain.epoch, reason, to) as trace:
                async with self._notices.connected(to, address) as notice:
                    with self._traces.steps(trace).begin(semconv.SHARD_PREPARE):
                        await hosted.prepare_hand_over()
                    if self.hosted.get(shard) is not hosted:  # another broker has taken it
                        trace.fail(FencedError.__name__)
                        return
                    await self._hand_over_by(notice, shard, hosted, trace)
            await hosted.close()

    async def _hand_over_by(
        self, notice: Notice, shard: int, hosted: HostedShard, trace: Span
    ) -> None:
        began = clock.monotonic()
        await self._end(shard, hosted, trace)
        given_up = clock.monotonic()
        self._publish()
        notice.send(shard, trace.context)
        with (
            self._traces.steps(trace).begin(semconv.SHARD_AWAIT_OWNER),
            suppress(TimeoutError, OSError),
        ):
            async with asyncio.timeout(_HANDED_OVER_SECONDS):
                while (owner := _stored_owner(found := await self._manifest(shard))) is None:
                    await asyncio.sleep(_HANDED_OVER_POLL)
                self._note(shard, found)
                trace.set({semconv.NEXT_OWNER: owner.node})
                log.info(
                    "shard %d moved to broker %s in %.2f s, of which it took %.2f s to give it up",
                    shard, owner.node[:16], clock.monotonic() - began, given_up - began,
                )  # fmt: skip
        self._publish()


def _next_epoch(seen: Seen) -> int:
    return 1 + (seen.manifest.manifest.epoch if seen.manifest is not None else 0)


def _stored_owner(found: StoredManifest | None) -> Owner | None:
    return None if found is None else found.manifest.owner


def _owner_of(manifest: Manifest | None) -> ShardOwner:
    if manifest is None:
        return ShardOwner(0, "", "")
    if manifest.owner is None:
        return ShardOwner(manifest.epoch, "", "")
    return ShardOwner(manifest.epoch, manifest.owner.node, manifest.owner.address)


def _told(there: Mapping[str, Registration]) -> list[tuple[str, str, bool]]:
    return [(node, each.address, each.draining) for node, each in sorted(there.items())]
