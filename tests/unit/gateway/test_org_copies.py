"""An org is changed at all brokers: what an operator reads if one of them does not take it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.writer import SecurityWriter
from quafka_mesh_ops.ops.security import AlterOrg, AlterOrgResp, OrgRecord
from quafka_proto.errors import ErrorCode

ACME = OrgRecord(1_000, "acme", "active", [])
ALTERED = AlterOrgResp(0, ACME, -1, b"")


class _Broker:
    def __init__(self, answer: AlterOrgResp | BrokerUnavailableError) -> None:
        self.answer = answer
        self.asked: list[AlterOrg] = []

    async def call(self, op: AlterOrg, *_: Any) -> AlterOrgResp:
        self.asked.append(op)
        if isinstance(self.answer, BrokerUnavailableError):
            raise self.answer
        return self.answer


def refusal(code: ErrorCode, message: str) -> AlterOrgResp:
    return AlterOrgResp(code, None, -1, b"", message)


@pytest.mark.parametrize(
    ("other", "code", "said"),
    [
        (ALTERED, 0, ""),
        (
            BrokerUnavailableError("it is away"),
            ErrorCode.BROKER_NOT_AVAILABLE,
            "another broker of the cluster has not taken the change: it is away",
        ),
        (
            refusal(ErrorCode.DUPLICATE_RESOURCE, "org 7 has this name"),
            ErrorCode.DUPLICATE_RESOURCE,
            (
                "another broker of the cluster has not taken the change: org 7 has this name "
                "there, from before it was in this cluster; give one of the two another name, "
                "that one through a gateway with this broker alone"
            ),
        ),
        (
            refusal(ErrorCode.POLICY_VIOLATION, "security.max.orgs is reached"),
            ErrorCode.POLICY_VIOLATION,
            "another broker of the cluster has not taken the change: security.max.orgs is reached",
        ),
    ],
)
async def test_an_operator_reads_why_another_broker_has_not_taken_a_change(
    other: AlterOrgResp | BrokerUnavailableError, code: int, said: str
) -> None:
    brokers = [_Broker(ALTERED), _Broker(other)]

    def link_of(broker: int, _org: int) -> BrokerLink:
        return cast(BrokerLink, brokers[broker])

    writer = SecurityWriter(Directory(), link_of, len(brokers))
    answer = await writer.alter_org(1, AlterOrg(0, "acme", "", None, create=True))
    assert (answer.error_code, answer.error_message) == (code, said)
    (copied,) = brokers[1].asked
    assert copied == AlterOrg(1_000, "acme", "active", [], copy=True)
