"""From an empty cluster with SASL to users, rules, quotas and orgs, by the commands alone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from quafka.cli import main
from tests.integration.test_cli_documentation import paste
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.command import Command

pytestmark = pytest.mark.long

TOKEN = "0123456789abcdef-token"
SECRETS = ("admin-secret", "alice-secret", "boss-secret", TOKEN)


class Secured:
    """A cluster with a SASL listener, an audit log and guarded pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.audit = folder / "audit.log"
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.authority = Authority(folder / "ca")
        server = self.authority.issue("server", ("127.0.0.1",))
        self.cluster = Cluster(
            folder,
            broker_args=("--ops-token-file", str(token)),
            gateway_args=(
                "--super-users", "User:admin", "--audit-log", str(self.audit),
                "--ssl-certfile", str(server), "--ssl-ca-file", str(self.authority.file),
                "--ssl-client-auth", "required",
                "--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "--ops-token-file", str(token),
            ),
            listeners="SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        )  # fmt: skip

    def user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Command:
        path = self.folder / f"{name}-{mechanism}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\nsasl.username={name}\nsasl.password={password}\n"
        )
        path.chmod(0o600)
        host, port = self.cluster.address_of("SASL_PLAINTEXT")
        return Command(f"{host}:{port}", config=path)

    def certified(self, name: str) -> Command:
        """A client with a certificate instead of a password."""
        path = self.folder / f"{name}.properties"
        path.write_text(
            f"security.protocol=SSL\nssl.ca.location={self.authority.file}\n"
            f"ssl.keystore.location={self.authority.issue(name)}\n"
        )
        host, port = self.cluster.address_of("SSL")
        return Command(f"{host}:{port}", config=path)

    def first(self, name: str, password: str, *more: str) -> int:
        file = self.folder / "password"
        file.write_text(password)
        data = ("--broker-data", str(self.cluster.data), "--password-file", str(file))
        return main(["users", "add", name, *data, *more])

    def lines(self, **fields: Any) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in found if fields.items() <= line.items()]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.cluster:
        admin, err = made.user("admin", "admin-secret"), "closed the connection during the login"
        while "closed the connection during the login" in err:  # it does not know the users yet
            err = admin("topics list", code=1).err
        assert "refuses the login" in err
        assert made.first("admin", "admin-secret") == 0
        yield made
    shown = made.cluster.logs + made.audit.read_text()
    assert not [secret for secret in SECRETS if secret in shown]


def test_from_nothing_to_users_rules_and_quotas(secured: Secured) -> None:
    assert secured.first("admin", "again") == 1, "it exists"
    admin = secured.user("admin", "admin-secret", "SCRAM-SHA-512")
    admin("topics create orders other")
    admin("users add alice", stdin=b"alice-secret\n")
    assert [row[0] for row in admin("users list").rows] == ["admin"] * 2 + ["alice"] * 2
    alice = secured.user("alice", "alice-secret", "PLAIN")
    assert alice("topics list").out.startswith("no topics"), "denied by default"
    admin("acls add --allow-principal alice --producer --topic", "ord*")
    admin("acls add --allow-principal alice --operation Read --topic orders")
    assert [row[0] for row in alice("topics list").rows] == ["orders"]
    alice("produce -t orders", stdin=b"hello\n")
    assert alice("consume -t orders -e").out == "hello\n"
    assert "not allow" in alice("topics create more", code=1).err
    assert "not allow" in alice("users list", code=1).err
    assert "not allow" in alice("acls list", code=1).err
    assert "super users" in alice("orgs list", code=1).err
    admin("quotas set --user alice producer_byte_rate=1000000")
    tried = admin("quotas set --user alice producer_byte_rate=5 request_percentage=50 --dry-run")
    assert tried.out.startswith("would change user alice\n")
    assert ["producer_byte_rate", "1MB", "5"] in tried.rows
    assert ["request_percentage", "-", "50"] in tried.rows
    assert admin("quotas list").rows == [["alice", "-", "-", "producer_byte_rate", "1MB"]]
    admin("users set-password alice", stdin=b"next-secret\n")
    assert "refuses the login" in alice("topics list", code=1).err
    admin("acls remove --allow-principal alice")
    admin("quotas remove --user alice")
    admin("users remove alice")
    findings = {each["check"] for each in admin("doctor --format json").json["findings"]}
    assert "security" in findings


