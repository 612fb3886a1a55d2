"""Moves shards to and from this broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context

from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.manifest import StoredManifest, read_manifest, taken_by
from quafka_broker.chain.takeover import Seen, look
from quafka_broker.cluster.hosted_shard import HostedShard, HostResources
from quafka_broker.cluster.move_traces import DISK_LOST, PLACED_ELSEWHERE, STOPPING, MoveTraces
from quafka_broker.cluster.notices import Notice, Notices
from quafka_broker.cluster.peers import OtherBrokers, ShardPeers
from quafka_broker.cluster.view import Action, ClusterView, Move
from quafka_broker.wal.errors import DamagedLogError
from quafka_loop import clock
from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.ops.base import OpCode
from quafka_objects.cluster import read_cluster
from quafka_proto.chain_format import Owner
from quafka_proto.errors import Malformed
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Span, TraceContext

log = logging.getLogger("quafka.broker.cluster")

_HANDED_OVER_SECONDS = 3.0
_HANDED_OVER_POLL = 0.05
_AT_ONCE = 4
"""Shards that a broker hands over at once when it stops."""


class ShardMoves:
    """The shards of one broker. For one event loop.

    Attributes:
        hosted: the shards that are here.
        moving: the moves under way.
        is_closing: whether the broker stops.
        taken, given_up, lost: shards that this broker has taken over, given up, and lost to another
            one.
    """

    def __init__(
        self,
        hosting: HostResources,
        view: ClusterView,
        brokers: OtherBrokers,
        publish: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        """`publish` is called when the owner of a shard has changed, `changed` when there may be
        something to decide."""
        self._hosting = hosting
        self._view = view
        self._brokers = brokers
        self._publish = publish
        self._changed = changed
        self._notices = Notices(brokers, hosting.owner.node)
        self._traces = MoveTraces(brokers.tracer, hosting.owner.node)
        self.hosted: dict[int, HostedShard] = {}
        self.moving: dict[int, asyncio.Task[None]] = {}
        self.taken = self.given_up = self.lost = 0
        self.is_closing = False
        self._ending: set[asyncio.Task[None]] = set()

    def handlers_of(self, shard: int) -> Mapping[OpCode, Handler] | None:
        """See `HostedShards`."""
        hosted = self.hosted.get(shard)
        return None if hosted is None else hosted.shard.handlers

    # --- begin and end --------------------------------------------------------------------------

    def begin(self, move: Move) -> None:
        """Begin a move."""
        shard, action, detail = move
        if action is Action.TAKE:
            self._start(shard, self._take(shard, Seen(self._view.stored[shard])))
        elif action is Action.ABANDON:
            self._start(shard, self._abandon(shard, detail))
        else:
            self._start(shard, self.hand_over(shard, detail, asyncio.Semaphore()))

    def take_offered(self, shard: int, offer: TraceContext | None) -> None:
        """Take a shard that its owner has just given up in favour of this broker, if possible."""
        busy = self.is_closing or shard in self.hosted or shard in self.moving
        if not busy and self._view.may_take(shard):
            self._start(shard, self._take_offered(shard, offer))

    def _start(self, shard: int, move: Coroutine[None, None, None]) -> None:
        # Not in the context of the op that offers a shard: log lines would name it for ever.
        task = asyncio.get_running_loop().create_task(move, context=Context())
        self.moving[shard] = task

        def ended(_task: asyncio.Task[None]) -> None:
            self.moving.pop(shard, None)
            self._changed()

        task.add_done_callback(ended)

    async def end_moves(self) -> None:
        """End the moves under way."""
        moving = list(self.moving.values())
        if moving:
            await asyncio.wait(moving, timeout=_HANDED_OVER_SECONDS)
        for task in moving:
            task.cancel()
        await asyncio.gather(*moving, return_exceptions=True)

    async def give_up_all(self, target: Sequence[str]) -> None:
        """Give up all shards, a few at once. `target`: the next broker of each; empty: nobody."""
        if target:
            gate = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(
                *(self.hand_over(shard, target[shard], gate) for shard in sorted(self.hosted))
            )
        else:
            hosted = list(self.hosted.items())
            await asyncio.gather(*(self._end_last(*each) for each in hosted))
            await asyncio.gather(*(each.close() for _, each in hosted))

    async def close(self) -> None:
        """Wait for what is still under way."""
        await self._notices.close()
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- taking ---------------------------------------------------------------------------------

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
            self._view.decline(shard, str(e), asyncio.get_running_loop().time())
            self._view.epochs.begin(shard, _next_epoch(seen))
            return
        except OSError as e:
            log.warning("shard %d cannot be taken over now: %s", shard, e)
            self._view.epochs.begin(shard, _next_epoch(seen))
            return
        self._view.opened(shard, hosted.stored.chain.epoch)
        self.hosted[shard] = hosted
        self.taken += 1
        log.info("shard %d is here after %.2f s", shard, clock.monotonic() - began)
        hosted.stored.on_lost = lambda reason: self._lost(shard, reason)
        if hosted.stored.chain.failure is not None:  # meanwhile
            self._lost(shard, hosted.stored.chain.failure)
        self._publish()
        for each in self._view.members.there():
            self._notices.send(each.node, each.address)

    async def _opened(self, shard: int, seen: Seen, trace: Span) -> HostedShard:
        steps = self._traces.steps(trace)
        if seen.manifest is None:
            with steps.begin(semconv.SHARD_LOOK):
                seen = await self._look_at_new(shard)
        peers = ShardPeers(shard, len(self._view.manifests), self, self._brokers)
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
        if cluster != self._hosting.cluster or self._view.epochs.was_there(shard):
            what = "the cluster" if cluster != self._hosting.cluster else f"shard {shard}"
            raise StartupError(f"the store has lost the description of {what}")
        return seen

    async def _take_offered(self, shard: int, offer: TraceContext | None) -> None:
        """Take a shard that its owner has just given up in favour of this broker."""
        began = clock.time_ns()
        with suppress(OSError, Malformed):  # the next look will decide
            seen = await look(self._hosting.store.calls, shard, self._view.manifests[shard])
            self._view.note(shard, seen.manifest)
            if seen.manifest is not None and seen.manifest.manifest.owner is None:
                trace = self._traces.take_over(shard, seen, offer, began)
                self._traces.steps(trace).begin(semconv.SHARD_LOOK, begun=began).end()
                await self._take(shard, seen, trace)

    async def read(self, shard: int) -> StoredManifest | None:
        """Read the manifest of a shard that is not here. Raises OSError."""
        try:
            found = await read_manifest(self._hosting.store.calls, shard)
        except Malformed as e:
            self._view.problems[shard] = str(e)
            return self._view.stored[shard]
        owner = _stored_owner(found)
        if owner is not None and owner != self._hosting.owner:
            self._view.problems.pop(shard, None)  # it is not this broker's any more
        return found

    # --- giving up ------------------------------------------------------------------------------

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
        self._changed()

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
        self._view.manifests[shard] = hosted.stored.chain.manifest
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

    async def hand_over(self, shard: int, to: str, gate: asyncio.Semaphore) -> None:
        """Give a shard up, and wait briefly until its next owner has it."""
        async with gate:
            hosted = self.hosted.get(shard)
            if hosted is None:
                return
            address = next(
                (each.address for each in self._view.members.there() if each.node == to), ""
            )
            reason = STOPPING if self.is_closing else PLACED_ELSEWHERE
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
                while (owner := _stored_owner(found := await self.read(shard))) is None:
                    await asyncio.sleep(_HANDED_OVER_POLL)
                self._view.note(shard, found)
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
