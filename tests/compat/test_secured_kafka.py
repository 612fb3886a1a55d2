"""The commands against an Apache Kafka with TLS, SASL and StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.java import JAVA_TOOLS
from tests.support.secured_kafka import ADMIN, PASSWORD, SecuredKafka, secured_kafka

pytestmark = [pytest.mark.long, JAVA_TOOLS]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Generator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


def command(kafka: SecuredKafka, protocol: str, text: str, address: str = "") -> Command:
    """The `quafka` of a client that takes this protocol, at this or the protocol's address."""
    path = kafka.authority.file.parent / "client.properties"
    path.write_text(f"security.protocol={protocol}\nssl.ca.location={kafka.authority.file}\n{text}")
    path.chmod(0o600)
    return Command(address or kafka.addresses[protocol], config=path)


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
    (listed,) = quafka("topics list --sizes --rates 0.1 --format json").json["topics"]
    assert (listed["records"], listed["records_per_second"]) == (3, 0)
    assert listed["bytes"] > 3 * 68, "three batches"
    assert quafka("consume -t t --count").out == "3\n"
    assert quafka("consume -t t -o 1 --until 2").out == "3\n", "the record of the fourth way"


@pytest.mark.parametrize(
    ("protocol", "text", "listener", "why"),
    [
        ("SASL_SSL", login("SCRAM-SHA-512", "wrong"), "SASL_SSL", "refuses the login"),
        ("SASL_PLAINTEXT", login("PLAIN", "wrong"), "SASL_PLAINTEXT", "refuses the login"),
        ("SSL", "", "SSL", "may require a client certificate"),
        ("SASL_PLAINTEXT", login("PLAIN"), "PLAINTEXT", "does not require a login"),
        ("SSL", "", "SASL_SSL", "configure one in --command-config"),
        ("SSL", "", "PLAINTEXT", "check that the listener speaks TLS"),
        ("PLAINTEXT", "", "SSL", "speaks TLS; set security.protocol"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    kafka: SecuredKafka, protocol: str, text: str, listener: str, why: str
) -> None:
    quafka = command(kafka, protocol, text, kafka.addresses[listener])
    assert why in quafka("topics list", code=1).err


def test_a_server_of_another_authority_or_name_is_not_talked_to(kafka: SecuredKafka) -> None:
    way, address = login("PLAIN"), kafka.addresses["SASL_SSL"]
    quafka = command(kafka, "SASL_SSL", f"ssl.truststore.location={kafka.certificate}\n{way}")
    assert "is not accepted" in quafka("topics list", code=1).err
    number = address.replace("localhost", "127.0.0.1")
    command(kafka, "SASL_SSL", way, number)("topics list")


def test_users(kafka: SecuredKafka, tmp_path: Path) -> None:
    quafka = command(kafka, "SASL_SSL", login("SCRAM-SHA-512"))
    quafka("users add alice", stdin=b"first\n")
    assert "exists already" in quafka("users add alice", stdin=b"x\n", code=1).err
    assert quafka("users list").rows[2:] == [
        ["alice", "SCRAM-SHA-256", "4096"], ["alice", "SCRAM-SHA-512", "4096"],
    ]  # fmt: skip
    file = tmp_path / "password"
    file.write_text("second\n")
    quafka(f"users set-password alice --password-file {file} --iterations 8192")
    found = quafka("users list --format json").json["users"][1]
    assert found == {"user": "alice", "credentials": [
        {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]}  # fmt: skip
    as_alice = login("SCRAM-SHA-256", "second").replace(ADMIN, "alice")
    assert command(kafka, "SASL_PLAINTEXT", as_alice)("topics list").rows == []
    quafka = command(kafka, "SASL_SSL", login("SCRAM-SHA-512"))
    assert "no such user" in quafka("users remove alice bob", code=1).err
    assert len(quafka("users list").rows) == 2


def test_acls(kafka: SecuredKafka) -> None:
    quafka = command(kafka, "SASL_SSL", login("SCRAM-SHA-512"))
    producer = ("acls add --allow-principal alice --producer --transactional-id t --topic", "or-*")
    assert len(quafka(*producer, "--dry-run").rows) == 6
    quafka(*producer)
    quafka("acls add --allow-principal User:bob --consumer --topic or-1 --group g")
    quafka("acls add --deny-principal User:* --deny-host 192.0.2.1 --operation describe-configs",
           "--topic", "*")  # fmt: skip
    assert quafka("acls list --topic or-1 --principal alice").rows == [
        ["User:alice", "ALLOW", operation, "*", "TOPIC", "or-", "PREFIXED"]
        for operation in ("CREATE", "DESCRIBE", "WRITE")
    ]
    assert quafka("acls list --principal User:* --format json").json == {"acls": [{
        "resource_type": "TOPIC", "resource": "*", "pattern": "LITERAL", "principal": "User:*",
        "host": "192.0.2.1", "operation": "DESCRIBE_CONFIGS", "permission": "DENY",
    }]}  # fmt: skip
    assert len(quafka("acls list").rows) == 9
    quafka("acls remove --allow-principal alice --producer --topic", "or-*")
    assert quafka("acls remove --topic nothing").out == "no ACLs match\n"
    for who in ("--allow-principal alice", "--allow-principal bob", "--deny-principal User:*"):
        quafka(f"acls remove {who}")
    assert quafka("acls list --format json").json == {"acls": []}


def test_quotas(kafka: SecuredKafka) -> None:
    quafka = command(kafka, "SASL_SSL", login("SCRAM-SHA-512"))
    quafka("quotas set --user alice --client-id-default producer_byte_rate=1_000_000")
    quafka("quotas set --ip 127.0.0.1 connection_creation_rate=10")
    quafka("quotas set --user-default consumer_byte_rate=5 --dry-run")
    assert quafka("quotas list").rows == [
        ["alice", "<default>", "-", "producer_byte_rate", "1MB"],
        ["-", "-", "127.0.0.1", "connection_creation_rate", "10"],
    ]
    assert quafka("quotas list --user alice --format json").json == {
        "quotas": [
            {
                "entity": {"user": "alice", "client-id": None},
                "quotas": {"producer_byte_rate": 1e6},
            }
        ]
    }
    assert "Invalid configuration key" in quafka("quotas set --user a x=1", code=1).err
    quafka("quotas remove --user alice --client-id-default producer_byte_rate")
    quafka("quotas remove --ip 127.0.0.1")
    assert quafka("quotas list").out == "no quotas\n"
