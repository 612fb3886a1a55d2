"""Parks gateways until users, rules or quotas change, and builds their pages of changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import islice

from quafka_broker.security.table import SecurityTable
from quafka_loop.slices import Slices
from quafka_mesh_ops.grants import Grant, everything, permits, show_orgs
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.security import SecurityChange, WatchSecurity, WatchSecurityResp
from quafka_mesh_ops.rights import NEEDS

_LONGEST_WAIT = 60.0
_PER_NODE = 128
"""Parked requests of a node above which the oldest is answered: a gateway process has one."""
_WOKEN_AT_ONCE = 50
_PAGE_CHANGES = 1_000
_PAGE_BYTES = 1 << 20
_ROWS_PER_SLICE = 500
_COST = 200
"""Bytes of a change without its texts; a generous estimate."""


class Watchers:
    """The parked requests. `grants` gives the orgs that a node may serve."""

    def __init__(self, table: SecurityTable) -> None:
        self._table = table
        self.grants: Callable[[NodeId], Grant] = everything
        self._run = os.urandom(8)
        self._draining = False
        self._parked: dict[NodeId, dict[asyncio.Future[bool], None]] = {}

    @property
    def parked(self) -> int:
        """The number of parked requests."""
        return sum(map(len, self._parked.values()))

    def incarnation(self, peer: NodeId) -> bytes:
        """The incarnation of a node's versions, which are void once it may serve other orgs."""
        need = NEEDS[WatchSecurity.code]
        orgs = [show_orgs(e.orgs) for e in self.grants(peer) if need.right in e.rights]
        return self._run + blake2b(";".join(orgs).encode(), digest_size=8).digest()

    def wake(self) -> None:
        """Wake the waiting gateways after a change of a record or of nodes' rights."""
        self._wake(iter([each for its in self._parked.values() for each in its]))

    def _wake(self, parked: Iterator[asyncio.Future[bool]]) -> None:
        """Wake some at a time: each of them makes an answer in the next turn of the loop."""
        some = list(islice(parked, _WOKEN_AT_ONCE))
        for each in some:
            if not each.done():
                each.set_result(True)
        if some:
            asyncio.get_running_loop().call_soon(self._wake, parked)

    def drain(self) -> None:
        """Answer the parked requests, and park no more."""
        self._draining = True
        self.wake()

    async def watch(self, peer: NodeId, op: WatchSecurity) -> WatchSecurityResp:
        """Answer with changes of the node's orgs after a version; parked until there are some."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(op.max_wait_ms, 0) / 1000, _LONGEST_WAIT)
        incarnation, version, began = op.incarnation, op.version, op.began
        # An earlier answer may have announced more changes, all of which concern other orgs.
        behind = version < self._table.version
        while True:
            now, table = self.incarnation(peer), self._table
            # Records removed before a copy began are not in it, however long reading it takes.
            known = incarnation == now and max(version, began) <= table.version
            restart = not known or table.floor > max(version, began)
            if restart:
                incarnation, version, began = now, -1, table.version
            page = await self._page(peer, incarnation, version, restart=restart)
            answer = replace(page, began=began)
            version = answer.version
            if restart or answer.changes or answer.more or behind or self._draining:
                return answer
            # No change since then can be missed: this runs in the same turn of the loop as the
            # page.
            if incarnation == self.incarnation(peer) and not await self._news(peer, until):
                return answer

    async def _news(self, peer: NodeId, until: float) -> bool:
        """Park until there is a change; False at the end, or if the node has too many requests."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        its = self._parked.setdefault(peer, {})
        its[waiting] = None
        if len(its) > _PER_NODE:
            oldest = next(iter(its))
            del its[oldest]
            if not oldest.done():
                oldest.set_result(False)
        try:
            async with asyncio.timeout_at(until):
                return await waiting
        except TimeoutError:
            return False
        finally:
            its.pop(waiting, None)
            if not its:
                self._parked.pop(peer, None)

    async def _page(
        self, peer: NodeId, incarnation: bytes, version: int, *, restart: bool
    ) -> WatchSecurityResp:
        """The changes of the node's orgs after a version, as many as fit in an answer."""
        grant, need = self.grants(peer), NEEDS[WatchSecurity.code]
        changes: list[SecurityChange] = []
        size = 0
        slices = Slices(_ROWS_PER_SLICE)
        while version < self._table.version:
            some, reached = self._table.after(version, _ROWS_PER_SLICE // 5)
            version = reached
            for each in some:
                if not permits(grant, need, each.org) or (restart and each.change.removed):
                    continue
                changes.append(each.change)
                size += _size(each.change)
                if len(changes) >= _PAGE_CHANGES or size >= _PAGE_BYTES:
                    more = each.version < self._table.version
                    return WatchSecurityResp(incarnation, each.version, restart, more, changes)
            await slices.done(_ROWS_PER_SLICE // 5)
        return WatchSecurityResp(incarnation, version, restart, False, changes)


def _size(change: SecurityChange) -> int:
    """An estimate of a change's bytes in an answer."""
    if change.user is not None:
        return _COST * (1 + len(change.user.credentials)) + 4 * len(change.user.name)
    if change.acl is not None:
        acl = change.acl
        return _COST + 4 * (len(acl.resource_name) + len(acl.principal) + len(acl.host))
    if change.quota is not None:
        names = sum(len(part.entity_name or "") for part in change.quota.entity)
        return _COST * (1 + len(change.quota.values)) + 4 * names
    return _COST * (1 + len(change.org.limits if change.org is not None else ()))
