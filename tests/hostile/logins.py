"""A stage on which attackers log in: TLS and SCRAM, in an org of their own, with all rights there.

The bystander logs in, too, in another org. Attacks need not know: they connect to a relay
(`relay.py`). What they have sent is then sent again without a login (`before_login.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.hostile import beside
from tests.hostile.catalogue import Attack
from tests.hostile.relay import MECHANISM, Relay
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.sasl_users import alter_users, upsertion

_ATTACKERS = "attackers"
_USER, _PASSWORD = "somebody", "secret"
"""In both orgs: the same name is two users."""
BYSTANDERS, CLIENTS = "BYSTANDERS", "CLIENTS"
"""Listeners: the bystanders' without a login, and that with logins of both orgs."""
_INSIDE = (("OPERATORS", ""), ("ATTACKERS", _ATTACKERS), (BYSTANDERS, beside.ORG))
_LISTENERS = ",".join(f"{name}://127.0.0.1:0" for name in (*dict(_INSIDE), CLIENTS))
_PROTOCOLS = ",".join((*(f"{name}:PLAINTEXT" for name, _ in _INSIDE), f"{CLIENTS}:SASL_SSL"))
_SUPER_USERS = ["User:ANONYMOUS"]
for _org in (_ATTACKERS, beside.ORG):
    _SUPER_USERS += [f"User:ANONYMOUS@{_org}", f"User:{_USER}@{_org}"]
_GATEWAY = (
    *("--listener-security-protocol-map", _PROTOCOLS),
    *("--listener-org", ",".join(f"{name}:{org}" for name, org in _INSIDE if org)),
    *("--super-users", ";".join(_SUPER_USERS)),
    *("--sasl-enabled-mechanisms", MECHANISM),
    *("--ssl-certfile", "{folder}/server.pem"),
    # Connections that send nothing whole are closed when their time is over.
    *("--connection-authentication-timeout-ms", "1500"),
    *("--max-failed-authentications-per-ip", "0"),
)


def can_log_in(attack: Attack) -> bool:
    """Whether its attackers are clients; those of some attacks log in, or must not, already."""
    return attack.of_clients and not attack.listeners


def behind_login(attack: Attack) -> Attack:
    """The same attack on such a stage."""
    return replace(
        attack,
        behind_login=True,
        gateway=(*attack.gateway, *_GATEWAY),
        listeners=_LISTENERS,
        prepare=_certificate,
    )


def clients_address(cluster: Cluster) -> tuple[str, int]:
    """Of the listener with logins."""
    return cluster.address_of(CLIENTS)


def make_orgs(cluster: Cluster) -> None:
    """The two orgs with their users."""
    for org in (_ATTACKERS, beside.ORG):
        beside.make_org(cluster, org)
    for listener, org in _INSIDE:
        if org:
            alter_users(cluster.address_of(listener), upsertion(_USER, _PASSWORD))


def bystander_settings(folder: Path) -> dict[str, str]:
    """librdkafka's."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": f"{_USER}@{beside.ORG}",
        "sasl.password": _PASSWORD,
        "ssl.ca.location": str(_authority(folder)),
    }


def relay(cluster: Cluster, folder: Path) -> Relay:
    """A new one for attackers; a context manager."""
    name = f"{_USER}@{_ATTACKERS}"
    there = clients_address(cluster)
    return Relay(there, _authority(folder), name, _PASSWORD, folder / "relay.log")


def _certificate(folder: Path) -> None:
    authority = Authority(folder)
    authority.issue("server", ("127.0.0.1",))
    assert authority.file == _authority(folder)


def _authority(folder: Path) -> Path:
    return folder / "test-CA.pem"
