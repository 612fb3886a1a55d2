"""Settings of the gateway that have a syntax of their own."""

from __future__ import annotations

import pytest

from quafka_gateway.config import AddressLimit, parse_address_limits


def test_overrides_are_read_and_shown() -> None:
    found = parse_address_limits("192.0.2.1:100, [2001:DB8::0:1]:0")
    assert found == (AddressLimit("192.0.2.1", 100), AddressLimit("2001:db8::1", 0))
    assert ",".join(map(str, found)) == "192.0.2.1:100,[2001:db8::1]:0"
    assert parse_address_limits("") == ()


@pytest.mark.parametrize("text", ["192.0.2.1", "192.0.2.1:", "192.0.2.1:-1", "host:5", ":5"])
def test_malformed_overrides_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address_limits(text)
