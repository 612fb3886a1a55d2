"""The commands against an Apache Kafka with TLS, SASL and StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.command import Command
from tests.support.java import JAVA_TOOLS
from tests.support.secured_kafka import ADMIN, PASSWORD, SecuredKafka, secured_kafka

pytestmark = JAVA_TOOLS


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Generator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


def command(kafka: SecuredKafka, protocol: str, text: str) -> Command:
    path = kafka.authority.file.parent / "client.properties"
    path.write_text(f"security.protocol={protocol}\nssl.ca.location={kafka.authority.file}\n{text}")
    path.chmod(0o600)
    return Command(kafka.addresses[protocol], config=path)


def login(mechanism: str, password: str = PASSWORD) -> str:
    return f"sasl.mechanism={mechanism}\nsasl.username={ADMIN}\nsasl.password={password}"


def test_every_way_in(kafka: SecuredKafka) -> None:
    client = kafka.authority.issue("client")
    ways = [("SSL", f"ssl.keystore.location={client}")]
    ways += [
        (protocol, login(mechanism))
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    token = f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.config=principal={ADMIN}"
    ways.append(("SASL_SSL", token))
    command(kafka, *ways[0])("topics create t")
    for n, way in enumerate(ways):
        quafka = command(kafka, *way)
        assert quafka("topics list").rows == [["t", "1", "1"]], way
        if n in (0, 3, len(ways) - 1):  # librdkafka has the same settings of all
            quafka("produce -t t", stdin=b"%d" % n)
            assert quafka("consume -t t -e").out.splitlines()[-1] == str(n)
    assert quafka("doctor").out.count("fail") == 0


@pytest.mark.parametrize(
    ("protocol", "text", "why"),
    [
        ("SASL_SSL", login("SCRAM-SHA-512", "wrong"), "refuses the login"),
        ("SASL_PLAINTEXT", login("PLAIN", "wrong"), "refuses the login"),
        ("SSL", "", "may require a client certificate"),
        ("PLAINTEXT", None, "does not ask clients to log in"),
        ("SASL_SSL", None, "say how in --command-config"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    kafka: SecuredKafka, protocol: str, text: str | None, why: str
) -> None:
    quafka = command(kafka, protocol, text or "")
    if text is None:  # the listener of another protocol
        as_if = {"PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SSL"}[protocol]
        command(kafka, as_if, login("PLAIN"))
        quafka = Command(
            kafka.addresses[protocol], config=kafka.authority.file.parent / "client.properties"
        )
    assert why in quafka("topics list", code=1).err


def test_a_server_of_another_name_or_authority_is_not_talked_to(kafka: SecuredKafka) -> None:
    way = login("PLAIN")
    quafka = command(kafka, "SASL_SSL", f"ssl.truststore.location={kafka.certificate}\n{way}")
    assert "is not accepted" in quafka("topics list", code=1).err
    other = kafka.addresses["SASL_SSL"].replace("localhost", "127.0.0.2")
    command(kafka, "SASL_SSL", way)
    by_number = Command(other, config=kafka.authority.file.parent / "client.properties")
    ran = by_number("topics list", code=1)
    assert "IP address mismatch" in ran.err or "nothing listens" in ran.err
