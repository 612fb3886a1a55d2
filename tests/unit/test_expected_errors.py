"""Errors that are steps of a protocol: the names in the table, the metrics, the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.status.op_stats import BrokerStats
from quafka_gateway.api import APIS
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.table import OPS
from quafka_proto.errors import ErrorCode
from quafka_telemetry.expected_errors import (
    EXPECTED,
    OP_OF_A_SHARD,
    expected_label,
    failures,
    is_expected,
)

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_every_step_is_an_api_or_an_op() -> None:
    known = {api.name for api in APIS.values()} | {op.__name__ for op in OPS.values()}
    assert {step for steps in EXPECTED.values() for step in steps} - known == {OP_OF_A_SHARD}


@pytest.mark.parametrize(
    ("error", "step", "expected"),
    [
        (ErrorCode.MEMBER_ID_REQUIRED, "JoinGroup", True),
        (ErrorCode.MEMBER_ID_REQUIRED, "OffsetCommit", False),
        (ErrorCode.GROUP_ID_NOT_FOUND, "ConsumerGroupDescribe", True),
        (ErrorCode.GROUP_ID_NOT_FOUND, "ShareGroupDescribe", True),
        (ErrorCode.GROUP_ID_NOT_FOUND, "DeleteGroups", False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Produce", False),
        (ErrorCode.UNSUPPORTED_VERSION, "ApiVersions", True),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "SaslHandshake", True),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "SaslAuthenticate", False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "Produce", False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, OP_OF_A_SHARD, True),
        (ErrorCode.NOT_COORDINATOR, "OffsetCommit", False),
    ],
)
def test_an_error_is_expected_at_its_steps_only(
    error: ErrorCode, step: str, expected: bool
) -> None:
    assert is_expected(error, step) is expected
    assert expected_label(error, step) == str(expected).lower()
    assert failures({error: 3}, step) == (0 if expected else 3)


def test_the_counters_of_an_op_know_its_step() -> None:
    stats = BrokerStats()
    assert stats.of(OpCode.JOIN_GROUP).step == "JoinGroup"
    assert stats.of(OpCode.FETCH).step == "FetchOps"


def test_the_documentation_lists_the_table() -> None:
    rows = [line.split("|") for line in OPERATIONS.read_text().splitlines()]
    documented = {
        error.strip("` "): {name.strip("` ") for name in row[2].split(",")}
        for row in rows
        if len(row) == 5
        for error in row[1].split(",")
        if error.strip("` ") in ErrorCode.__members__
    }
    apis = {api.name for api in APIS.values()}
    table = {ErrorCode.name_of(error): steps & apis for error, steps in EXPECTED.items()}
    assert documented == {error: set(steps) for error, steps in table.items() if steps}
