"""This broker's registration in the object store, by which the others know that it is alive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from quafka_broker.cluster.members import ALIVE_SECONDS, BEAT_SECONDS
from quafka_broker.cluster.notices import SECONDS
from quafka_broker.cluster.store_calls import StoreCalls
from quafka_broker.shard.stored_log import LogStore
from quafka_loop import clock
from quafka_proto.chain_format import Owner
from quafka_proto.cluster_format import Registration, broker_path, encode_registration


class OwnRegistration:
    """Writes the registration. `latest` is the one that was written last."""

    def __init__(self, owner: Owner, store: LogStore) -> None:
        self._store = store.calls
        self.latest = Registration(owner.node, owner.address, 0, 0)
        self.calls = StoreCalls("this broker cannot register")

    async def keep_beating(self) -> None:
        """Renew the registration until cancelled."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.beat()

    async def beat(self) -> None:
        """Renew the registration now; a failure is counted in `calls`."""
        at_ms = clock.time_ns() // 10**6
        self.latest = me = replace(self.latest, beat=self.latest.beat + 1, at_ms=at_ms)
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                await self._store.put(broker_path(me.node), encode_registration(me))
        except (OSError, TimeoutError) as e:
            self.calls.fail(e, asyncio.get_running_loop().time())
        else:
            self.calls.succeed()

    def drain(self) -> None:
        """Let the next beats register that this broker stops."""
        self.latest = replace(self.latest, draining=True)

    async def remove(self) -> None:
        """Remove the registration. A few seconds at most."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._store.delete(broker_path(self.latest.node))
