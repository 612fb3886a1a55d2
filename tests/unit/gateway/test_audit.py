"""The audit log: what a line says, what it leaves out, and what a slow or full disk does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.security.audit import AuditLog, open_audit_log
from quafka_gateway.security.audit_details import errors_in, request_fields
from quafka_gateway.security.line_limit import LineLimit
from quafka_gateway.security.principal import Principal
from quafka_gateway.security.session import ClientSession
from quafka_loop import clock, threads
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.acls import AclCreation, CreateAclsRequest
from quafka_proto.schema.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from quafka_proto.schema.scram import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Attributes, Span, TraceContext
from tests.support.tenants import tenant_over
from tests.unit.gateway.test_connection import HeldBroker


@pytest.fixture
async def session() -> ClientSession:
    tenant = tenant_over(HeldBroker(), ResponseMemory(1 << 20))  # type: ignore[arg-type]
    return ClientSession(tenant, Principal("User", "alice"), "SASL", mechanism="SCRAM-SHA-256")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def act(audit: AuditLog, session: ClientSession, name: str, code: int = 0) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=3)])
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=code)])
    audit.act(session, request, response, {code} - {0}, client_host="/192.0.2.1", request_id="1-2")


async def test_a_denied_read_is_recorded_once_a_minute(
    tmp_path: Path, session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "audit.log", 1_000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    audit = open_audit_log(str(path), authenticates=False)

    def read(topic: str) -> None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        request = CreateTopicsRequest(topics=[CreatableTopic(name=topic)])
        response = CreateTopicsResponse(topics=[CreatableTopicResult(name=topic, error_code=code)])
        audit.denied(session, request, response, {code}, client_host="/192.0.2.1")

    for _ in range(3):
        read("secret")
    read("other")
    now += 61
    read("secret")
    audit.close()
    found = lines(path)
    assert [each["failed"][0]["name"] for each in found] == ["secret", "other", "secret"]
    who = {"principal": "User:alice", "from": "/192.0.2.1", "event": "read", "outcome": "denied"}
    assert all(who.items() <= each.items() for each in found)


async def test_a_line_says_who_did_what_from_where_and_how_it_ended(
    tmp_path: Path, session: ClientSession
) -> None:
    path = tmp_path / "audit.log"
    audit = open_audit_log(str(path), authenticates=False)
    act(audit, session, "orders")
    act(audit, session, "orders", ErrorCode.TOPIC_ALREADY_EXISTS)
    act(audit, session, "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    audit.login(session, "/192.0.2.1")
    audit.login_refused("SASL", "PLAIN", "mallory\n", "/192.0.2.9", "wrong password")
    audit.close()
    done, failed, denied, login, refused = lines(path)
    who = {"principal": "User:alice", "mechanism": "SCRAM-SHA-256", "from": "/192.0.2.1"}
    assert who.items() <= done.items()
    assert (done["act"], done["outcome"], done["errors"]) == ("CreateTopics", "allowed", [])
    topics = [{"name": "orders", "num_partitions": 3}]
    assert done["request"]["topics"][0].items() >= topics[0].items()
    assert failed["failed"] == [{"name": "orders", "error": "TOPIC_ALREADY_EXISTS"}]
    assert (failed["outcome"], denied["outcome"]) == ("failed", "denied")
    assert (login["event"], login["outcome"]) == ("login", "allowed")
    assert (refused["outcome"], refused["reason"]) == ("denied", "wrong password")
    assert path.stat().st_mode & 0o777 == 0o600
    assert audit.lines == 5


async def test_no_name_ends_a_line_or_turns_its_direction(
    tmp_path: Path, session: ClientSession
) -> None:
    path = tmp_path / "audit.log"
    audit = open_audit_log(str(path), authenticates=False)
    names = ["\n", "\u2028", "\u2029", "\x85", "\x7f", "\u202e", "\U000e0001", '"', "\\", "ü"]
    for name in names:
        act(audit, session, name)
    audit.close()
    assert [each["request"]["topics"][0]["name"] for each in lines(path)] == names
    text = path.read_text()
    assert text.replace("\n", "").isprintable()
    assert "ü" in text


async def test_a_renamed_file_is_begun_anew(tmp_path: Path, session: ClientSession) -> None:
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    audit = open_audit_log(str(path), authenticates=True)
    act(audit, session, "a")
    while not path.read_text():
        clock.sleep(0.001)
    path.rename(old)
    act(audit, session, "b")
    audit.close()
    for each, name in ((old, "a"), (path, "b")):
        (line,) = lines(each)
        assert line["request"]["topics"][0]["name"] == name


class Stuck(logging.Handler):
    """A disk that does not answer until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threads.Event()
        self.taken: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.go.wait(10)
        self.taken.append(json.loads(record.getMessage()))


async def test_a_slow_disk_delays_nobody_and_losses_are_counted(session: ClientSession) -> None:
    disk = Stuck()
    audit = AuditLog(disk, queued=5)
    began = clock.thread_time()
    for n in range(100):
        act(audit, session, f"t{n}")
    assert clock.thread_time() - began < 1
    assert audit.dropped >= 94
    disk.go.set()
    audit.close()
    assert len(disk.taken) == audit.lines == 100 - audit.dropped
    assert sum(line.get("dropped_before", 0) for line in disk.taken) == audit.dropped


