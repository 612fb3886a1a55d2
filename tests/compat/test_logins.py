"""Kafka's own tools and kcat log in by SASL; a Java client authenticates again (KIP-368).

Clients of other languages are in test_mechanisms.py, Python's in tests/integration/test_sasl.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Outcome, Run, run_tools, tool
from tests.support.prometheus import Scrape
from tests.support.sasl_users import alter_users, upsertion

pytestmark = pytest.mark.long

CONFIGS = "ConfigCommand"
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
    for mechanism in reversed(MECHANISMS):  # the one that counts its time is not the first
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


@JAVA_TOOLS
def test_kafkas_tools_administer_users_and_rules(bootstrap: str, cluster: Cluster) -> None:
    at = ("--bootstrap-server", bootstrap, "--command-config")
    secrets = _properties(cluster.folder, "SCRAM-SHA-512")
    bob = (*at, secrets, "--entity-type", "users", "--entity-name", "bob")
    rule = ("--allow-principal", "User:bob", "--producer", "--topic", "bobs", "--force")
    found = run_tools(
        {
            "user": tool(
                CONFIGS, *bob, "--alter", "--add-config",
                "SCRAM-SHA-256=[iterations=8192,password=b0b]",
            ),
            "described": tool(CONFIGS, *bob, "--describe"),
            "rule": tool("AclCommand", *at, secrets, "--add", *rule),
            "listed": tool("AclCommand", *at, secrets, "--list", "--topic", "bobs"),
            "removed": tool("AclCommand", *at, secrets, "--remove", *rule),
            "empty": tool("AclCommand", *at, secrets, "--list", "--topic", "bobs"),
            "gone": tool(CONFIGS, *bob, "--alter", "--delete-config", "SCRAM-SHA-256"),
            "forgotten": tool(CONFIGS, *bob, "--describe"),
        }
    )  # fmt: skip
    assert {name: each.exit for name, each in found.items()} == dict.fromkeys(found, 0), found
    assert "SCRAM-SHA-256=iterations=8192" in found["described"].output
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        listed = f"principal=User:bob, host=*, operation={operation}, permissionType=ALLOW"
        assert listed in found["listed"].output
    assert "bob" not in found["empty"].output
    assert "SCRAM" not in found["forgotten"].output


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_logs_in(bootstrap: str, kcat: str, mechanism: str) -> None:
    for password in (PASSWORD, "wrong"):
        done = subprocess.run(
            [
                *(kcat, "-L", "-m", "3", "-b", bootstrap, "-X", "security.protocol=sasl_plaintext"),
                *("-X", f"sasl.mechanisms={mechanism}", "-X", "sasl.username=alice"),
                *("-X", f"sasl.password={password}"),
            ],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == (password == PASSWORD), done.stderr
