"""Listeners: the addresses at which Kafka clients connect, and what holds at each. Pure.

The syntax is Kafka's: `NAME://host:port`. A name is a security protocol, or
`listener.security.protocol.map` gives it one. Names are not case sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from quafka_gateway.principal_rules import DEFAULT, PrincipalRule
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.startup import StartupError

T = TypeVar("T")
D = TypeVar("D")

CLIENT_AUTH = ("none", "requested", "required")
"""Whether a TLS client presents a certificate: never, optionally, or always."""
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


class SecurityProtocol(StrEnum):
    """What a listener's clients speak, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """An address with its listener's name, `NAME://host:port`; host "": all interfaces."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"


class MappedProtocol(NamedTuple):
    """One entry of `listener.security.protocol.map`."""

    name: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol}"


class ByListener(NamedTuple, Generic[T]):
    """A setting's value for one listener, `NAME:value`; name "": for all without their own."""

    name: str
    value: T

    def __str__(self) -> str:
        return f"{self.name}:{self.value}" if self.name else str(self.value)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS of one listener.

    Attributes:
        certificate, key: PEM files, which may be the same.
        authorities: PEM file of the authorities of clients' certificates.
        client_auth: one of `CLIENT_AUTH`.
        versions: some of `TLS_VERSIONS`.
        ciphers: of TLS 1.2, by OpenSSL's names.
        rules: make clients' names from their certificates'.
    """

    certificate: Path
    key: Path
    authorities: Path | None = None
    client_auth: str = "none"
    versions: tuple[str, ...] = TLS_VERSIONS
    ciphers: str = ""
    rules: tuple[PrincipalRule, ...] = DEFAULT


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One address for Kafka clients.

    Attributes:
        name: its name, upper case.
        protocol: what its clients speak.
        host, port: where it listens; port 0 until a free one is bound. host "": all interfaces.
        advertised: the host and port under which its clients reach the gateway.
        org: the org of all its clients, by id or name; "" if the client's name decides.
        tls: how its connections are encrypted; None: they are not.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised: tuple[str, int] = ("", 0)
    org: str = ""
    tls: TlsSettings | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The address that it listens on."""
        return Endpoint(self.name, self.host, self.port)

    @property
    def advertised_endpoint(self) -> Endpoint:
        """The address that its clients connect to."""
        return Endpoint(self.name, *self.advertised)

    def bound(self, host: str, port: int, own_name: str) -> KafkaListener:
        """The listener at the address that it has got.

        Without an advertised address of its own it advertises that one, or `own_name`, the name
        of this host, if it listens on all interfaces.
        """
        reachable = own_name if host in ANY_ADDRESS else host
        return replace(self, host=host, port=port, advertised=self.advertised_or(reachable, port))

    def advertised_or(self, host: str, port: int) -> tuple[str, int]:
        """The advertised address, or the given one if none is set."""
        return self.advertised if self.advertised[0] else (host, port)

    @property
    def authenticates(self) -> bool:
        """Whether it authenticates clients."""
        return self.protocol.sasl or (self.tls is not None and self.tls.client_auth != "none")

    @property
    def loopback(self) -> bool:
        """Whether only this host reaches it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a listening address is reached from this host only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# --- settings -----------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
ENDPOINTS = "NAME://host:port, separated by commas"
DEFAULT_MAP = tuple(MappedProtocol(each.value, each) for each in SecurityProtocol)
PROTOCOL_MAP = "NAME:protocol, separated by commas"
BY_LISTENER = "a value for all listeners, or NAME:value, separated by commas"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Read `PLAINTEXT://127.0.0.1:9092,TLS://[::]:9093`, also without a host.

    Raises:
        ValueError: an entry is not an endpoint, or two have one name.
    """
    found = tuple(_endpoint(part) for part in _parts(text))
    _check_distinct([each.name for each in found])
    return found


def _endpoint(text: str) -> Endpoint:
    name, separator, address = text.partition("://")
    if not separator:
        raise ValueError(text)
    if address.startswith(":") and address[1:].isdecimal():
        address = f"[::]{address}"
        return Endpoint(_name(name), "", split_address(address)[1])
    return Endpoint(_name(name), *split_address(address))


