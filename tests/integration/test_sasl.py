"""Clients log in by SASL: real ones by each mechanism, and what becomes of wrong ones."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as _admin
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from quafka_proto.errors import ErrorCode
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.kafka_calls import metadata
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient
from tests.support.sasl_users import (
    alter_users,
    deletion,
    log_in_plain,
    seconds_until_closed,
    upsertion,
)
from tests.unit.gateway.sasl.tokens import Issuer

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SCRAM: Any = _admin  # its names of KIP-554 are not exported to type checkers
PASSWORD = "sec,ret="
ISSUER = Issuer()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("sasl")
    keys = folder / "keys.json"
    keys.write_bytes(ISSUER.jwks)
    ca = Authority(folder)
    args = (
        *("--ssl-certfile", str(ca.issue("server", ("127.0.0.1",)))),
        *("--sasl-enabled-mechanisms", ",".join(MECHANISMS)),
        *(
            "--listener-security-protocol-map",
            "INSIDE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SECURE:SASL_SSL",
        ),
        *("--super-users", "User:ANONYMOUS;User:alice"),
        *("--sasl-oauthbearer-jwks-endpoint-url", keys.as_uri()),
        *("--sasl-oauthbearer-expected-audience", "kafka"),
        *("--connections-max-reauth-ms", "3000", "--max-failed-authentications-per-ip", "0"),
    )
    listeners = "INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0,SECURE://127.0.0.1:0"
    with Cluster(folder, gateway_args=args, listeners=listeners) as cluster:
        alter_users(
            cluster.address_of("INSIDE"),
            upsertion("alice", PASSWORD),
            upsertion("alice", PASSWORD, "SCRAM-SHA-512", 8_192),
        )
        yield cluster


@pytest.fixture
def bootstrap(cluster: Cluster) -> str:
    host, port = cluster.address_of("CLIENTS")
    return f"{host}:{port}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


# --- real clients ---------------------------------------------------------------------------


def _confluent(bootstrap: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return config | {"oauth_cb": lambda _: (ISSUER.token(), time.time() + 60)}
    return config | {"sasl.username": "alice", "sasl.password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(bootstrap: str, topic: str, mechanism: str) -> None:
    config = _confluent(bootstrap, mechanism)
    producer = Producer(config)
    producer.produce(topic, b"hello")
    assert producer.flush(10) == 0
    consumer = Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, 10)
    assert (message.error(), message.value()) == (None, b"hello")
    consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_over_tls(cluster: Cluster, topic: str, mechanism: str) -> None:
    host, port = cluster.address_of("SECURE")
    config = _confluent(f"{host}:{port}", mechanism) | {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.folder / "test-CA.pem"),
    }
    producer = Producer(config)
    producer.produce(topic, b"hello")
    assert producer.flush(10) == 0


class _Aiokafka(AiokafkaTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return ISSUER.token()


def _aiokafka(bootstrap: str, mechanism: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return config | {"sasl_oauth_token_provider": _Aiokafka()}
    return config | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(bootstrap: str, topic: str, mechanism: str) -> None:
    config = _aiokafka(bootstrap, mechanism)
    producer = AIOKafkaProducer(**config)
    await producer.start()
    await producer.send_and_wait(topic, b"hello")
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **config)
    await consumer.start()
    async with asyncio.timeout(10):
        assert (await consumer.getone()).value == b"hello"
    await consumer.stop()


class _KafkaPython(KafkaPythonTokens):  # type: ignore[misc]
    def token(self) -> str:
        return ISSUER.token()


def _kafka_python(bootstrap: str, mechanism: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return config | {"sasl_oauth_token_provider": _KafkaPython()}
    return config | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(bootstrap: str, topic: str, mechanism: str) -> None:
    config = _kafka_python(bootstrap, mechanism)
    producer = KafkaProducer(**config)
    producer.send(topic, b"hello").get(10)
    producer.close()
    consumer = KafkaConsumer(**config)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"hello"
    consumer.close()


# --- administration -------------------------------------------------------------------------


def test_users_are_administered_with_a_kafka_client(bootstrap: str) -> None:
    admin: Any = AdminClient(_confluent(bootstrap, "SCRAM-SHA-256"))
    info = SCRAM.ScramCredentialInfo(SCRAM.ScramMechanism.SCRAM_SHA_512, 10_000)
    changes = [SCRAM.UserScramCredentialUpsertion("carol", info, b"password", b"salt")]
    for future in admin.alter_user_scram_credentials(changes).values():
        assert future.result(10) is None
    found = admin.describe_user_scram_credentials(["carol"])["carol"].result(10)
    (held,) = found.scram_credential_infos
    assert (held.mechanism, held.iterations) == (SCRAM.ScramMechanism.SCRAM_SHA_512, 10_000)
    as_carol = _confluent(bootstrap, "SCRAM-SHA-512", "password") | {"sasl.username": "carol"}
    assert AdminClient(as_carol).list_topics(timeout=10).topics == {}  # she may see none
    removals = [SCRAM.UserScramCredentialDeletion("carol", SCRAM.ScramMechanism.SCRAM_SHA_512)]
    for future in admin.alter_user_scram_credentials(removals).values():
        future.result(10)
    missing = admin.describe_user_scram_credentials(["carol"])["carol"]
    with pytest.raises(KafkaException) as error:
        missing.result(10)
    assert error.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


# --- what is refused ------------------------------------------------------------------------


def _fails_to_authenticate(config: dict[str, Any]) -> None:
    errors: list[KafkaError] = []
    producer = Producer(config | {"error_cb": errors.append})
    deadline = time.monotonic() + 30
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert KafkaError._AUTHENTICATION in [each.code() for each in errors]


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password(bootstrap: str, mechanism: str) -> None:
    _fails_to_authenticate(_confluent(bootstrap, mechanism, "wrong"))


def test_an_expired_token(bootstrap: str) -> None:
    config = _confluent(bootstrap, "OAUTHBEARER")
    token = ISSUER.token(exp=time.time() - 60)
    _fails_to_authenticate(config | {"oauth_cb": lambda _: (token, time.time() + 60)})


def test_unknown_users_and_wrong_passwords_have_one_answer(cluster: Cluster) -> None:
    answers: list[Any] = []
    for name, password in [("alice", "wrong"), ("nobody", PASSWORD), ("alice@nowhere", PASSWORD)]:
        with RawClient(cluster.address_of("CLIENTS")) as client:
            answer = log_in_plain(client, name, password)
            answers.append((answer.error_code, answer.error_message))
            assert client.closed_by_peer()
    assert len(set(answers)) == 1
    assert answers[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.long
def test_connections_of_a_removed_user_end_within_a_second(cluster: Cluster) -> None:
    inside, outside = cluster.address_of("INSIDE"), cluster.address_of("CLIENTS")
    alter_users(inside, upsertion("dave", "secret"))
    with RawClient(outside) as client, RawClient(outside) as other:
        assert log_in_plain(client, "dave", "secret").error_code == 0
        assert log_in_plain(other, "alice", PASSWORD).error_code == 0
        alter_users(inside, deletion("dave"))
        assert seconds_until_closed(client) < 5.0  # on a busy machine
        assert metadata(other, "t").brokers
        with RawClient(outside) as again:
            assert log_in_plain(again, "dave", "secret").error_code


@pytest.mark.long
def test_a_session_ends_unless_it_is_renewed(cluster: Cluster, bootstrap: str, topic: str) -> None:
    """By KIP-368: after a second at the earliest, as in Kafka."""
    with RawClient(cluster.address_of("CLIENTS")) as client:
        assert log_in_plain(client, "alice", PASSWORD).session_lifetime_ms == 3_000
        with RawClient(cluster.address_of("CLIENTS")) as renewed:
            log_in_plain(renewed, "alice", PASSWORD)
            time.sleep(1.1)
            assert log_in_plain(renewed, "alice", PASSWORD).error_code == 0
            time.sleep(2.0)
            with suppress(ConnectionError):
                metadata(client, "t")
                raise AssertionError("the session has ended")
            assert metadata(renewed, "t").brokers


def test_logins_are_counted_and_logged_without_secrets(cluster: Cluster) -> None:
    with RawClient(cluster.address_of("CLIENTS")) as client:
        assert log_in_plain(client, "alice", PASSWORD).error_code == 0
    scrape = Scrape(cluster.gateway.ready["operations"])
    name = "quafka_gateway_authentications_total"
    assert scrape(name, mechanism="PLAIN", outcome="success") >= 1
    assert "has authenticated as User:alice of org 1 by PLAIN" in cluster.logs
    assert PASSWORD not in cluster.logs
