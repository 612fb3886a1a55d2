"""People sign in as Kafka users, and see what those may."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.schema.acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.driver import Driver, driven
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, upsertion
from tests.unit.gateway.sasl.tokens import Issuer

ISSUER = Issuer()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster in which alice may describe the topic "hers" and no other."""
    folder = tmp_path_factory.mktemp("secured")
    keys = folder / "keys.json"
    keys.write_bytes(ISSUER.jwks)
    args = (
        "--super-users", "User:ANONYMOUS;User:root",
        "--sasl-enabled-mechanisms", "SCRAM-SHA-256,OAUTHBEARER",
        "--sasl-oauthbearer-jwks-endpoint-url", keys.as_uri(),
        "--sasl-oauthbearer-expected-audience", "kafka",
    )  # fmt: skip
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with Cluster(folder, gateway_args=args, listeners=listeners) as cluster:
        admin = cluster.address_of("PLAINTEXT")
        alter_users(admin, upsertion("alice", "secret"), upsertion("root", "secret"))
        with RawClient(admin) as client:
            create_topic(client, "hers")
            create_topic(client, "others")
            rule = AclCreation(
                resource_type=ResourceKind.TOPIC, resource_name="hers",
                resource_pattern_type=Pattern.LITERAL, principal="User:alice", host="*",
                operation=Operation.DESCRIBE, permission_type=Permission.ALLOW,
            )  # fmt: skip
            answer = client.call(CreateAclsRequest(creations=[rule]), CreateAclsResponse, 3)
            assert answer.results[0].error_code == 0
        yield cluster


@contextmanager
def console(cluster: Cluster, folder: Path, *properties: str) -> Generator[str]:
    """The URL of a console whose people sign in; it is for reading only."""
    file = folder / "client.properties"
    file.write_text("\n".join(("security.protocol=SASL_PLAINTEXT", *properties)))
    host, port = cluster.address_of("SASL_PLAINTEXT")
    args = (
        "--console-brokers", f"{host}:{port}", "--console-command-config", str(file),
        "--console-read-only", "true", "--console-operations", "",
    )  # fmt: skip
    with console_of(cluster, folder, *args) as (url, _):
        yield f"{url}/"
    assert "secret" not in (folder / "console.log").read_text()


def assert_sign_ins_are_logged(folder: Path) -> None:
    log = (folder / "console.log").read_text()
    assert "'alice': sign-in refused" in log
    assert "'alice': signed in" in log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the console whose people sign in with passwords."""
    return tmp_path_factory.mktemp("passwords")


@pytest.fixture(scope="module")
def secured(cluster: Cluster, folder: Path) -> Iterator[str]:
    """The URL of that console."""
    with console(cluster, folder) as url:
        yield url


@pytest.fixture
def driver(secured: str, tmp_path: Path) -> Iterator[Driver]:
    """A browser that has not signed in."""
    with driven(secured, tmp_path / "profile") as found:
        yield found
        assert found.errors() == []


def test_a_person_sees_what_the_user_may_and_nothing_before(driver: Driver, folder: Path) -> None:
    driver.open("/topics", "As a Kafka user")
    driver.type("User", "alice")
    driver.type("Password", "wrong", enter=True)
    driver.see("login")
    driver.type("User", "alice")
    driver.type("Password", "secret", enter=True)
    driver.see("hers")
    text = driver.text()
    assert "others" not in text
    assert "alice" in text
    assert "read only" in text
    assert "Create a topic" not in text
    driver.open("/messages?topic=hers", "No records here")
    driver.see("Download")
    assert "Produce" not in driver.text()
    driver.click("sign out")
    driver.see("As a Kafka user")
    driver.open("/topics", "As a Kafka user")
    assert_sign_ins_are_logged(folder)


def sign_in(driver: Driver, user: str) -> None:
    driver.open("/", "As a Kafka user")
    driver.type("User", user)
    driver.type("Password", "secret", enter=True)
    driver.see("Nothing needs attention")


def test_what_is_refused_of_a_topic_is_left_out(driver: Driver) -> None:
    sign_in(driver, "alice")
    driver.open("/topic?name=hers", "1–1 of 1 partitions")
    driver.see("The server does not report configs to you")
    driver.see("No group reads this topic")
    driver.see("of 'hers': the authorizer does not allow it")
    driver.open("/topics", "hers")


def test_what_concerns_all_orgs_is_for_operators(driver: Driver) -> None:
    sign_in(driver, "alice")
    assert "Processes" not in driver.text()
    assert "The last hour" not in driver.text()
    for page in ("/traces", "/trace?id=00", "/slow", "/snapshots"):
        driver.open(page, "only operators see this")
    driver.click("sign out")
    sign_in(driver, "root")
    driver.see("The last hour")
    driver.open("/traces", "No traces yet")


def test_nothing_is_downloaded_without_a_sign_in(secured: str) -> None:
    url = f"{secured}messages/download?topic=hers&format=csv"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=60)
    with refused.value as answer:
        assert (answer.code, answer.read()) == (401, b"sign in first\n")


@pytest.mark.needs("chromium", "chromedriver")
def test_a_person_signs_in_with_a_token(cluster: Cluster, tmp_path: Path) -> None:
    bearer = "sasl.mechanism=OAUTHBEARER"
    with console(cluster, tmp_path, bearer) as url, driven(url, tmp_path / "profile") as driver:
        driver.open("/topics", "As a Kafka user")
        assert "Password" not in driver.text()
        driver.type("Token", "secret", enter=True)
        driver.see("this is not a JWT")
        driver.type("Token", Issuer().token(), enter=True)
        driver.see("check the token")
        driver.type("Token", ISSUER.token(), enter=True)
        driver.see("hers")
        text = driver.text()
        assert "others" not in text
        assert "alice" in text
        driver.click("sign out")
        driver.see("As a Kafka user")
        assert driver.errors() == []
    assert_sign_ins_are_logged(tmp_path)
