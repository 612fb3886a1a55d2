"""Listeners as the settings describe them: Kafka's syntax, names, protocols, addresses."""

from __future__ import annotations

import pytest

from quafka_gateway.config import EdgeSettings
from quafka_gateway.listeners import (
    ByListener,
    Endpoint,
    SecurityProtocol,
    by_listener,
    is_loopback,
    parse_endpoints,
    parse_protocol_map,
    value_for,
)
from quafka_telemetry.startup import StartupError


def settings(**texts: str) -> EdgeSettings:
    fields = EdgeSettings.__dataclass_fields__
    values = {name: fields[name].metadata["setting"].parse(text) for name, text in texts.items()}
    return EdgeSettings(**values)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("PLAINTEXT://127.0.0.1:9092", [("PLAINTEXT", "127.0.0.1", 9092)]),
        ("tls://[::1]:0", [("TLS", "::1", 0)]),
        ("A://:1, b://h:2", [("A", "", 1), ("B", "h", 2)]),
        ("", []),
    ],
)
def test_endpoints_are_read(text: str, found: list[tuple[str, str, int]]) -> None:
    endpoints = parse_endpoints(text)
    assert list(endpoints) == found
    assert parse_endpoints(",".join(map(str, endpoints))) == endpoints


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9092",
        "A:/h:1",
        "A://h",
        "A://h:65536",
        "1A://h:1",
        "A://h:1,a://h:2",
        "A://::1:1",
    ],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_endpoints(text)


def test_a_map_gives_names_their_protocols() -> None:
    assert [str(each) for each in parse_protocol_map("tls:ssl, IN:SASL_PLAINTEXT")] == [
        "TLS:SSL",
        "IN:SASL_PLAINTEXT",
    ]
    for text in ("TLS", "TLS:TLS", ":SSL", "A:SSL,a:SSL"):
        with pytest.raises(ValueError, match=r".*"):
            parse_protocol_map(text)


def test_values_by_listener_are_those_of_the_listener_or_of_all() -> None:
    found = by_listener(int)("7, IN:8,out: 9")
    assert found == (ByListener("", 7), ByListener("IN", 8), ByListener("OUT", 9))
    assert ",".join(map(str, found)) == "7,IN:8,OUT:9"
    assert [value_for(found, name, 0) for name in ("IN", "OUT", "ELSE")] == [8, 9, 7]
    assert value_for((), "IN", 0) == 0


def test_without_listeners_there_is_one_of_listen() -> None:
    (one,) = settings(listen="127.0.0.1:1").listener_table()
    assert (one.name, one.protocol) == ("PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert one.endpoint == Endpoint("PLAINTEXT", "127.0.0.1", 1)
    assert one.bound("127.0.0.1", 1, "me").advertised == ("127.0.0.1", 1)
    (one,) = settings(listen="0.0.0.0:1").listener_table()
    assert one.bound("0.0.0.0", 1, "me").advertised == ("me", 1)
    (one,) = settings(listen="0.0.0.0:1", advertised_listener="far:2").listener_table()
    assert one.bound("0.0.0.0", 1, "me").advertised == ("far", 2)


def test_listeners_have_protocols_and_advertised_addresses_of_their_own() -> None:
    inside, outside = settings(
        listeners="INSIDE://127.0.0.1:1,SASL_SSL://:2",
        advertised_listeners="sasl_ssl://far:3",
        listener_security_protocol_map="INSIDE:PLAINTEXT",
        listener_org="INSIDE:acme",
        ssl_certfile="server.pem",
    ).listener_table()
    assert (inside.protocol, outside.protocol) == ("PLAINTEXT", "SASL_SSL")
    assert (inside.protocol.tls, inside.protocol.sasl) == (False, False)
    assert (outside.protocol.tls, outside.protocol.sasl) == (True, True)
    assert inside.bound("127.0.0.1", 1, "me").advertised_endpoint == ("INSIDE", "127.0.0.1", 1)
    assert outside.bound("", 2, "me").advertised_endpoint == ("SASL_SSL", "far", 3)
    assert (inside.org, outside.org) == ("acme", "")
    assert (inside.authenticates, outside.authenticates) == (False, True)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"listen": "h:1", "listeners": "SSL://h:2"}, "listen and listeners are both set"),
        ({"advertised_listener": "h:1", "listeners": "SSL://h:2"}, "advertised.listeners"),
        ({"listeners": "IN://h:1"}, "IN is not a security protocol"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:1"}, "same address"),
        ({"listeners": "SSL://:0"}, "needs a host"),
        ({"advertised_listeners": "SSL://h:1"}, "there is no listener SSL"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot connect to"),
        ({"advertised_listeners": "PLAINTEXT://h:0"}, "cannot connect to"),
        ({"listener_org": "SSL:7"}, "listener.org: there is no listener SSL"),
        ({"listeners": "SSL://h:1"}, "needs ssl.certfile"),
        ({"ssl_certfile": "OTHER:c.pem"}, "ssl.certfile: there is no listener OTHER"),
        (
            {"listeners": "SSL://h:1", "ssl_certfile": "c.pem", "ssl_client_auth": "required"},
            "needs ssl.ca.file",
        ),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:1"}, "SASL_PLAINTEXT beyond loopback"),
        ({"listeners": "SASL_PLAINTEXT://:1"}, "listener.allow.plaintext.sasl"),
    ],
)
def test_settings_that_contradict_one_another_end_the_start(
    texts: dict[str, str], reason: str
) -> None:
    with pytest.raises(StartupError, match=reason):
        settings(**texts).listener_table()


def test_loopback_addresses_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "192.0.2.1", "kafka.example.org")))


def test_a_plaintext_sasl_listener_is_allowed_on_loopback_or_on_purpose() -> None:
    (one,) = settings(listeners="SASL_PLAINTEXT://127.0.0.1:1").listener_table()
    assert one.tls is None
    texts = {"listeners": "SASL_PLAINTEXT://h:1", "listener_allow_plaintext_sasl": "true"}
    assert len(settings(**texts).listener_table()) == 1


def test_tls_is_set_for_all_listeners_or_for_one() -> None:
    public, partners, users = settings(
        listeners="SSL://h:1,PARTNERS://h:2,USERS://h:3",
        listener_security_protocol_map="PARTNERS:SSL,USERS:SASL_SSL",
        ssl_certfile="all.pem,PARTNERS:own.pem",
        ssl_keyfile="PARTNERS:own.key",
        ssl_ca_file="ca.pem",
        ssl_client_auth="required,SSL:none",
        ssl_enabled_protocols="TLSv1.3",
    ).listener_table()
    assert public.tls is not None
    assert partners.tls is not None
    assert users.tls is not None
    assert [str(each.tls.certificate) for each in (public, partners, users) if each.tls] == [
        "all.pem", "own.pem", "all.pem",
    ]  # fmt: skip
    assert (str(public.tls.key), str(partners.tls.key)) == ("all.pem", "own.key")
    # As Kafka's: at a SASL_SSL listener only an entry of its own counts.
    assert [each.tls.client_auth for each in (public, partners, users) if each.tls] == [
        "none", "required", "none",
    ]  # fmt: skip
    assert (public.tls.authorities, str(partners.tls.authorities)) == (None, "ca.pem")
    assert [each.authenticates for each in (public, partners, users)] == [False, True, True]
    assert public.tls.versions == ("TLSv1.3",)
    for text in ("TLSv1.1", "", "TLSv1.2,SSLv3"):
        with pytest.raises(ValueError, match=r".*"):
            settings(ssl_enabled_protocols=text)
