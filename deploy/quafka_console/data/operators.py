"""Who may see what concerns all orgs: status pages, rates of whole gateways, traces."""

from __future__ import annotations

from quafka_client import orgs
from quafka_client.cluster import ClientCluster
from quafka_client.errors import RequestRefusedError
from quafka_proto.schema.quafka import DescribeOrgsRequest


async def is_operator(cluster: ClientCluster) -> bool:
    """Whether the user is an operator of a Quafka cluster, as the gateway decides now.

    Raises:
        ClientError: the gateway does not answer.
    """
    if not cluster.any.has(DescribeOrgsRequest):
        return False
    try:
        await orgs.orgs(cluster, [])
    except RequestRefusedError:
        return False
    return True
