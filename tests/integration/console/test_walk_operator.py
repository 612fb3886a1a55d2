"""A walk in a real browser over the console's pages of groups, and of everything else that an
operator has to reach."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from quafka_client import share_offsets
from quafka_client.cluster import ClientCluster
from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.driver import Driver, driven
from tests.support.kafka_calls import commit, create_topic, metadata, produce
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, RELEASE, ShareMember

pytestmark = pytest.mark.needs("chromium", "chromedriver")

HOSTILE = "g<img src=x onerror=document.title=1>\x1b[31m"


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A cluster with groups, its console, and a browser."""
    folder = tmp_path_factory.mktemp("walk")
    with (
        Cluster(folder, broker_args=("--ops-slow-ms", "1")) as cluster,
        RawClient(cluster.address) as client,
    ):
        create_topic(client, "orders", partitions=2)
        for _ in range(5):
            produce(client, "orders", b"a", b"b")
        for number in range(60):
            commit(client, f"reader-{number:02}", "orders", 4)
        commit(client, HOSTILE, "orders", 1)
        asyncio.run(_begin_share_group(cluster.address))
        member = ShareMember(client, "mails", metadata(client, "orders").topics[0].topic_id)
        member.fetch(0)
        member.acknowledge({0: [(0, 9, [ACCEPT])]})
        produce(client, "orders", b"poison")
        for _ in range(3):
            member.fetch(wait_ms=1_000)
            member.acknowledge({0: [(10, 10, [RELEASE])]})
        with console_of(cluster, folder) as (url, _), driven(url, folder / "profile") as found:
            yield found
            assert found.errors() == []


async def _begin_share_group(address: tuple[str, int]) -> None:
    """Setting its offsets creates a share group."""
    async with ClientCluster([address]) as cluster:
        errors = await share_offsets.alter(cluster, "mails", {("orders", 0): 0})
        assert errors == {("orders", 0): None}


def test_the_overview_has_the_doctors_findings_with_their_fix_and_page(walk: Driver) -> None:
    walk.open("/", "groups without members have records to read")
    walk.see("start their consumers; unused groups can be deleted")
    walk.miss("Nothing needs attention")
    assert "Groups" in walk.texts(".q-problem a")


def test_groups_are_paged_and_searched_and_the_address_has_the_state(walk: Driver) -> None:
    walk.open("/groups", "1–50 of 62 groups")
    walk.see("reader-00")
    walk.type("search groups", "reader-59")
    walk.see("1–1 of 1 groups")
    assert "search=reader-59" in walk.chrome.current_url
    walk.open("/groups?order=lag&search=reader", "1–50 of 60 groups")
    walk.click("next page")
    walk.see("51–60 of 60 groups")
    walk.open("/groups?search=nobody", "No group matches")


def test_offsets_are_reset_after_a_dry_run_and_with_the_name(walk: Driver) -> None:
    walk.open("/group?name=reader-07", "7 records")
    walk.see("never: no members")
    walk.click("Reset offsets")
    walk.click("Dry run")
    walk.see("records that are read again")
    walk.see_off("Reset the offsets")
    walk.type("type the group's name to reset", "reader-07")
    walk.click("Reset the offsets")
    walk.see("1 partitions moved")
    walk.open("/group?name=reader-07", "11 records")
    walk.open("/audit", "reset offsets of group")
    (moment,) = walk.texts('td span[title$=" UTC"]')
    assert moment, "in the reader's zone"
    assert "UTC" not in moment


def test_a_group_is_deleted_only_with_its_name(walk: Driver) -> None:
    walk.open("/group?name=reader-08", "7 records")
    walk.click("Delete")
    walk.see("Delete this group?")
    walk.see_off("Delete the group")
    walk.type("name", "reader-08")
    walk.click("Delete the group")
    walk.see("1–50 of 61 groups")
    walk.open("/group?name=reader-08", "no such group")


def test_a_share_group_shows_a_record_that_is_delivered_often(walk: Driver) -> None:
    walk.open(
        "/group?name=mails",
        "record 10 of orders, partition 0, was delivered 3 times without being accepted",
    )
    walk.see("3 of 5")


def test_names_are_text(walk: Driver) -> None:
    walk.open("/groups?search=onerror", "g<img src=x onerror=document.title=1>\\x1b[31m")
    assert walk.chrome.title != "1"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/transactions", "No transactional ids"),
        ("/shards", "connected"),
        ("/snapshots", "quafka snapshot create /mnt/lake"),
        ("/slow", "Waited for data"),
        ("/users", "No users with passwords"),
        ("/acls", "No authorizer is configured"),
        ("/quotas", "No quotas"),
        ("/orgs", "active"),
        ("/audit", "jq -c"),
    ],
)
def test_the_other_pages(walk: Driver, path: str, expected: str) -> None:
    walk.open(path, expected)
