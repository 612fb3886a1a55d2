"""The identity of a connection's client, from its authentication on."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from quafka_gateway.security.authorizer import Authorizer, ClientAccess
from quafka_gateway.security.principal import ANONYMOUS, Principal
from quafka_gateway.tenant import Tenant

SSL = "SSL"
"""The mechanism of a client that has proven its name by a certificate."""


@dataclass(slots=True)
class ClientSession:
    """A client's name, org and listener. Made when the client has authenticated.

    Attributes:
        tenant: the client's org.
        principal: the client's name in its org.
        listener: the name of the listener that the client came to.
        advertised: the host and port under which that listener's clients reach the gateway.
        mechanism: the SASL mechanism; "SSL" for a client certificate; "" for neither.
        access: what the client may do, once it was asked for (`access_by`).
        expires_at: loop time at which the client must authenticate again (KIP-368).
    """

    tenant: Tenant
    principal: Principal = ANONYMOUS
    listener: str = "PLAINTEXT"
    advertised: tuple[str, int] = ("", 0)
    mechanism: str = ""
    expires_at: float = inf
    access: ClientAccess | None = None

    def access_by(self, authorizer: Authorizer, host: str) -> ClientAccess:
        """What the client, at this address, may do."""
        access, org_id = self.access, self.tenant.org_id
        if access is None or access.principal is not self.principal or access.org_id != org_id:
            access = self.access = authorizer.access(org_id, self.principal, host)
        return access
