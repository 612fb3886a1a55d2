"""Ops whose answers are lost: which ones the gateway sends again, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics, DescribeTopicsResp


class Flaky:
    """A mesh client whose first calls fail."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.deadlines: list[float] = []

    async def call(self, _op: AnyOp, *, deadline: float, **_: Any) -> DescribeTopicsResp:
        self.deadlines.append(deadline)
        await asyncio.sleep(0.5)
        if self.failures:
            raise self.failures.pop(0)
        return DescribeTopicsResp("cluster", [])


def link(flaky: Flaky) -> BrokerLink:
    return BrokerLink(cast(MeshClient, flaky), 1)


async def test_an_op_that_only_reads_is_sent_again_in_the_time_that_is_left() -> None:
    flaky = Flaky(OutcomeUnknownError("lost"), OutcomeUnknownError("lost again"))
    await link(flaky).describe_topics(DescribeTopics(), None, 5.0)
    assert flaky.deadlines == [5.0, 2.0, 1.5]  # a repetition has two seconds at most


async def test_no_op_is_sent_again_when_its_time_is_over() -> None:
    flaky = Flaky(OutcomeUnknownError("too late"))
    with pytest.raises(BrokerUnavailableError):
        await link(flaky).describe_topics(DescribeTopics(), None, 1e-9)
    assert len(flaky.deadlines) == 1


@pytest.mark.parametrize(
    ("op", "failure"),
    [
        (CreateTopic("t", 1), OutcomeUnknownError("lost")),
        (DescribeTopics(), PeerUnavailableError("disconnected")),
    ],
)
async def test_an_op_that_may_have_changed_something_or_was_never_sent_is_not_sent_again(
    op: AnyOp, failure: Exception
) -> None:
    flaky = Flaky(failure)
    with pytest.raises(BrokerUnavailableError):
        await link(flaky).call(op, None, 5.0)
    assert len(flaky.deadlines) == 1
