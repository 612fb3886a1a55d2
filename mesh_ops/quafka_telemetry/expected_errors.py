"""Errors that are steps of a protocol, not failures: one table for spans, metrics and status pages.

An answer with such an error tells the client what to do next, and the client does it by itself.
Everything else is a failure: mistakes of clients, and errors after which clients try again because
the service was away (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER). A gateway waits for a shard that moves, so a client
gets one of these only if a move or a restart took too long.
"""

from __future__ import annotations

from collections.abc import Mapping

from quafka_proto.errors import ErrorCode

OP_OF_A_SHARD = "op of a shard"
"""The step of each op for a shard, which the gateway sends again if the shard moves."""

_GROUP_STEPS = {"JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "CommitOffsets"}
_FETCH_STEPS = {"Fetch", "FetchOps"}
_SHARE_STEPS = {"ShareFetch", "ShareAcknowledge"}
_LOOKUPS = {"ListOffsets", "ListOffsetsOps", "OffsetForLeaderEpoch", "EpochEndOps"}
_EPOCH_STEPS = _FETCH_STEPS | _LOOKUPS
_OFFSET_STEPS = {"OffsetCommit", "CommitOffsets", "OffsetFetch", "CommittedOffsets"}

EXPECTED: Mapping[int, frozenset[str]] = {
    # The first join only gets a member id (KIP-394).
    ErrorCode.MEMBER_ID_REQUIRED: frozenset({"JoinGroup"}),
    ErrorCode.REBALANCE_IN_PROGRESS: frozenset(_GROUP_STEPS),
    # Admin clients ask for a group of a newer kind first, then for a classic one.
    ErrorCode.GROUP_ID_NOT_FOUND: frozenset(
        {
            "ConsumerGroupDescribe", "DescribeConsumerGroups", "ShareGroupDescribe",
            "DescribeShareGroups",
        }
    ),
    # The member gets its new epoch with its next heartbeat (KIP-848).
    ErrorCode.STALE_MEMBER_EPOCH: frozenset(_OFFSET_STEPS),
    # An open transaction may change the offset (KIP-447).
    ErrorCode.UNSTABLE_OFFSET_COMMIT: frozenset({"OffsetFetch", "CommittedOffsets"}),
    # The last transaction of the id is still being ended.
    ErrorCode.CONCURRENT_TRANSACTIONS: frozenset(
        {
            "InitProducerId", "InitTransactions", "AddPartitionsToTxn", "AddPartitions",
            "AddOffsetsToTxn", "AddOffsets", "TxnOffsetCommit", "CommitTxnOffsets", "EndTxn",
            "EndTransaction", "JoinTransaction",
        }
    ),
    # The batch is there already: the producer takes it as written.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: frozenset({"Produce", "ProduceOps"}),
    # The client begins another session: after a restart of the gateway, for example (KIP-227).
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: frozenset(_FETCH_STEPS),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: frozenset(_FETCH_STEPS),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: frozenset(_FETCH_STEPS),
    ErrorCode.SHARE_SESSION_NOT_FOUND: frozenset(_SHARE_STEPS),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: frozenset(_SHARE_STEPS),
    # The client reads the metadata again, and looks for a truncation (KIP-320).
    ErrorCode.FENCED_LEADER_EPOCH: frozenset(_EPOCH_STEPS),
    ErrorCode.UNKNOWN_LEADER_EPOCH: frozenset(_EPOCH_STEPS),
    # How clients find out whether a topic exists.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: frozenset({"Metadata"}),
    # The answer lists what the client may choose from (KIP-511, KIP-43).
    ErrorCode.UNSUPPORTED_VERSION: frozenset({"ApiVersions"}),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: frozenset({"SaslHandshake"}),
    # There is nothing to do.
    ErrorCode.ELECTION_NOT_NEEDED: frozenset({"ElectLeaders"}),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: frozenset({"AlterPartitionReassignments"}),
    # The gateway finds the new owner.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: frozenset({OP_OF_A_SHARD}),
}  # fmt: skip
"""By error, the APIs of Kafka and the types of ops in whose answers it is a step."""


def is_expected(error: int, *steps: str) -> bool:
    """Whether an answer to one of the steps with this error is a part of the protocol's course.

    `steps`: names of an API or of the type of an op.
    """
    known = EXPECTED.get(error)
    return known is not None and not known.isdisjoint(steps)


def failures(errors: Mapping[int, int], *steps: str) -> int:
    """The number of errors that are failures; `errors`: how often each error was answered."""
    return sum(count for code, count in errors.items() if not is_expected(code, *steps))


def expected_label(error: int, *steps: str) -> str:
    """The value of the label `expected` of metrics that count errors."""
    return "true" if is_expected(error, *steps) else "false"
