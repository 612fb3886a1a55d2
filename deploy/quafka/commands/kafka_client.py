"""librdkafka for `produce` and `consume`, imported only when one of these runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from quafka.commands.run import complain
from quafka_client.sasl import Credentials
from quafka_client.security import ClientSecurity, Tls
from quafka_mesh_ops.settings import join_address

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_silent = logging.getLogger("quafka.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Troubles:
    """Reports each outage of all brokers once."""

    def __init__(self) -> None:
        self._reported = False

    def __call__(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self._reported:  # noqa: SLF001
            self._reported = True
            complain("no broker can be reached; trying again (`quafka doctor` may show why)")

    def over(self) -> None:
        """The outage has ended: a record arrived."""
        self._reported = False


def config(
    bootstrap: list[tuple[str, int]], security: ClientSecurity, troubles: Troubles
) -> dict[str, Any]:
    """The settings that producer and consumer share."""
    return {
        **_security(security),
        "bootstrap.servers": ",".join(join_address(*address) for address in bootstrap),
        "client.id": "quafka-cli",
        "error_cb": troubles,
        "logger": _silent,
        "reconnect.backoff.max.ms": 1_000,
    }


def _security(security: ClientSecurity) -> dict[str, Any]:
    """How librdkafka connects and logs in; it authenticates again before a session ends."""
    found: dict[str, Any] = {"security.protocol": security.protocol}
    if security.tls is not None:
        found |= _tls(security.tls)
    if security.credentials is not None:
        found |= _sasl(security.credentials)
    return found


def _tls(tls: Tls) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ssl.endpoint.identification.algorithm": "https" if tls.checks_name else "none"
    }
    key = tls.key or tls.certificate  # one file may have both
    for name, pem in (("ca", tls.authorities), ("certificate", tls.certificate), ("key", key)):
        if pem is not None:
            kind = "pem" if pem.text else "location"
            found[f"ssl.{name}.{kind}"] = pem.text or pem.path
    if tls.key_password:
        found["ssl.key.password"] = tls.key_password
    return found


def _sasl(credentials: Credentials) -> dict[str, Any]:
    found: dict[str, Any] = {"sasl.mechanism": credentials.mechanism}
    token = credentials.token
    if token is None:
        return found | {
            "sasl.username": credentials.username,
            "sasl.password": credentials.password,
        }

    def fetch(_config: str) -> tuple[str, float]:
        value, expires_at = token()
        return value, expires_at

    return found | {"oauth_cb": fetch}
