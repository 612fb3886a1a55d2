"""How many connections there may be."""

from __future__ import annotations

import pytest

from quafka_gateway.edge.connection_limits import AddressLimit, ConnectionLimits, parse_overrides


def test_in_all_and_from_one_address() -> None:
    limits = ConnectionLimits(5, 2, [AddressLimit("192.0.2.9", 3), AddressLimit("192.0.2.8", 0)])
    assert [limits.open("192.0.2.1") for _ in range(2)] == ["", ""]
    assert limits.open("192.0.2.1") == "max.connections.per.ip=2 are open from 192.0.2.1"
    assert "max.connections.per.ip=0" in limits.open("192.0.2.8")
    assert [limits.open("192.0.2.9") for _ in range(3)] == [""] * 3
    assert limits.open("192.0.2.3") == "max.connections=5 are open"
    limits.close("192.0.2.1")
    assert limits.open("192.0.2.1") == ""


def test_overrides_are_read_and_shown() -> None:
    found = parse_overrides("192.0.2.1:100, [2001:DB8::0:1]:0")
    assert found == (AddressLimit("192.0.2.1", 100), AddressLimit("2001:db8::1", 0))
    assert ",".join(map(str, found)) == "192.0.2.1:100,[2001:db8::1]:0"
    assert parse_overrides("") == ()


@pytest.mark.parametrize("text", ["192.0.2.1", "192.0.2.1:", "192.0.2.1:-1", "host:5", ":5"])
def test_what_is_no_override(text: str) -> None:
    with pytest.raises(ValueError):
        parse_overrides(text)
