"""Where a bystander is: in an org of its own, at a listener of its own."""

from __future__ import annotations

from dataclasses import replace

from quafka_proto.schema.quafka import AlterOrgRequest, AlterOrgResponse
from tests.hostile.catalogue import Attack
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

ORG = "bystanders"
LISTENER = "BYSTANDER"
_USUAL = "PLAINTEXT://127.0.0.1:0"
_SUPER_USERS = "--super-users"


def with_listener(attack: Attack) -> Attack:
    """The attack with a listener of the bystander's org behind its own ones."""
    gateway = attack.gateway
    for flag, value, separator in (
        ("--listener-security-protocol-map", f"{LISTENER}:PLAINTEXT", ","),
        ("--listener-org", f"{LISTENER}:{ORG}", ","),
    ):
        gateway = _added(gateway, flag, value, separator)
    if _SUPER_USERS in gateway:
        gateway = _added(gateway, _SUPER_USERS, f"User:ANONYMOUS@{ORG}", ";")
    listeners = f"{attack.listeners or _USUAL},{LISTENER}://127.0.0.1:0"
    return replace(attack, gateway=gateway, listeners=listeners)


def _added(arguments: tuple[str, ...], flag: str, value: str, separator: str) -> tuple[str, ...]:
    """A value more in a list that may be there already."""
    if flag not in arguments:
        return (*arguments, flag, value)
    at = arguments.index(flag) + 1
    return (*arguments[:at], f"{arguments[at]}{separator}{value}", *arguments[at + 1 :])


def make_org(cluster: Cluster, name: str) -> None:
    """Create an org, through the gateway's first listener."""
    with RawClient(cluster.address) as operator:
        answer = operator.call(AlterOrgRequest(org=name, create=True), AlterOrgResponse, 0)
    assert answer.error_code == 0, answer.error_message
