"""Rules at a real gateway: their APIs, and what changes when they change."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch_request, produce, produce_request, values
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, upsertion

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """At PLAINTEXT everybody is a super user; alice and bob log in at the other listener."""
    args = ("--super-users", "User:ANONYMOUS", "--sasl-enabled-mechanisms", "PLAIN")
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, gateway_args=args, listeners=listeners) as running:
        admin = running.address_of("PLAINTEXT")
        alter_users(admin, *(upsertion(name, name) for name in ("alice", "bob")))
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.address_of("PLAINTEXT")) as client:
        yield client


def _client(cluster: Cluster, name: str = "alice") -> RawClient:
    """Logged in; a gateway that has just begun closes connections until it has the users."""
    give_up = time.monotonic() + _SECONDS
    while True:
        client = RawClient(cluster.address_of("SASL_PLAINTEXT"))
        try:
            assert log_in_plain(client, name, name).error_code == 0
        except ConnectionError:
            client.socket.close()
            assert time.monotonic() < give_up
            time.sleep(0.02)
        else:
            return client


def _rule(operation: Operation, name: str, **fields: object) -> AclCreation:
    rule = AclCreation(
        resource_type=ResourceKind.TOPIC,
        resource_name=name,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    for field, value in fields.items():
        setattr(rule, field, value)
    return rule


def _create(admin: RawClient, *rules: AclCreation, version: int = 3) -> list[int]:
    answer = admin.call(CreateAclsRequest(creations=list(rules)), CreateAclsResponse, version)
    return [each.error_code for each in answer.results]


def _delete(admin: RawClient, name: str, version: int = 3) -> int:
    """Remove the rules of one literal name; return how many."""
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceKind.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=Pattern.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = admin.call(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse, version)
    (result,) = answer.filter_results
    assert result.error_code == 0
    return len(result.matching_acls)


def _described(admin: RawClient, version: int, **fields: object) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=ResourceKind.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=Pattern.ANY if version else Pattern.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    for field, value in fields.items():
        setattr(request, field, value)
    return admin.call(request, DescribeAclsResponse, version)


def _fetched(client: RawClient, topic: str, wait_ms: int = 0) -> tuple[int, list[bytes]]:
    client.send(fetch_request(topic, 0, max_wait_ms=wait_ms), 12)
    return _received(client)


def _received(client: RawClient) -> tuple[int, list[bytes]]:
    _, answer = client.receive(FetchResponse, 12)
    (partition,) = answer.responses[0].partitions
    return partition.error_code, values(partition)


@pytest.mark.parametrize("version", range(4))
def test_rules_come_and_go_in_every_version(admin: RawClient, version: int) -> None:
    name = f"versions-{version}"
    rules = [_rule(Operation.READ, name), _rule(Operation.WRITE, name), _rule(Operation.READ, name)]
    assert _create(admin, *rules, version=version) == [0, 0, 0]
    if version:
        prefix = _rule(Operation.READ, name, resource_pattern_type=Pattern.PREFIXED)
        assert _create(admin, prefix, version=version) == [0]
    (found,) = _described(
        admin, version, resource_name_filter=name, pattern_type_filter=Pattern.LITERAL
    ).resources
    assert (found.resource_type, found.resource_name) == (ResourceKind.TOPIC, name)
    assert sorted(each.operation for each in found.acls) == [Operation.READ, Operation.WRITE]
    if version:
        matching = _described(
            admin, version, resource_name_filter=name + "x", pattern_type_filter=Pattern.MATCH
        )
        assert [each.pattern_type for each in matching.resources] == [Pattern.PREFIXED]
    assert _delete(admin, name, version) == 2
    assert _delete(admin, name, version) == 0


def test_a_wrong_rule_is_refused_beside_good_ones(admin: RawClient) -> None:
    good = _rule(Operation.READ, "good")
    wrong = [
        _rule(Operation.READ, ""),
        _rule(Operation.READ, "x" * 1_025),
        _rule(Operation.READ, "t", resource_type=ResourceKind.CLUSTER),
        _rule(Operation.READ, "t", resource_type=ResourceKind.ANY),
        _rule(Operation.READ, "t", resource_pattern_type=Pattern.MATCH),
        _rule(Operation.ANY, "t"),
        _rule(Operation.READ, "t", permission_type=Permission.ANY),
        _rule(Operation.READ, "t", principal="alice"),
        _rule(Operation.READ, "t", host=""),
    ]
    assert _create(admin, good, *wrong, good) == [0, *[ErrorCode.INVALID_REQUEST] * len(wrong), 0]
    assert _described(admin, 3, operation=99).error_code == ErrorCode.INVALID_REQUEST


def test_who_may_not_change_rules_does_not_see_them(cluster: Cluster) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with _client(cluster, "bob") as bob:
        assert _create(bob, _rule(Operation.ALL, "*", principal="User:bob")) == [refused]
        assert _described(bob, 3).error_code == refused
        assert _described(bob, 3).resources == []


def test_a_parked_fetch_delivers_nothing_after_its_right_is_revoked(
    cluster: Cluster, admin: RawClient
) -> None:
    create_topic(admin, "parked")
    assert _create(admin, _rule(Operation.READ, "parked")) == [0]
    with _client(cluster) as alice:
        assert _fetched(alice, "parked") == (0, [])
        alice.send(fetch_request("parked", 0, max_wait_ms=10_000), 12)
        time.sleep(0.1)  # parked at the broker
        assert _delete(admin, "parked") == 1
        produce(admin, "parked", b"secret")
        assert _received(alice) == (DENIED, [])


@pytest.mark.long
def test_a_repeated_poll_ends_with_its_right(cluster: Cluster, admin: RawClient) -> None:
    """Consumers at the tail repeat a poll that no handler serves; after a change one does."""
    create_topic(admin, "repeated")
    assert _create(admin, _rule(Operation.READ, "repeated")) == [0]
    with _client(cluster) as alice:
        for _ in range(4):
            assert _fetched(alice, "repeated", wait_ms=150) == (0, [])
        assert _delete(admin, "repeated") == 1
        began = time.monotonic()
        assert _fetched(alice, "repeated", wait_ms=20_000) == (DENIED, [])
        assert time.monotonic() - began < 15
        assert _create(admin, _rule(Operation.READ, "repeated")) == [0]
        for _ in range(3):
            assert _fetched(alice, "repeated", wait_ms=150) == (0, [])
        alice.send(fetch_request("repeated", 0, max_wait_ms=10_000), 12)
        time.sleep(0.1)
        assert _delete(admin, "repeated") == 1
        produce(admin, "repeated", b"secret")
        assert _received(alice) == (DENIED, [])


def test_deny_wins_and_a_change_counts_at_once(cluster: Cluster, admin: RawClient) -> None:
    create_topic(admin, "orders-1")
    produce(admin, "orders-1", b"v")
    prefix = _rule(Operation.READ, "orders-", resource_pattern_type=Pattern.PREFIXED)
    deny = _rule(Operation.READ, "orders-1", permission_type=Permission.DENY, principal="User:*")
    with _client(cluster) as alice:
        for rules, expected in (([prefix], (0, [b"v"])), ([deny], (DENIED, []))):
            assert set(_create(admin, *rules)) == {0}
            assert _fetched(alice, "orders-1") == expected
        assert _delete(admin, "orders-1") == 1
        assert _fetched(alice, "orders-1") == (0, [b"v"])


def test_producers_by_id_go_on_after_a_restart_of_the_gateway(
    cluster: Cluster, admin: RawClient
) -> None:
    """The new gateway knows no names, and must look them up in the order of the requests."""
    ids: dict[str, bytes] = {}
    for topic in ("mine", "others"):
        create_topic(admin, topic)
        named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (found,) = admin.call(named, MetadataResponse, 12).topics
        ids[topic] = found.topic_id
    assert _create(admin, _rule(Operation.WRITE, "mine")) == [0]
    cluster.gateway.stop()
    cluster.start_gateway()
    with _client(cluster) as alice:
        sent = []
        for number in range(5):
            for topic in ("mine", "others"):
                request = produce_request(topic, b"%d" % number)
                request.topic_data[0].topic_id = ids[topic]
                sent.append((request, 13))
        alice.send_together(*sent)
        offsets: dict[bytes, list[int]] = {}
        for _ in sent:
            _, answer = alice.receive(ProduceResponse, 13)
            (topic_answer,) = answer.responses
            (partition,) = topic_answer.partition_responses
            at = partition.error_code or partition.base_offset
            offsets.setdefault(topic_answer.topic_id, []).append(at)
    assert offsets == {ids["mine"]: [0, 1, 2, 3, 4], ids["others"]: [DENIED] * 5}
