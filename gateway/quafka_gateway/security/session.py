"""What a connection is known to be, from its authentication on."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from quafka_gateway.security.authorizer import Access
from quafka_gateway.security.principal import ANONYMOUS, Principal
from quafka_gateway.tenant import Tenant


@dataclass(slots=True)
class ClientSession:
    """A client's name, org and listener. Made when the client has authenticated.

    Attributes:
        tenant: the client's org.
        principal: the client's name in its org.
        listener: the name of the listener that the client came to.
        advertised: the host and port under which that listener's clients reach the gateway.
        mechanism: the SASL mechanism; "SSL" for a client certificate; "" for neither.
        access: what the client may do, once it was asked for (`RequestContext.access`).
        expires_at: loop time at which the client must authenticate again (KIP-368).
    """

    tenant: Tenant
    principal: Principal = ANONYMOUS
    listener: str = "PLAINTEXT"
    advertised: tuple[str, int] = ("", 0)
    mechanism: str = ""
    expires_at: float = inf
    access: Access | None = None