def test_a_copy_needs_the_rights_of_the_documentation(secured: Secured) -> None:
    admin = secured.user("admin", "admin-secret", "SCRAM-SHA-512")
    admin("topics create rights-source -c retention.ms=1h")
    admin("produce -t rights-source", stdin=b"one\ntwo\n")
    for name in ("reader", "writer"):
        admin(f"users add {name}", stdin=b"alice-secret\n")
    reader = secured.user("reader", "alice-secret")
    secured.user("writer", "alice-secret")
    host, port = secured.cluster.address_of("SASL_PLAINTEXT")
    copy = f"topics copy rights-source rights-copy --to {host}:{port} --to-command-config"
    copy = f"{copy} {secured.folder / 'writer-SCRAM-SHA-256.properties'}"
    assert "no such topic" in reader(copy, code=1).err or "allow" in reader(copy, code=1).err
    for operation in ("Read", "Describe", "DescribeConfigs"):
        admin(f"acls add --allow-principal reader --operation {operation} --topic rights-source")
    job = "quafka-copy.rights-copy"
    assert "allow" in reader(copy, code=1).err.lower()
    admin(
        f"acls add --allow-principal writer --producer --topic rights-copy --transactional-id {job}"
    )
    admin(f"acls add --allow-principal writer --operation Read --group {job}")
    admin("acls add --allow-principal writer --operation Read --topic rights-copy")
    assert reader(copy).out.startswith("copied 2 records (6 B)")
    assert admin("consume -t rights-copy -e").out == "one\ntwo\n"
    wrong = secured.folder / "wrong.properties"
    right = (secured.folder / "writer-SCRAM-SHA-256.properties").read_text()
    wrong.write_text(right.replace("alice-secret", "no-secret"))
    wrong.chmod(0o600)
    refused = reader(copy.replace("writer-SCRAM-SHA-256", "wrong"), code=1).err
    assert refused.count("\n") == 1
    assert "login" in refused
    for name in ("reader", "writer"):
        admin(f"acls remove --allow-principal {name}")
        admin(f"users remove {name}")


def test_an_org_from_its_creation_to_its_end(secured: Secured) -> None:
    admin = secured.user("admin", "admin-secret")
    admin("orgs create acme --limit max.topics=2")
    assert "has this name" in admin("orgs create acme", code=1).err
    (acme,) = admin("orgs show acme --format json").json["orgs"]
    assert (acme["state"], acme["limits"]) == ("active", {"max.topics": 2})
    assert secured.first("boss", "boss-secret", "--org", "acme") == 0
    admin("orgs limit acme max.groups=5 --remove max.topics")
    admin("orgs rename acme acme-eu")
    admin("orgs limit acme-eu producer.byte.rate=10MB")
    assert ["acme-eu", "active", "0", "max.groups=5,", "producer.byte.rate=10MB"] in [
        row[1:] for row in admin("orgs list").rows
    ]
    boss = secured.user("boss@acme-eu", "boss-secret")
    assert boss("topics list").out.startswith("no topics")
    admin("orgs suspend acme-eu")
    assert "refuses the login" in boss("topics list", code=1).err
    admin("orgs resume acme-eu")
    boss("topics list")
    admin("orgs delete acme-eu")
    assert "refuses the login" in boss("topics list", code=1).err
    assert "no org 'nobody'" in admin("orgs show nobody", code=1).err


def test_the_documentation_works_when_it_is_pasted(secured: Secured) -> None:
    admin = secured.user("admin", "admin-secret")
    assert "would remove 3" in paste(admin, "docs/cli.md", "ACLs")
    assert "producer_byte_rate" in paste(admin, "docs/cli.md", "Quotas")
    assert "max.topics" in paste(admin, "docs/cli.md", "Orgs")


def test_every_act_is_in_the_audit_log(secured: Secured) -> None:
    admin = secured.user("admin", "admin-secret")
    admin("topics create audited")
    admin("topics create audited", code=1)
    secured.user("admin", "wrong")("topics list", code=1)
    who = {"principal": "User:admin", "org_id": 1, "from": "/127.0.0.1"}
    done, failed = (
        line
        for line in secured.lines(event="act", act="CreateTopics", **who)
        if line["request"]["topics"][0]["name"] == "audited"
    )
    assert (done["outcome"], done["mechanism"]) == ("allowed", "SCRAM-SHA-256")
    assert failed["failed"] == [{"name": "audited", "error": "TOPIC_ALREADY_EXISTS"}]
    (refused, *_) = secured.lines(event="login", outcome="denied", principal="User:admin")
    assert refused["reason"]
    assert secured.lines(event="login", outcome="allowed", **who)


def test_a_certificate_is_a_name(secured: Secured) -> None:
    admin, carol = secured.user("admin", "admin-secret"), secured.certified("carol")
    assert "not allow" in carol("topics create certified", code=1).err
    admin("acls add --operation All --topic certified --allow-principal User:CN=carol")
    carol("topics create certified")
    carol("produce -t certified", stdin=b"hello\n")
    assert carol("consume -t certified -e").out == "hello\n"
    who = {"principal": "User:CN=carol", "mechanism": "SSL"}
    assert [line["outcome"] for line in secured.lines(event="act", **who)] == ["denied", "allowed"]
    assert secured.lines(event="login", outcome="allowed", **who)


@pytest.mark.parametrize("name", ["broker", "gateway"])
def test_the_pages_need_a_token(secured: Secured, name: str) -> None:
    process = getattr(secured.cluster, name)
    host, _, port = process.ready["operations"].rpartition(":")
    found: list[int] = []
    for path, headers in (
        ("/readyz", {}), ("/metrics", {}), ("/metrics", {"Authorization": f"Bearer {TOKEN}"}),
    ):  # fmt: skip
        client = http.client.HTTPConnection(host, int(port), timeout=5)
        client.request("GET", path, headers=headers)
        found.append(client.getresponse().status)
        client.close()
    assert found == [200, 401, 200]
