"""Every API and version, asked with and without each of its rights: as Apache Kafka answers.

For each set of rights that an API declares there are principals who have all of them, all but one
of them, one, and none. Each has its rules at Quafka and at a Kafka with StandardAuthorizer, and
both must allow and deny the same, resource by resource.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC, READ_TOPIC
from quafka_gateway.security.authorizer import NeededRight
from quafka_proto.acl_kinds import CLUSTER_NAME, Operation, Pattern, Permission, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.schema import response_type
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.sasl import SaslAuthenticateResponse
from quafka_proto.schema.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.authorization_calls import CALLS, MINE, OTHERS, TOPICS, outcome, requests
from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.kafka_calls import commit, create_topic
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, upsertion
from tests.support.secured_kafka import secured_kafka

pytestmark = [pytest.mark.long, JAVA_TOOLS]

E = ErrorCode
DENIALS = {
    E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED,
}  # fmt: skip
NOT_PLAYED = {17, 18, 36, 38, 39, 40, 41, 64}
"""ApiVersions and SASL; delegation tokens, which are always refused; UnregisterBroker, which would
unregister Kafka's broker."""
_FROM = {0: 3}
"""Kafka advertises Produce from version 0 on, and closes the connection below 3."""
_SECONDS = 30.0


def _subsets(rights: Sequence[NeededRight]) -> set[frozenset[NeededRight]]:
    """All rights, all but each one, each one alone, and none."""
    every = frozenset(rights)
    but_one = (every - {one} for one in rights)
    return {every, frozenset(), *but_one, *(frozenset({one}) for one in rights)}


RANDOM = ("r1", "r2", "r3", "r4")
"""Principals with random rules."""
PRINCIPALS: dict[frozenset[NeededRight], str] = {}
for _api in APIS.values():
    for _subset in sorted(_subsets(_api.access), key=sorted):
        PRINCIPALS.setdefault(_subset, f"u{len(PRINCIPALS)}")


@dataclass
class Server:
    """Quafka or Kafka: addresses of a listener without and of one with SASL."""

    name: str
    admin: tuple[str, int]
    users: tuple[str, int]
    ids: dict[str, bytes] = field(default_factory=dict[str, bytes])
    clients: dict[str, RawClient] = field(default_factory=dict[str, RawClient])

    def prepare(self) -> None:
        """Topics, offsets of two groups, and the rules of all principals."""
        with RawClient(self.admin) as client:
            for topic in TOPICS:
                create_topic(client, topic)
            _until_coordinated(client)
            named = [MetadataRequestTopic(name=topic) for topic in TOPICS]
            found = client.call(MetadataRequest(topics=named), MetadataResponse, 12)
            self.ids = {topic.name or "": topic.topic_id for topic in found.topics}
            rules = [rule for rights, who in PRINCIPALS.items() for rule in _rules(rights, who)]
            made = client.call(CreateAclsRequest(creations=rules), CreateAclsResponse, 2)
            assert not any(each.error_code for each in made.results)

    def ask(self, who: str, key: int, version: int) -> dict[str, int]:
        """What the server allows and denies to a principal's request."""
        client = self.client(who)
        kind = response_type(key)
        assert kind is not None
        names = {topic_id: name for name, topic_id in self.ids.items()}
        found: dict[str, int] = {}
        for number, request in enumerate(requests(key, version, self.ids)):
            response = client.call(request, kind, version)
            its = outcome(response, names)
            found.update({f"{number}{at}": code for at, code in its.items()})
        return found

    def client(self, who: str) -> RawClient:
        """A connection of the principal's."""
        client = self.clients.get(who)
        if client is None:
            client = self.clients[who] = RawClient(self.users)
            answer: SaslAuthenticateResponse = log_in_plain(client, who, who)
            assert answer.error_code == 0, answer
        return client

    def close(self) -> None:
        for client in self.clients.values():
            client.socket.close()