async def test_where_it_goes(tmp_path: Path) -> None:
    for where, authenticates, active in (
        ("off", True, False), ("auto", False, False), ("auto", True, True), ("stderr", False, True),
    ):  # fmt: skip
        audit = open_audit_log(where, authenticates=authenticates)
        assert (audit._writer is not None) == active
        audit.close()
    with pytest.raises(StartupError, match="cannot write the audit log"):
        open_audit_log(str(tmp_path / "missing" / "audit.log"), authenticates=True)


def test_secrets_are_left_out() -> None:
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"salty", salted_password=b"salted"
    )
    shown = request_fields(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert shown == {"upsertions": [{"name": "bob", "mechanism": 1, "iterations": 4096}]}
    config = IncrementalAlterableConfig(name="quafka.source", value="redis://u:p4ss@h:1/0")
    resource = IncrementalAlterConfigsResource(resource_name="t", configs=[config])
    shown = request_fields(IncrementalAlterConfigsRequest(resources=[resource]))
    assert "p4ss" not in json.dumps(shown)
    for name, value in (
        ("listener.name.x.sasl.jaas.config", "p4ss"), ("ssl.keystore.PASSWORD", "p4ss"),
        ("ssl.keystore.key", "p4ss"), ("quafka.source", "redis://u:a/p4ss@p4ss@h:1/0"),
        ("quafka.source", "redis://u:a://p4ss@h:1/0"),
    ):  # fmt: skip
        configs = [AlterableConfig(name=name, value=value)]
        altered = AlterConfigsResource(resource_name="0", configs=configs)
        shown = request_fields(AlterConfigsRequest(resources=[altered]))
        assert "p4ss" not in json.dumps(shown)
        assert name in json.dumps(shown)


def test_rules_are_in_words() -> None:
    rule = AclCreation(resource_type=2, resource_name="t", principal="User:a", operation=4,
                       host="*", permission_type=3)  # fmt: skip
    (shown,) = request_fields(CreateAclsRequest(creations=[rule]))["creations"]
    assert shown == {
        "resource_type": "TOPIC", "resource_name": "t", "principal": "User:a", "host": "*",
        "operation": "WRITE", "permission_type": "ALLOW",
    }  # fmt: skip
    rule.operation = 99
    assert request_fields(CreateAclsRequest(creations=[rule]))["creations"][0]["operation"] == 99


async def test_who_is_refused_often_pushes_out_nobody(
    tmp_path: Path, session: ClientSession
) -> None:
    path = tmp_path / "audit.log"
    audit = open_audit_log(str(path), authenticates=False)
    for _ in range(5_000):
        act(audit, session, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        audit.login_refused("SASL", "PLAIN", "mallory", "/192.0.2.9", "wrong password")
    act(audit, session, "made")
    audit.login_refused("SASL", "PLAIN", "bob", "/192.0.2.10", "wrong password")
    audit.close()
    found = lines(path)
    assert 1_000 <= len(found) < 1_100
    assert audit.limit.suppressed == 10_002 - len(found)
    assert audit.dropped == 0
    assert [line["outcome"] for line in found[-2:]] == ["allowed", "denied"]


def test_a_limit_of_lines() -> None:
    limit = LineLimit(per_second=2, burst=3, most_keys=2)
    assert [limit.take("a", 0) for _ in range(5)] == [0, 0, 0, None, None]
    assert limit.take("b", 0) == 0, "each has its own"
    assert [limit.take("a", 0.5), limit.take("a", 0.5)] == [2, None]
    assert [limit.take("a", 100) for _ in range(4)] == [1, 0, 0, None]
    limit.take("c", 100)
    limit.take("d", 100)
    assert limit.take("a", 100) == 0, "it was forgotten, for the memory is bounded"


async def test_a_sampled_act_is_an_event_of_its_span(session: ClientSession) -> None:
    events: list[tuple[str, object]] = []

    class Recorded:
        context = TraceContext(1, 2)

        def event(self, name: str, attributes: Attributes | None = None) -> None:
            events.append((name, attributes))

    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])
    AuditLog().act(session, request, None, {29}, client_host="/h", span=cast("Span", Recorded()))
    expected = {semconv.OPERATION: "CreateTopics", semconv.OUTCOME: "denied"}
    who = f"User:alice@{session.tenant.name}"
    assert events == [(semconv.AUDIT, {**expected, semconv.PRINCIPAL: who})]


def test_a_large_request_makes_a_short_line() -> None:
    topics = [CreatableTopic(name="x" * 249, num_partitions=n) for n in range(100_000)]
    began = clock.thread_time()
    shown = request_fields(CreateTopicsRequest(topics=topics))
    assert clock.thread_time() - began < 0.05
    assert len(json.dumps(shown)) < 30_000
    assert shown["topics"][-1] == "and 99950 more"
    results = [CreatableTopicResult(name=f"t{n}", error_code=3) for n in range(100_000)]
    assert len(errors_in(CreateTopicsResponse(topics=results))) == 50


def test_what_changes_more_than_the_client_itself_is_audited() -> None:
    """The APIs whose names say so; the clients' own everyday writes are not acts."""
    for api in APIS.values():
        verb = api.name.startswith(("Create", "Delete", "Alter", "Update", "Incremental", "Elect"))
        expected = verb or api.name in ("OffsetDelete", "UnregisterBroker", "WriteTxnMarkers")
        assert api.audited == expected, api.name
