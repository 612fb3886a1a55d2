"""The orgs that clients of this gateway are connected for.

A connection *enters* an org when the client's org is known, and leaves it when it is lost. The
org's tenant is made for the first client and dropped some time after the last one has left, so a
gateway may serve any number of orgs, a bounded number of them at a time.

An org may be entered if it is active: one that a record names, or one that this gateway's settings
name without there being a record. When an org is suspended or deleted, its connections are closed
in the call that learns of it; a deleted org's caches go, too. When an org is renamed, the
connections that named it by its former name are closed: the name may be another org's now.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.org_of import org_by_text, org_name_in
from quafka_gateway.tenant import FetchFigures, OrgClient, OrgsMemory, Tenant, Traffic
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.ops.security import SecurityChange
from quafka_mesh_ops.org_limits import LimitName, limit_of

log = logging.getLogger("quafka.gateway.orgs")

ACTIVE, SUSPENDED, DELETING = "active", "suspended", "deleting"
OTHER = "other"
"""The label of all orgs that have no metrics of their own."""
_UNUSED_SECONDS = 60.0


class OrgRefusedError(Exception):
    """A client may not enter an org. The message is for the log."""


class Tenants:
    """The tenants of one gateway, by org."""

    def __init__(
        self,
        make: Callable[[int], Tenant],
        own: int,
        directory: Directory,
        most: int = 1,
        labels: int = 1,
        shared: OrgsMemory | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        """`own`: the gateway's own org, which is always served.

        `most`: the greatest number of orgs at a time; `labels`: of orgs with metrics of their own.
        `shared`: what the tenants share; it ends with them. `turns`: in which they use the loop.
        """
        self.turns = turns or FairTurns()
        """Shares the event loop between the orgs."""
        self._make = make
        self.own_id = own
        """The gateway's own org."""
        self._named = {own}
        self.directory = directory
        """This gateway's copy of orgs, users, ACLs and quotas."""
        self._most = most
        self._shared = shared
        self._free_labels = labels
        self._tenants: OrderedDict[int, Tenant] = OrderedDict()  # longest without change first
        self._unused: dict[Tenant, float] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._labelled: set[Tenant] = set()
        self._others_gone = Traffic()
        self._figures_gone = FetchFigures()
        directory.listen(self._changed)

    @property
    def own(self) -> Tenant:
        """The tenant of the gateway's own org."""
        return self._tenants.get(self.own_id) or self._begin(self.own_id)

    def is_own(self, tenant: Tenant) -> bool:
        """Whether it is of the gateway's own org, whose super users are the cluster's operators."""
        return tenant.org_id == self.own_id

    def is_named(self, org: int) -> bool:
        """Whether the settings name an org by its id."""
        return org in self._named

    def named_by_settings(self, text: str) -> int | None:
        """The org that a setting names by its id or its name; None: there is none of this name.

        An org that is named by its id may be entered without a record of it.
        """
        org = org_by_text(self.directory, text)
        if org is not None and text.isdecimal():
            self._named.add(org)
        return org

    # --- clients ----------------------------------------------------------------------------

    def enter(self, org: int, client: OrgClient, named: str = "") -> Tenant:
        """Count a client as one of the org's and return the org's tenant.

        `named`: the name by which the client, or its listener, has named the org; "": it has not.

        Raises:
            OrgRefusedError: the org may not be served, is not called so, or has no room for one
                more client.
        """
        refusal = self.refusal(org, named)
        if refusal:
            raise OrgRefusedError(refusal)
        tenant = self._tenants.get(org)
        record = self.directory.org(org)
        most = None if record is None else limit_of(record.limits, LimitName.CONNECTIONS)
        if most is not None and (len(tenant.clients) if tenant else 0) >= most:
            raise OrgRefusedError(f"{LimitName.CONNECTIONS}={most:.0f} of the org are open")
        if tenant is None:
            if len(self._tenants) >= self._most and not self._let_go_oldest():
                raise OrgRefusedError(f"clients of max.orgs={self._most} orgs are connected")
            tenant = self._begin(org)
        self._unused.pop(tenant, None)
        tenant.clients[client] = named
        return tenant

    def enter_named(self, text: str, client: OrgClient) -> Tenant:
        """As `enter`, for the org that a setting names; empty: the gateway's own.

        Raises:
            OrgRefusedError: as `enter`, or no org has this name.
        """
        org = self.named_by_settings(text) if text else self.own_id
        if org is None:
            raise OrgRefusedError("no org has this name")
        return self.enter(org, client, org_name_in(text))

    def leave(self, tenant: Tenant, client: OrgClient) -> None:
        """Uncount a client. Does nothing for one that is not counted."""
        tenant.clients.pop(client, None)
        if not tenant.clients and self._tenants.get(tenant.org_id) is tenant:
            self._unused[tenant] = asyncio.get_running_loop().time()

    def refusal(self, org: int, named: str = "") -> str:
        """Return why clients that name an org like this may not enter it; "" if they may."""
        record = self.directory.org(org)
        if record is None:
            return "no such org" if named or org not in self._named else ""
        if named not in ("", record.name):
            return "the org has another name"
        return "" if record.state == ACTIVE else f"the org is {record.state}"

    # --- tenants ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Tenant]:
        """The tenants there are, by org id."""
        return iter([tenant for _, tenant in sorted(self._tenants.items())])

    def __len__(self) -> int:
        return len(self._tenants)

    def find(self, org: int) -> Tenant | None:
        """The tenant of an org, if there is one."""
        return self._tenants.get(org)

    def sweep(self, now: float) -> None:
        """Drop the tenants without clients for a while. Call it every few seconds."""
        for tenant, since in list(self._unused.items()):
            if now - since >= _UNUSED_SECONDS and not self.is_own(tenant):
                self._let_go(tenant)

    async def close(self) -> None:
        """Drop all tenants."""
        for tenant in list(self._tenants.values()):
            self._let_go(tenant)
        await asyncio.gather(*self._closing)
        if self._shared is not None:
            await self._shared.close()

    # --- figures ----------------------------------------------------------------------------

    def figures(self) -> FetchFigures:
        """What all tenants together have fetched since the gateway's start."""
        figures = self._figures_gone
        for tenant in self._tenants.values():
            figures = figures.plus(tenant.figures())
        return figures

    @property
    def descriptors(self) -> int:
        """Open descriptors of brokers' log files."""
        return 0 if self._shared is None else self._shared.descriptors

    def traffic(self) -> Iterator[tuple[str, int, Traffic]]:
        """The label, number of connections and traffic of each org that has a label of its own,
        then those of all others together, if there are any."""
        others, connections = self._others_gone, 0
        for tenant in self:
            if tenant in self._labelled:
                yield str(tenant.org_id), len(tenant.clients), tenant.traffic
            else:
                others = others + tenant.traffic
                connections += len(tenant.clients)
        if others.requests or connections:
            yield OTHER, connections, others

    # --- internals --------------------------------------------------------------------------

    def _begin(self, org: int) -> Tenant:
        tenant = self._tenants[org] = self._make(org)
        self.turns.shared = len(self._tenants) > 1
        if self._free_labels > 0:
            self._free_labels -= 1
            self._labelled.add(tenant)
        record = self.directory.org(org)
        if record is not None:
            tenant.name = record.name
        return tenant

    def _let_go_oldest(self) -> bool:
        oldest = next((each for each in self._unused if not self.is_own(each)), None)
        if oldest is not None:
            self._let_go(oldest)
        return oldest is not None

    def _let_go(self, tenant: Tenant) -> None:
        del self._tenants[tenant.org_id]
        self.turns.shared = len(self._tenants) > 1
        self._unused.pop(tenant, None)
        if tenant in self._labelled:
            self._labelled.discard(tenant)
            self._free_labels += 1
        else:
            self._others_gone = self._others_gone + tenant.traffic
        closing = asyncio.get_running_loop().create_task(self._close(tenant))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, tenant: Tenant) -> None:
        await tenant.close()
        self._figures_gone = self._figures_gone.plus(tenant.figures().counters)

    def _changed(self, changes: Collection[SecurityChange] | None) -> None:
        """Apply the present records of orgs; None: any of them may have changed."""
        if changes is None:
            changed = list(self._tenants.values())
        else:
            ids = {change.org.org_id for change in changes if change.org is not None}
            changed = [self._tenants[org] for org in ids if org in self._tenants]
        for tenant in changed:
            record = self.directory.org(tenant.org_id)
            if record is not None:
                tenant.name = record.name
            self._close_refused(tenant)
            if self.refusal(tenant.org_id) and (record is None or record.state == DELETING):
                self._let_go(tenant)

    def _close_refused(self, tenant: Tenant) -> None:
        """Close the connections of clients that could not enter their org now."""
        refusals = {
            named: self.refusal(tenant.org_id, named) for named in {*tenant.clients.values()}
        }
        for refusal in {*refusals.values()} - {""}:
            log.info("closing connections of org %s: %s", tenant.name, refusal)
        for client, named in list(tenant.clients.items()):
            if refusals[named]:
                client.close(refusals[named])
