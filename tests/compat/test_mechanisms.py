"""Clients of other languages log in by every mechanism, with right and wrong credentials.

Python's are in tests/integration/test_sasl.py.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.go import go_logins
from tests.support.java import JAVA_TOOLS, java_command, kafka_tools
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = ("PLAIN", *SCRAMS)
USER, ODD_USER, PASSWORD = "alice", "al,ice=", "correct horse"
"""SCRAM escapes commas and equals signs in names."""


class Login(NamedTuple):
    """What a client tries. `good`: whether it must succeed."""

    mechanism: str
    user: str = ""
    password: str = ""
    token: str = ""
    good: bool = True


class Server(NamedTuple):
    """A gateway with the user, and logins to try there."""

    bootstrap: str
    logins: Sequence[Login]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The logins for a program."""
        return [{"bootstrap": self.bootstrap, **each._asdict()} for each in self.logins]

    def check(self, outcomes: Sequence[str], failure: str, of_tokens: str = "") -> None:
        """Compare what became of the logins; `failure` is what the client calls a refusal.

        `of_tokens`: another name for a refused token, which the server answers twice (RFC 7628).
        """
        found = dict(zip(self.logins, outcomes, strict=True))
        failures = {True: of_tokens or failure, False: failure}
        assert found == {
            login: "ok" if login.good else failures[bool(login.token)] for login in self.logins
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("logins")
    key = ECKey.import_key(generate_private_key(SECP256R1()))
    keys = folder / "keys.json"
    keys.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    args = {
        "--listener-security-protocol-map": "ADMIN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "--super-users": "User:ANONYMOUS;User:token",
        "--sasl-enabled-mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "--sasl-oauthbearer-jwks-endpoint-url": keys.as_uri(),
        "--sasl-oauthbearer-expected-audience": "quafka",
    }
    flags = [each for pair in args.items() for each in pair]
    listeners = "ADMIN://127.0.0.1:0,CLIENTS://127.0.0.1:0"
    with Cluster(folder, gateway_args=tuple(flags), listeners=listeners) as cluster:
        with RawClient(cluster.address_of("ADMIN")) as client:
            create_topic(client, "t")
        quafka = Command(":".join(map(str, cluster.address_of("ADMIN"))))
        for user in (USER, ODD_USER):
            quafka("users add", user, stdin=PASSWORD.encode())
        rule = ("--allow-principal", "User:*", "--operation", "Describe", "--topic", "t")
        quafka("acls add", *rule)
        yield Server(":".join(map(str, cluster.address_of("CLIENTS"))), list(logins(key)))


def logins(key: ECKey) -> Iterator[Login]:
    for mechanism in PASSWORDS:
        yield Login(mechanism, USER, PASSWORD)
        yield Login(mechanism, USER, "wrong", good=False)
        yield Login(mechanism, "nobody", PASSWORD, good=False)
    for mechanism in SCRAMS:
        yield Login(mechanism, ODD_USER, PASSWORD)
    yield Login("OAUTHBEARER", token=token(key))
    for wrong in ({"exp": int(time.time()) - 3_600}, {"aud": "others"}):
        yield Login("OAUTHBEARER", token=token(key, wrong), good=False)
    other = ECKey.import_key(generate_private_key(SECP256R1()))
    yield Login("OAUTHBEARER", token=token(other), good=False)


def token(key: ECKey, wrong: Mapping[str, Any] | None = None) -> str:
    now = int(time.time())
    claims = {"sub": "token", "aud": "quafka", "iat": now - 5, "exp": now + 3_600, **(wrong or {})}
    return jwt.encode({"alg": "ES256", "kid": key.thumbprint()}, claims, key)


def outcomes_of(command: Sequence[Any], given: str) -> list[str]:
    """What a program prints for its job: a line for each login."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


@JAVA_TOOLS
def test_java(server: Server, tmp_path: Path) -> None:
    texts: list[str] = []
    files: list[Path] = []
    for number, login in enumerate(server.logins):
        files.append(tmp_path / f"token-{number}")
        files[-1].write_text(login.token)
        texts.append(java_properties(server.bootstrap, login, files[-1]))
    command = java_command(HERE / "java" / "Logins.java", kafka_tools())
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed"
    command.insert(1, f"-D{allowed}.files={','.join(map(str, files))}")
    command.insert(1, f"-D{allowed}.urls={','.join(file.as_uri() for file in files)}")
    server.check(outcomes_of(command, ";;".join(texts)), "SaslAuthenticationException")


def java_properties(bootstrap: str, login: Login, token_file: Path) -> str:
    name = {"PLAIN": "plain.Plain", "OAUTHBEARER": "oauthbearer.OAuthBearer"}.get(
        login.mechanism, "scram.Scram"
    )
    module = f"org.apache.kafka.common.security.{name}LoginModule"
    options = "" if login.token else f' username="{login.user}" password="{login.password}"'
    lines = [
        f"bootstrap.servers={bootstrap}",
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={login.mechanism}",
        f"sasl.jaas.config={module} required{options};",
        "retries=0",
    ]
    if login.token:
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        lines += [
            f"sasl.login.callback.handler.class={handler}",
            f"sasl.oauthbearer.token.endpoint.url={token_file.as_uri()}",
        ]
    return "\n".join(lines)


@pytest.mark.needs("go", fetch=go_logins)
def test_franz_go(server: Server) -> None:
    outcomes = outcomes_of([go_logins()], json.dumps(server.jobs))
    server.check(outcomes, "SASL_AUTHENTICATION_FAILED", "unexpected data in oauth response")


def test_kafkajs(server: Server, kafkajs: Path) -> None:
    outcomes = outcomes_of(["node", kafkajs / "logins.js"], json.dumps(server.jobs))
    closed = "KafkaJSConnectionClosedError"
    server.check(outcomes, "KafkaJSSASLAuthenticationError", closed)
