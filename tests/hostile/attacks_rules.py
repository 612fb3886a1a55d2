"""Rules: what denied requests cost, and thousands of rules that are made to be slow."""

from __future__ import annotations

from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from quafka_proto.schema.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, upsertion

_GATEWAY = ("--super-users", "User:ANONYMOUS", "--sasl-enabled-mechanisms", "PLAIN")
_LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
_TOPICS = 20_000
_LONGEST = 1_024
_PER_REQUEST = 2_000


def _logged_in(arena: Arena) -> RawClient:
    alter_users(arena.address, upsertion("mallory", "mallory"))
    client = RawClient(arena.cluster.address_of("SASL_PLAINTEXT"), 60.0)
    assert log_in_plain(client, "mallory", "mallory").error_code == 0
    return client


def _rules(arena: Arena, names: list[str], permission: Permission, kind: ResourceKind) -> set[int]:
    """Make prefixed rules; return the error codes."""
    codes: set[int] = set()
    with arena.connect() as client:
        for at in range(0, len(names), _PER_REQUEST):
            creations = [
                AclCreation(
                    resource_type=kind,
                    resource_name=name,
                    resource_pattern_type=Pattern.PREFIXED,
                    principal="User:mallory",
                    host="*",
                    operation=Operation.ALL,
                    permission_type=permission,
                )
                for name in names[at : at + _PER_REQUEST]
            ]
            made = client.call(CreateAclsRequest(creations=creations), CreateAclsResponse, 2)
            codes.update(each.error_code for each in made.results)
    return codes


def _no_rules(arena: Arena) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=ResourceKind.ANY,
        resource_name_filter=None,
        pattern_type_filter=Pattern.ANY,
        principal_filter="User:mallory",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    with arena.connect() as client:
        client.call(DeleteAclsRequest(filters=[everything]), DeleteAclsResponse, 2)


@attack(
    "a client without a right names 20,000 topics in each request, again and again",
    gateway=_GATEWAY,
    listeners=_LISTENERS,
)
def denied_requests(arena: Arena) -> None:
    names = [f"{arena.name()}-{n}" for n in range(_TOPICS)]
    described = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    listed = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=[part]) for name in names]
    )
    refused = {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    with _logged_in(arena) as client:
        for _ in range(10):
            metadata = client.call(described, MetadataResponse, 12)
            assert {topic.error_code for topic in metadata.topics} == refused
            offsets = client.call(listed, ListOffsetsResponse, 7)
            assert {topic.partitions[0].error_code for topic in offsets.topics} == refused


@attack(
    "an administrator makes rules until no more are admitted, each a prefix of the next, and asks "
    "for what they cost most",
    gateway=_GATEWAY,
    listeners=_LISTENERS,
)
def hostile_patterns(arena: Arena) -> None:
    nested = ["a" * n for n in range(1, _LONGEST + 1)]
    parting = ["b" * n + end for n in range(_LONGEST) for end in "cdefghijklm"]
    try:
        with _logged_in(arena) as client:
            codes = _rules(arena, nested + parting, Permission.ALLOW, ResourceKind.GROUP)
            assert 0 in codes
            assert codes != {0}, "their number is bounded"
            groups = ["a" * 20_000 + str(n) for n in range(200)] + ["b" * 20_000] * 200
            for _ in range(3):
                request = DescribeGroupsRequest(groups=groups)
                answer = client.call(request, DescribeGroupsResponse, 5)
                denied = {int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
                assert {g.error_code for g in answer.groups if "b" in g.group_id} == denied
    finally:
        _no_rules(arena)


@attack(
    "thousands of allowed prefixes lie within denied ones, and rules change between requests for "
    "producer ids",
    gateway=_GATEWAY,
    listeners=_LISTENERS,
)
def covered_patterns(arena: Arena) -> None:
    denied = [f"{n:03}" for n in range(500)]
    allowed = [f"{n % 500:03}-{n}" for n in range(4_000)]
    try:
        with _logged_in(arena) as client:
            codes = _rules(arena, denied, Permission.DENY, ResourceKind.TOPIC)
            assert codes == {0}
            assert _rules(arena, allowed, Permission.ALLOW, ResourceKind.TOPIC) == {0}
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
            for n in range(100):
                _rules(arena, [f"{n:03}-more"], Permission.ALLOW, ResourceKind.TOPIC)
                answer = client.call(request, InitProducerIdResponse, 4)
                assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    finally:
        _no_rules(arena)
