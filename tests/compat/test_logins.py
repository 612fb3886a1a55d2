"""Kafka's own clients and kafkajs log in by SASL; a Java client authenticates again (KIP-368)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Outcome, Run, run_tools, tool
from tests.support.prometheus import Scrape
from tests.support.sasl_users import alter_users, upsertion

PASSWORD = "secret"
MECHANISMS = {
    "PLAIN": "plain.Plain",
    "SCRAM-SHA-256": "scram.Scram",
    "SCRAM-SHA-512": "scram.Scram",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    args = (
        *("--sasl-enabled-mechanisms", ",".join(MECHANISMS)),
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        *("--super-users", "User:ANONYMOUS;User:alice", "--connections-max-reauth-ms", "1500"),
    )
    listeners = "INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0"
    folder = tmp_path_factory.mktemp("logins")
    with Cluster(folder, gateway_args=args, listeners=listeners) as cluster:
        alter_users(
            cluster.address_of("INSIDE"),
            *(upsertion("alice", PASSWORD, f"SCRAM-SHA-{bits}") for bits in (256, 512)),
        )
        yield cluster


@pytest.fixture(scope="module")
def bootstrap(cluster: Cluster) -> str:
    host, port = cluster.address_of("CLIENTS")
    return f"{host}:{port}"


def _properties(folder: Path, mechanism: str, password: str = PASSWORD) -> str:
    module = f"org.apache.kafka.common.security.{MECHANISMS[mechanism]}LoginModule"
    path = folder / f"{mechanism}-{password}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
    )
    return str(path)


@pytest.fixture(scope="module")
def outcomes(cluster: Cluster, bootstrap: str) -> dict[str, Outcome]:
    """What each tool said. One consumer waits for longer than a session lasts."""
    at = ("--bootstrap-server", bootstrap)
    runs: dict[str, Run] = {}
    for mechanism in MECHANISMS:
        secrets = _properties(cluster.folder, mechanism)
        topic = ("--topic", mechanism)
        runs[f"{mechanism} produce"] = tool(
            "ConsoleProducer", *at, *topic, "--command-config", secrets, text="hello\n"
        )
        runs[f"{mechanism} consume"] = tool(
            "consumer.ConsoleConsumer", *at, *topic, "--command-config", secrets,
            *("--from-beginning", "--timeout-ms", "3500" if mechanism == "PLAIN" else "9000"),
            *(() if mechanism == "PLAIN" else ("--max-messages", "1")),
        )  # fmt: skip
    wrong = _properties(cluster.folder, "SCRAM-SHA-256", "wrong")
    runs["wrong"] = tool("TopicCommand", *at, "--list", "--command-config", wrong)
    return run_tools(runs)


@JAVA_TOOLS
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_clients(outcomes: dict[str, Outcome], mechanism: str) -> None:
    assert "hello" in outcomes[f"{mechanism} consume"].lines, outcomes


@JAVA_TOOLS
def test_a_java_client_with_a_wrong_password(outcomes: dict[str, Outcome]) -> None:
    assert "the credentials are not valid" in outcomes["wrong"].output, outcomes["wrong"]


@JAVA_TOOLS
def test_java_clients_authenticate_again(cluster: Cluster, outcomes: dict[str, Outcome]) -> None:
    """One waits for more than two sessions of 1.5 s, on some connections."""
    scrape = Scrape(cluster.gateway.ready["operations"])
    assert outcomes
    logins = scrape("quafka_gateway_authentications_total", mechanism="PLAIN", outcome="success")
    accepted = scrape("quafka_gateway_connections_accepted_total")
    everybody = scrape.sum("quafka_gateway_authentications_total")
    assert logins > 4
    assert everybody > accepted


def test_kafkajs_logs_in(bootstrap: str, kafkajs: Path) -> None:
    script = kafkajs / "login.js"
    answer = subprocess.run(
        ["node", script, bootstrap, PASSWORD],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert found.pop("wrong") == "KafkaJSSASLAuthenticationError"
    assert found == {"plain": 1, "scram-sha-256": 1, "scram-sha-512": 1}
