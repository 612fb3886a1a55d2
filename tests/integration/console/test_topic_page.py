"""A topic's page: partitions, who reads it, who writes it."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.driver import Driver
from tests.support.kafka_calls import commit, create_topic, produce
from tests.support.raw_client import RawClient
from tests.support.transactional import TV1, RawProducer


def test_readers_and_producers(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "busy", 2)
        produce(client, "busy", *[b"x" * 100] * 9)
        for group, offset in (("busy-late", 2), ("busy-later", 1)):
            commit(client, group, "busy", offset)
        create_topic(client, "unread")
        producer = RawProducer(client, "busy-payments", TV1)
        producer.initialise()
        assert producer.add_partitions("busy", [1]) == 0
        assert producer.produce("busy", {1: [b"a", b"b"]}) == 0
        driver.open("/topic?name=busy", "busy-late")
        driver.see("Open transaction from")
        rows = driver.texts(".q-table tbody tr")
        later, late = (each for each in rows if each.startswith("busy-late"))
        assert later.split() == ["busy-later", "classic", "Empty", "0", "8", *later.split()[5:]]
        assert "\t7\t" in late
        (writing,) = (each for each in rows if f"\t{producer.id}\t" in each)
        assert writing.startswith("1\t")
        assert writing.endswith("\t0")
        driver.see(" per second")
        assert "KiB" in driver.text(), "the size on disk"
        driver.click(str(producer.id))
        driver.see("busy-payments")
        assert producer.end(commit=True) == 0
    driver.open("/topic?name=unread", "No group reads this topic")
    driver.see("No producer of this topic is known")
    driver.open("/topics?search=busy", "New per second")
    driver.see("KiB")


def test_partitions_are_paged_and_searched(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "many-parts", 120)
    driver.open("/topic?name=many-parts", "1–50 of 120 partitions")
    driver.see("No producer of these partitions is known")
    driver.click("next page")
    driver.see("51–100 of 120 partitions")
    driver.type("search partitions", "11")
    driver.see("1–11 of 11 partitions (of 120)")
    assert "search=11" in driver.chrome.current_url
