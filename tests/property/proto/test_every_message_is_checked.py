"""Every (message, version) agrees with another implementation's codec.

kio and kafka-python know nearly all. The few that neither has are compared with bytes written by
Kafka's own Java classes (kafka-clients 3.9.1, `org.apache.kafka.common.message`, which still has
the versions that Kafka 4.0 dropped), recorded from messages with the values given here.
"""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map

from quafka_proto.codec import decode, encode
from quafka_proto.message import Message
from quafka_proto.schema import request_type, response_type
from quafka_proto.schema.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quafka_proto.schema.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from quafka_proto.schema.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.property.proto.messages import CASES, KEYS, OURS
from tests.property.proto.oracles import kafka_python_cases, kio_cases

HMAC = b"\x01\x02\xff"

BETWEEN_BROKERS = {
    "vote",
    "begin_quorum_epoch",
    "end_quorum_epoch",
    "alter_partition",
    "envelope",
    "fetch_snapshot",
    "broker_registration",
    "broker_heartbeat",
    "allocate_producer_ids",
    "controller_registration",
    "assign_replicas_to_dirs",
    "update_raft_voter",
    "add_raft_voter",  # these two are sent by administrators of a KRaft quorum: Quafka has none
    "remove_raft_voter",
    "initialize_share_group_state",
    "read_share_group_state",
    "write_share_group_state",
    "delete_share_group_state",
    "read_share_group_state_summary",
}
# All in version 0.
RECORDED: list[tuple[Message, str]] = [
    (
        WriteTxnMarkersRequest(
            [WritableTxnMarker(1001, 3, True, [WritableTxnMarkerTopic("orders", [0, 2])], 7)]
        ),
        (
            "00000001 00000000000003e9 0003 01 00000001 00066f7264657273"
            "00000002 00000000 00000002 00000007"
        ),
    ),
    (
        WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    1001,
                    [
                        WritableTxnMarkerTopicResult(
                            "orders", [WritableTxnMarkerPartitionResult(2, 48)]
                        )
                    ],
                )
            ]
        ),
        "00000001 00000000000003e9 00000001 00066f7264657273 00000001 00000002 0030",
    ),
    (
        AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir("/data", [AlterReplicaLogDirTopic("orders", [0, 2])])]
        ),
        "00000001 00052f64617461 00000001 00066f7264657273 00000002 00000000 00000002",
    ),
    (
        AlterReplicaLogDirsResponse(
            5,
            [AlterReplicaLogDirTopicResult("orders", [AlterReplicaLogDirPartitionResult(2, 57)])],
        ),
        "00000005 00000001 00066f7264657273 00000001 00000002 0039",
    ),
    (
        DescribeLogDirsRequest([DescribableLogDirTopic("orders", [0, 2])]),
        "00000001 00066f7264657273 00000002 00000000 00000002",
    ),
    (
        CreateDelegationTokenRequest(
            renewers=[CreatableRenewers("User", "ann")], max_lifetime_ms=86_400_000
        ),
        "00000001 000455736572 0003616e6e 0000000005265c00",
    ),
    (
        CreateDelegationTokenResponse(
            error_code=61,
            principal_type="User",
            principal_name="bob",
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="id",
            hmac=HMAC,
            throttle_time_ms=5,
        ),
        (
            "003d 000455736572 0003626f62 0000000000000001 0000000000000002 0000000000000003"
            "00026964 00000003 0102ff 00000005"
        ),
    ),
    (RenewDelegationTokenRequest(HMAC, 60_000), "00000003 0102ff 000000000000ea60"),
    (RenewDelegationTokenResponse(66, 2, 5), "0042 0000000000000002 00000005"),
    (ExpireDelegationTokenRequest(HMAC, -1), "00000003 0102ff ffffffffffffffff"),
    (ExpireDelegationTokenResponse(63, 2, 5), "003f 0000000000000002 00000005"),
    (
        DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "bob")]),
        "00000001 000455736572 0003626f62",
    ),
    (DescribeDelegationTokenRequest(None), "ffffffff"),
    (
        DescribeDelegationTokenResponse(
            error_code=61,
            tokens=[
                DescribedDelegationToken(
                    principal_type="User",
                    principal_name="bob",
                    issue_timestamp=1,
                    expiry_timestamp=2,
                    max_timestamp=3,
                    token_id="id",
                    hmac=HMAC,
                    renewers=[DescribedDelegationTokenRenewer("User", "ann")],
                )
            ],
            throttle_time_ms=5,
        ),
        (
            "003d 00000001 000455736572 0003626f62 0000000000000001 0000000000000002"
            "0000000000000003 00026964 00000003 0102ff 00000001 000455736572 0003616e6e 00000005"
        ),
    ),
]


def test_every_api_of_kafka_is_described_but_those_between_brokers() -> None:
    others = {name for key, name in api_key_map.items() if key not in KEYS}
    assert others == BETWEEN_BROKERS


def test_every_version_of_kafka_is_described() -> None:
    described = set(kio_cases())
    for key in set(KEYS) - set(OURS):
        for kind, message in (("request", request_type(key)), ("response", response_type(key))):
            assert message is not None
            for version, types in schema_name_map[api_key_map[key]].items():
                assert kind in {entity.name for entity in types}
                assert (message, version) in described


def test_no_message_is_left_out_or_listed_needlessly() -> None:
    """A new version fails here until an oracle has it or its bytes are recorded."""
    recorded = {(type(message), 0) for message, _ in RECORDED}
    kafkas = {case for case in CASES if case[0].api_key not in OURS}
    assert recorded == kafkas - set(kio_cases()) - set(kafka_python_cases())


@pytest.mark.parametrize(
    ("message", "text"), RECORDED, ids=[type(message).__name__ for message, _ in RECORDED]
)
def test_recorded_bytes_of_kafka(message: Message, text: str) -> None:
    data = bytes.fromhex(text)
    assert b"".join(encode(message, 0)) == data
    assert decode(type(message), 0, data) == message