def _until_coordinated(client: RawClient) -> None:
    """Commit offsets and begin transactions; Kafka makes the topics for them first."""
    give_up = time.monotonic() + _SECONDS
    for kind in (0, 1):  # of groups, and of transactions
        find = FindCoordinatorRequest(key="a-g", key_type=kind)
        client.call(find, FindCoordinatorResponse, 3)
    for group in (MINE + "g", OTHERS + "g"):
        while True:
            try:
                commit(client, group, TOPICS[0], 1)
                break
            except AssertionError:
                assert time.monotonic() < give_up
                time.sleep(0.05)
    for name in (MINE + "x", OTHERS + "x"):
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
        while client.call(begin, InitProducerIdResponse, 4).error_code:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def _rules(rights: frozenset[NeededRight], who: str) -> Iterator[AclCreation]:
    for right in sorted(rights):
        of_cluster = right.resource == ResourceKind.CLUSTER
        yield AclCreation(
            resource_type=right.resource,
            resource_name=CLUSTER_NAME if of_cluster else MINE,
            resource_pattern_type=Pattern.LITERAL if of_cluster else Pattern.PREFIXED,
            principal=f"User:{who}",
            host="*",
            operation=right.operation,
            permission_type=Permission.ALLOW,
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    names = [*PRINCIPALS.values(), *RANDOM]
    folder = tmp_path_factory.mktemp("quafka")
    args = (
        "--super-users", "User:ANONYMOUS", "--node-id", "1", "--sasl-enabled-mechanisms", "PLAIN",
    )  # fmt: skip
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with (
        secured_kafka(tmp_path_factory.mktemp("kafka"), names) as kafka,
        Cluster(folder, gateway_args=args, listeners=listeners) as cluster,
    ):
        ours = Server(
            "Quafka", cluster.address_of("PLAINTEXT"), cluster.address_of("SASL_PLAINTEXT")
        )
        alter_users(ours.admin, *(upsertion(name, name) for name in names))
        theirs = Server(
            "Kafka", _address(kafka.addresses["PLAINTEXT"]),
            _address(kafka.addresses["SASL_PLAINTEXT"]),
        )  # fmt: skip
        for server in (ours, theirs):
            server.prepare()
        yield ours, theirs
        for server in (ours, theirs):
            server.close()


def _address(text: str) -> tuple[str, int]:
    _, _, port = text.rpartition(":")
    return "127.0.0.1", int(port)  # rules name it


def test_every_api_is_played() -> None:
    kafkas = {key for key, api in APIS.items() if not api.quafka_only}
    assert kafkas - NOT_PLAYED == set(CALLS)


def test_the_same_is_allowed_and_denied(servers: tuple[Server, Server]) -> None:
    ours, theirs = servers
    with RawClient(theirs.admin) as client:
        served = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    versions = {each.api_key: (each.min_version, each.max_version) for each in served.api_keys}
    different: list[str] = []
    count = 0
    for key in CALLS:
        api = APIS[key]
        low = max(api.versions.low, versions[key][0], _FROM.get(key, 0))
        high = min(api.versions.high, versions[key][1])
        for rights in _subsets(api.access):
            who = PRINCIPALS[rights]
            for version in range(low, high + 1):
                mine, kafkas = (_judged(each.ask(who, key, version)) for each in (ours, theirs))
                count += 1
                different += [
                    f"{api.name} v{version} with {sorted(map(str, rights))}: {at}: "
                    f"Kafka {kafkas.get(at)}, Quafka {mine.get(at)}"
                    for at in sorted({*mine, *kafkas})
                    if mine.get(at) != kafkas.get(at)
                ]
    assert count > 500
    assert not different, "\n".join(different)


@pytest.mark.parametrize("rights", [(), (DESCRIBE_TOPIC,), (READ_TOPIC,)], ids=str)
def test_an_id_does_not_reveal_a_name(
    servers: tuple[Server, Server], rights: tuple[NeededRight, ...]
) -> None:
    """By id, each of a topic of the principal's, another one, and an unknown one."""
    who = PRINCIPALS[frozenset(rights)]
    answers: list[list[tuple[int, str]]] = []
    for server in servers:
        ids = [*(server.ids[topic] for topic in TOPICS), bytes(15) + b"x"]
        described = [MetadataRequestTopic(name=None, topic_id=each) for each in ids]
        server.ask(who, 16, 0)  # it has logged in
        client = server.clients[who]
        metadata = client.call(MetadataRequest(topics=described), MetadataResponse, 12)
        wanted = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=each) for each in ids], timeout_ms=5_000
        )
        deleted = client.call(wanted, DeleteTopicsResponse, 6)
        found = {each.topic_id: (each.error_code, each.name or "") for each in metadata.topics}
        refused = {each.topic_id: (each.error_code, each.name or "") for each in deleted.responses}
        answers.append([each[topic_id] for each in (found, refused) for topic_id in ids])
    assert answers[0] == answers[1]


def test_rules_of_all_kinds_mean_the_same(servers: tuple[Server, Server]) -> None:
    """By the operations that each principal is told of groups which random rules are about."""
    chance = random.Random(52)
    rules = [_random_rule(chance) for _ in range(60)]
    for server in servers:
        with RawClient(server.admin) as client:
            made = client.call(CreateAclsRequest(creations=rules), CreateAclsResponse, 2)
            assert {each.error_code for each in made.results} == {0}
    ours, theirs = servers
    told = _operations(ours)
    give_up = time.monotonic() + _SECONDS
    while (kafkas := _operations(theirs)) != told and time.monotonic() < give_up:
        time.sleep(0.1)  # Kafka applies new rules a moment after it has answered
    assert told == kafkas
    assert len(set(told.values())) > 5


def _random_rule(chance: random.Random) -> AclCreation:
    pattern = chance.choice((Pattern.LITERAL, Pattern.PREFIXED))
    return AclCreation(
        resource_type=ResourceKind.GROUP,
        resource_name=chance.choice(("*", "p", "pa", "pab", "q", "qa")),
        resource_pattern_type=pattern,
        principal=chance.choice(("User:*", *(f"User:{who}" for who in RANDOM))),
        host=chance.choice(("*", "*", "127.0.0.1", "192.0.2.1")),
        operation=chance.choice(
            (
                Operation.ALL, Operation.READ, Operation.DELETE, Operation.DESCRIBE,
                Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS,
            )
        ),
        permission_type=chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )  # fmt: skip


def _operations(server: Server) -> dict[tuple[str, str], tuple[int, int]]:
    """The error code and the operations that each group's description has, for each principal."""
    groups = ["p", "pa", "pab", "pabc", "q", "qa", "qb", "r", "*"]
    wanted = DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
    return {
        (who, each.group_id): (each.error_code, each.authorized_operations)
        for who in RANDOM
        for each in server.client(who).call(wanted, DescribeGroupsResponse, 5).groups
    }


def _judged(answer: Mapping[str, int]) -> dict[str, str]:
    """The denials by name, and the authorized operations; any other code is "allowed"."""
    return {
        at: bin(code) if at.endswith("operations")
        else ErrorCode(code).name if code in DENIALS
        else "allowed"
        for at, code in answer.items()
        if not _is_being_made(at)
    }  # fmt: skip


def _is_being_made(at: str) -> bool:
    """Kafka creates the topics of a Metadata request after it has answered."""
    return "/topics[a-made]" in at and (at.startswith("1") or "/partitions" in at)
