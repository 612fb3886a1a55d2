"""Users of several orgs log in at one listener, under the same names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from quafka_proto.errors import ErrorCode
from quafka_proto.schema import quafka
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch, metadata, produce, values
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, seconds_until_closed, upsertion

ARGS = (
    *("--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256", "--listener-org", "ACME:acme"),
    "--listener-security-protocol-map",
    "INSIDE:PLAINTEXT,ACME:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "--super-users",
    "User:ANONYMOUS;User:alice;User:ANONYMOUS@acme;User:alice@acme",
    *("--max-failed-authentications-per-ip", "0"),
)
LISTENERS = ",".join(f"{name}://127.0.0.1:0" for name in ("INSIDE", "ACME", "CLIENTS"))
PASSWORDS = {"alice": "of-the-own", "alice@acme": "of-acme"}


def _alter(cluster: Cluster, **changes: object) -> None:
    with RawClient(cluster.address_of("INSIDE")) as operator:
        request = quafka.AlterOrgRequest(org="acme", **changes)  # type: ignore[arg-type]
        answer = operator.call(request, quafka.AlterOrgResponse, 0)
        assert answer.error_code == 0, answer.error_message


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("org-logins")
    with Cluster(folder, gateway_args=ARGS, listeners=LISTENERS) as cluster:
        _alter(cluster, create=True)
        for listener, name in (("INSIDE", "alice"), ("ACME", "alice@acme")):
            alter_users(cluster.address_of(listener), upsertion("alice", PASSWORDS[name]))
        yield cluster


def _logged_in(cluster: Cluster, name: str) -> RawClient:
    client = RawClient(cluster.address_of("CLIENTS"))
    answer = log_in_plain(client, name, PASSWORDS[name])
    assert answer.error_code == 0, answer.error_message
    return client


def test_equal_names_in_two_orgs_are_two_users(cluster: Cluster) -> None:
    with _logged_in(cluster, "alice") as own, _logged_in(cluster, "alice@acme") as acme:
        for client, value in ((own, b"own"), (acme, b"acme")):
            create_topic(client, "t")
            produce(client, "t", value)
        for client, value in ((own, b"own"), (acme, b"acme")):
            assert values(fetch(client, "t", 0)) == [value]


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", PASSWORDS["alice@acme"]),
        ("alice@acme", PASSWORDS["alice"]),
        ("alice@nobody", PASSWORDS["alice"]),
    ],
)
def test_a_password_is_good_in_its_org_alone(cluster: Cluster, name: str, password: str) -> None:
    with RawClient(cluster.address_of("CLIENTS")) as client:
        answer = log_in_plain(client, name, password)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_real_client_names_its_org(cluster: Cluster) -> None:
    host, port = cluster.address_of("CLIENTS")
    producer = Producer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice@acme",
            "sasl.password": PASSWORDS["alice@acme"],
        }
    )
    producer.produce("by-scram", b"v")
    assert producer.flush(10) == 0
    with RawClient(cluster.address_of("ACME")) as acme:
        assert values(fetch(acme, "by-scram", 0)) == [b"v"]


@pytest.mark.long
def test_users_of_a_suspended_org_are_out_within_a_second(cluster: Cluster) -> None:
    with _logged_in(cluster, "alice@acme") as acme, _logged_in(cluster, "alice") as own:
        _alter(cluster, state="suspended")
        assert seconds_until_closed(acme) < 5.0  # on a busy machine
        assert metadata(own, "t").topics[0].error_code == 0
    with RawClient(cluster.address_of("CLIENTS")) as client:
        answer = log_in_plain(client, "alice@acme", PASSWORDS["alice@acme"])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    _alter(cluster, state="active")
    _logged_in(cluster, "alice@acme").socket.close()


def test_one_too_many_of_an_org_is_disconnected_after_its_login(cluster: Cluster) -> None:
    _alter(cluster, limits=[quafka.OrgLimit("max.connections", 1)])
    with _logged_in(cluster, "alice@acme"), RawClient(cluster.address_of("CLIENTS")) as second:
        with pytest.raises(ConnectionError):
            log_in_plain(second, "alice@acme", PASSWORDS["alice@acme"])
        _logged_in(cluster, "alice").socket.close()
    _alter(cluster, removed_limits=["max.connections"])
