"""The limits of connections, in all and from one address."""

from __future__ import annotations

from quafka_gateway.config import AddressLimit
from quafka_gateway.edge.connection_limits import ClientConnectionLimits


def test_in_all_and_from_one_address() -> None:
    limits = ClientConnectionLimits(
        5, 2, [AddressLimit("192.0.2.9", 3), AddressLimit("192.0.2.8", 0)]
    )
    assert [limits.open("192.0.2.1") for _ in range(2)] == ["", ""]
    assert limits.open("192.0.2.1") == "max.connections.per.ip=2 are open from 192.0.2.1"
    assert "max.connections.per.ip=0" in limits.open("192.0.2.8")
    assert [limits.open("192.0.2.9") for _ in range(3)] == [""] * 3
    assert limits.open("192.0.2.3") == "max.connections=5 are open"
    limits.close("192.0.2.1")
    assert limits.open("192.0.2.1") == ""
