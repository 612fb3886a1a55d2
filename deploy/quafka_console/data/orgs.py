"""Orgs, for operators of a cluster that has them."""

from __future__ import annotations

from quafka_client import orgs
from quafka_client.cluster import ClientCluster
from quafka_client.orgs import OrgDetails
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of
from quafka_proto.schema.quafka import DescribeOrgsRequest


async def org_page(
    cluster: ClientCluster, search: str = "", number: int = 0, size: int = PAGE_ROWS
) -> PageOf[OrgDetails] | None:
    """Orgs, with their usage of the gateway that answers; None: the server has no orgs.

    Raises:
        ClientError: also if the user is no operator.
    """
    if not cluster.any.has(DescribeOrgsRequest):
        return None
    found = await orgs.orgs(cluster)
    return page_of(
        sorted(found, key=lambda each: each.id),
        search,
        lambda each: (each.name, str(each.id), each.state),
        number,
        size,
    )
