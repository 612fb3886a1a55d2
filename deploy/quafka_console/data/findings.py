"""What needs attention in a cluster: the checks of `quafka doctor` that concern more than one
client's way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from quafka_client.checks.compaction import check_compaction
from quafka_client.checks.findings import Finding, Report
from quafka_client.checks.gateway import check_gateway
from quafka_client.checks.groups import check_groups
from quafka_client.checks.security import check_certificate
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_console.data.recent import Recent, whose
from quafka_loop import clock
from quafka_proto.schema.quafka import DescribeGatewayRequest

_SECONDS = 30.0
_COMPACTION_SECONDS = 600.0
"""Asks about each of up to 500 topics; compaction is late after two hours."""
_MOST_GROUPS = 1_000


class Findings:
    """Warnings and failures, failures first. All open pages of a sign-in share a reading."""

    def __init__(self) -> None:
        self._recent = Recent[Sequence[Finding]](_SECONDS)
        self._compaction = Recent[Sequence[Finding]](_COMPACTION_SECONDS)

    async def read(self, cluster: ClientCluster) -> Sequence[Finding]:
        """The findings that this user may see, at most 30 s old; late compaction: 10 minutes.

        A check that the cluster refuses, or does not answer, has no findings.
        """
        found = [
            *await self._recent.read(whose(cluster), lambda: _found(cluster)),
            *await self._compaction.read(whose(cluster), lambda: _late(cluster)),
        ]
        return sorted(found, key=lambda each: each.status != "fail")


async def _found(cluster: ClientCluster) -> Sequence[Finding]:
    report = Report()
    with suppress(ClientError):
        check_certificate(report, cluster.any)
        if cluster.any.has(DescribeGatewayRequest):
            await check_gateway(report, cluster.any, "console")
    with suppress(ClientError):
        await check_groups(report, cluster, _MOST_GROUPS)
    return report.problems


async def _late(cluster: ClientCluster) -> Sequence[Finding]:
    report = Report()
    with suppress(ClientError):
        await check_compaction(report, cluster.any, clock.time())
    return report.problems
