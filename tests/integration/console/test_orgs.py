"""A user of one org sees nothing of another org, on any page; operators see the traces of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.driver import Driver, driven
from tests.support.kafka_calls import commit, create_topic, produce
from tests.support.ports import lasting_port
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, upsertion

TOKEN = "a-token-for-the-exports-of-traces"
PAGES = (
    "/", "/topics", "/topics?search=hidden", "/groups", "/groups?order=lag", "/transactions",
    "/traces", "/slow", "/shards", "/snapshots", "/users", "/acls", "/quotas", "/orgs", "/audit",
    "/topic?name=hidden-orders", "/topic?name=orders", "/messages?topic=hidden-orders",
    "/messages?topic=orders", "/group?name=hidden-readers",
    "/record?topic=orders&partition=0&offset=0",
)  # fmt: skip


def sign_in(driver: Driver, path: str, user: str, sees: str) -> None:
    driver.open(path, "As a Kafka user")
    driver.type("User", user)
    driver.type("Password", "password", enter=True)
    driver.see(sees)


@pytest.mark.needs("chromium", "chromedriver")
def test_a_user_of_an_org_sees_nothing_of_another(tmp_path: Path) -> None:
    port = lasting_port()
    token, properties = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(TOKEN)
    token.chmod(0o600)
    properties.write_text("security.protocol=SASL_PLAINTEXT\n")
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{TOKEN}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    # Two listeners of the operators' org and two of bob's, with and without a login.
    logs_in = "LOGIN:SASL_PLAINTEXT,OPERATORS:SASL_PLAINTEXT"
    args = (
        "--listener-security-protocol-map", f"OWN:PLAINTEXT,OTHER:PLAINTEXT,{logs_in}",
        "--listener-org", "OTHER:101,LOGIN:101",
        "--super-users", "User:ANONYMOUS;User:root;User:ANONYMOUS@101;User:bob@101",
        "--sasl-enabled-mechanisms", "SCRAM-SHA-256",
    )  # fmt: skip
    names = "OWN", "OTHER", "LOGIN", "OPERATORS"
    listeners = ",".join(f"{name}://127.0.0.1:0" for name in names)
    with Cluster(tmp_path, gateway_args=args, env=env, listeners=listeners) as cluster:
        alter_users(cluster.address_of("OTHER"), upsertion("bob", "password"))
        alter_users(cluster.address_of("OWN"), upsertion("root", "password"))

        def console(name: str) -> tuple[str, ...]:
            host, number = cluster.address_of(name)
            return (
                "--console-brokers", f"{host}:{number}",
                "--console-command-config", str(properties),
                "--console-traces-token-file", str(token),
            )  # fmt: skip

        with (
            console_of(cluster, tmp_path, *console("LOGIN"), port=port) as (url, _),
            driven(url, tmp_path / "bob") as driver,
        ):
            with RawClient(cluster.address_of("OTHER")) as other:
                create_topic(other, "orders")
                produce(other, "orders", b"of bob's org")
            with RawClient(cluster.address_of("OWN")) as own:
                for topic in ("orders", "hidden-orders"):
                    create_topic(own, topic)
                    produce(own, topic, b"a secret of the operators")
                    commit(own, "hidden-readers", topic, 1)
            sign_in(driver, "/messages?topic=orders", "bob", "of bob's org")
            for page in PAGES:
                driver.open(page, "Audit")
                text = driver.text()
                assert "secret" not in text, page
                assert "hidden-orders" not in text or "hidden-orders" in page, page
                assert "hidden-readers" not in text or "hidden-readers" in page, page
            for page in ("/traces", "/record?topic=orders&partition=0&offset=0", "/slow"):
                driver.open(page, "only operators see this")
        with (
            console_of(cluster, tmp_path, *console("OPERATORS"), port=port) as (url, _),
            driven(url, tmp_path / "root") as driver,
        ):
            with RawClient(cluster.address_of("OTHER")) as other:
                produce(other, "orders", b"again")
            sign_in(driver, "/traces?org=101&api=Produce", "root", "orders")
