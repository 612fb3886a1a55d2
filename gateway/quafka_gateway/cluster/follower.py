"""Follows the cluster: which broker has which shard now.

One broker at a time is asked, by an op that it parks until something changes. If that broker is
gone, another one is asked, from the settings or from an earlier map. A gateway that may read the
store reads it first, and again whenever no broker answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import uniform

from quafka_gateway.cluster.shard_places import ShardPlaces
from quafka_mesh_ops.errors import MeshError
from quafka_mesh_ops.ops.cluster import ClusterBroker, ClusterMap, ClusterMapResp, ShardOwner
from quafka_mesh_ops.shard_client import OpClient
from quafka_objects.address import open_store
from quafka_objects.cluster import ClusterState, read_state
from quafka_objects.errors import StoreAddressError
from quafka_objects.meter import MeteredStore, StoreMeter
from quafka_objects.retries import RetryingStore, RetryPolicy
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_telemetry.startup import StartupError
from quafka_telemetry.trouble_log import TroubleLog

log = logging.getLogger("quafka.gateway.cluster")

FIRST_SECONDS = 60.0
"""How long a start waits for the first map."""
_PARKED_SECONDS = 20.0
_ANSWER_SECONDS = 3.0
_CONNECT_SECONDS = 1.5
_RETRY_SECONDS = 0.1, 0.4
_ATTEMPT_SECONDS = 5.0
_PATIENCE = RetryPolicy(seconds=4.0)
_PACE_SECONDS = 0.02  # between two answers: a broker that drains answers at once


class ClusterFollower:
    """Keeps the places of the shards up to date. For one event loop."""

    def __init__(
        self,
        brokers: Sequence[str],
        dial: Callable[[str], OpClient],
        changed: Callable[[ShardPlaces, Sequence[int]], None],
        meter: StoreMeter,
    ) -> None:
        """`brokers`: the URL of a store alone, or addresses of brokers.

        `dial` makes a client that is not started. `changed` is called with the shards that have
        moved; all of them at first. `meter` counts requests to the store.

        Raises:
            StartupError: the store cannot be opened.
        """
        url = next((each for each in brokers if "://" in each), "")
        self._seeds = () if url else tuple(brokers)
        self.store = _opened(url, meter) if url else None
        """The cluster's store, if this gateway may read it."""
        self._dial = dial
        self._changed = changed
        self._known: asyncio.Future[ShardPlaces] | None = None
        self.places: ShardPlaces | None = None
        """None before the first map."""
        self.problem = ""
        self._trouble = TroubleLog(log)
        """Why no updates arrive; empty: they do."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> ShardPlaces:
        """Begin to follow, and wait for the first map.

        Raises:
            StartupError: there was none for a minute.
        """
        loop = asyncio.get_running_loop()
        known = self._known = loop.create_future()
        self._task = loop.create_task(self._run())
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                return await asyncio.shield(known)
        except TimeoutError:
            raise StartupError(f"cannot find the cluster: {self.problem}") from None

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- internals ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                if self.store is not None:
                    await self._read_store(self.store)
                for address in self._candidates():
                    await self._follow(address)
            except Exception:
                # Nothing may end this task: the gateway would send ops to the shards' old places.
                log.exception("following the cluster again after an error")
            await asyncio.sleep(uniform(*_RETRY_SECONDS))  # noqa: S311 - no secret

    def _candidates(self) -> list[str]:
        known = () if self.places is None else self.places.addresses()
        return list(dict.fromkeys([*known, *self._seeds]))

    async def _read_store(self, store: ObjectStore) -> None:
        try:
            async with asyncio.timeout(_PARKED_SECONDS):
                state = await asyncio.to_thread(read_state, store)
        except (OSError, Malformed, TimeoutError) as e:
            self._now(f"{store.where}: {e}")
            return
        if state is None:
            self._now(f"{store.where} has no cluster yet")
        else:
            self._learn(_as_map(state), store.where)

    async def _follow(self, address: str) -> None:
        """Ask one broker repeatedly until it no longer answers."""
        client = self._dial(address)
        await client.start()
        known = -1
        try:
            while await client.wait_connected(_CONNECT_SECONDS):
                op = ClusterMap(known, round(_PARKED_SECONDS * 1000) if known >= 0 else 0)
                seconds = _ANSWER_SECONDS + op.max_wait_ms / 1000
                answer = await client.call(op, org_id=1, deadline=seconds)
                if not answer.cluster_id and len(answer.shards) == 1:
                    # A broker with a local folder knows itself by the address that it listens on.
                    here = ShardOwner(0, answer.shards[0].node, address)
                    answer = ClusterMapResp("", answer.version, [here], [])
                self._learn(answer, address)
                if answer.version == known:
                    await asyncio.sleep(_PACE_SECONDS)
                known = answer.version
            self._now(f"{address}: {client.refusal or 'no connection'}")
        except MeshError as e:
            self._now(f"{address}: {e}")
        finally:
            with suppress(asyncio.CancelledError):
                await client.close()

    def _learn(self, heard: ClusterMapResp, whose: str) -> None:
        if self.places is None:
            if not heard.shards:
                self._now(f"{whose} does not know the cluster yet")
                return
            self.places, moved = ShardPlaces(heard), list(range(len(heard.shards)))
        else:
            try:
                moved = self.places.learn(heard)
            except ValueError as e:
                self._now(f"{whose}: {e}")
                return
        self._now("")
        self._changed(self.places, moved)
        if self._known is not None and not self._known.done():
            self._known.set_result(self.places)

    def _now(self, problem: str) -> None:
        if problem:
            now = asyncio.get_running_loop().time()
            self._trouble.note(f"no updates of the cluster: {problem}", now, passing=True)
        else:
            self._trouble.over()
        self.problem = problem


def _opened(url: str, meter: StoreMeter) -> ObjectStore:
    """The store; a call takes a few seconds at most, and is repeated meanwhile if it fails."""
    try:
        return RetryingStore(
            MeteredStore(open_store(url, None, _ATTEMPT_SECONDS), meter), _PATIENCE
        )
    except OSError as e:
        reason = str(e) if isinstance(e, StoreAddressError) else f"{url}: {e}"
        raise StartupError(f"cannot open the store of the cluster: {reason}") from e


def _as_map(state: ClusterState) -> ClusterMapResp:
    owners = [
        ShardOwner(each.epoch, each.owner.node, each.owner.address)
        if each is not None and each.owner is not None
        else ShardOwner(0 if each is None else each.epoch, "", "")
        for each in state.manifests
    ]
    brokers = [ClusterBroker(each.node, each.address, each.draining) for each in state.brokers]
    cluster = state.cluster
    return ClusterMapResp(cluster.cluster_id, 0, owners, brokers, cluster.by_name)