def parse_protocol_map(text: str) -> tuple[MappedProtocol, ...]:
    """Read `TLS:SSL,INTERNAL:PLAINTEXT`.

    Raises:
        ValueError: an entry is not a name and a protocol, or two have one name.
    """
    found: list[MappedProtocol] = []
    for part in _parts(text):
        name, _, protocol = part.partition(":")
        found.append(MappedProtocol(_name(name), SecurityProtocol(protocol.strip().upper())))
    _check_distinct([each.name for each in found])
    return tuple(found)


def by_listener(parse: Callable[[str], T]) -> Callable[[str], tuple[ByListener[T], ...]]:
    """Make a parser of values by listener: `required,INTERNAL:none`."""

    def parse_all(text: str) -> tuple[ByListener[T], ...]:
        found: list[ByListener[T]] = []
        for part in _parts(text):
            name, colon, value = part.partition(":")
            if colon and _NAME.fullmatch(name):
                found.append(ByListener(name.upper(), parse(value.strip())))
            else:
                found.append(ByListener("", parse(part)))
        _check_distinct([each.name for each in found])
        return tuple(found)

    return parse_all


_ORG = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def parse_org(text: str) -> str:
    """Check an org's id or name. Raises ValueError."""
    if not _ORG.fullmatch(text):
        raise ValueError(text)
    return text


def parse_tls_versions(text: str) -> tuple[str, ...]:
    """Read versions of TLS, separated by commas. Raises ValueError."""
    found = set(_parts(text))
    if not found or not found <= set(TLS_VERSIONS):
        raise ValueError(text)
    return tuple(each for each in TLS_VERSIONS if each in found)


def value_for(values: Sequence[ByListener[T]], name: str, default: D) -> T | D:
    """A listener's value: its own, that of all, or the default."""
    table: dict[str, T | D] = {each.name: each.value for each in values}
    return table.get(name, table.get("", default))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _name(text: str) -> str:
    if not _NAME.fullmatch(text.strip()):
        raise ValueError(text)
    return text.strip().upper()


def _check_distinct(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise ValueError("a name is there twice")


# --- the table ----------------------------------------------------------------------------------


def listener_table(
    endpoints: Sequence[Endpoint],
    advertised: Sequence[Endpoint],
    protocols: Sequence[MappedProtocol],
    orgs: Sequence[ByListener[str]],
    tls: Callable[[str, SecurityProtocol], TlsSettings | None] = lambda name, protocol: None,
) -> tuple[KafkaListener, ...]:
    """The listeners that the settings describe. `tls` gives each its TLS, by name and protocol.

    Raises:
        StartupError: the settings contradict one another.
    """
    known = {each.name: each.protocol for each in (*DEFAULT_MAP, *protocols)}
    names = [each.name for each in endpoints]
    check_names("advertised.listeners", [each.name for each in advertised], names)
    check_names("listener.org", [each.name for each in orgs if each.name], names)
    told = {each.name: (each.host, each.port) for each in advertised}
    for each in advertised:
        if each.host in ANY_ADDRESS or not each.port:
            raise StartupError(f"advertised.listeners: clients cannot connect to {each}")
    for each in endpoints:
        if not each.host and not each.port:
            raise StartupError(f"listeners: {each} needs a host or a port other than 0")
    ports = [(each.host, each.port) for each in endpoints if each.port]
    if len(set(ports)) != len(ports):
        raise StartupError("listeners: two listeners have the same address")
    found: list[KafkaListener] = []
    for each in endpoints:
        if each.name not in known:
            raise StartupError(
                f"listeners: {each.name} is not a security protocol, "
                "and listener.security.protocol.map has no entry for it"
            )
        org = value_for(orgs, each.name, "")
        protocol, at = known[each.name], told.get(each.name, ("", 0))
        its_tls = tls(each.name, protocol)
        found.append(KafkaListener(each.name, protocol, each.host, each.port, at, org, its_tls))
    return tuple(found)


def check_names(setting: str, names: Sequence[str], listeners: Sequence[str]) -> None:
    """Raise StartupError if a setting names a listener that does not exist."""
    for name in names:
        if name not in listeners:
            raise StartupError(f"{setting}: there is no listener {name} in listeners")
