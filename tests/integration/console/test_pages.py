"""A person walks through the console."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.driver import Driver
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient


def test_the_overview_shows_the_processes_and_charts(driver: Driver) -> None:
    driver.open("/", "Nothing needs attention")
    for text in ("gateway", "broker", "ready", "Requests per second"):
        driver.see(text)
    driver.click("light or dark")
    driver.click("Topics")
    driver.see("Create a topic")


def test_a_topic_is_created_found_changed_and_deleted(driver: Driver) -> None:
    driver.open("/topics", "Create a topic")
    driver.click("Create a topic")
    driver.type("Name", "not a name!")
    driver.click("Create")
    driver.see("a topic name is 1 to 249 of")
    driver.type("Name", "walked-orders")
    driver.click("Create")
    driver.see("All configs have their defaults")
    driver.open("/topics?search=walked", "walked-orders")
    driver.click("walked-orders")
    driver.see("Change a config")
    driver.click("Delete")
    driver.see("Its records are lost")
    driver.type("name", "walked-orders")
    driver.click("Delete the topic")
    driver.see("Create a topic")
    driver.open("/topic?name=walked-orders", "walked-orders")
    driver.see("no such topic")


def test_lists_are_searched_at_the_server(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        for number in range(60):
            create_topic(client, f"many-{number:02}")
        produce(client, "many-07", b"1", b"2", b"3")
    driver.open("/topics?search=many", "1–50 of 60 topics")
    assert "many-55" not in driver.text()
    driver.click("next page")
    driver.see("many-55")
    driver.type("search topics", "many-07")
    driver.see("1–1 of 1 topics")
    driver.see("3")


HOSTILE = [
    b"<script>document.title='taken'</script>",
    b"<img src=x onerror=\"document.title='taken'\">",
    b"{{ 7 * 191 }} ${7 * 191} javascript:alert(1)",
    b"\x1b[2J\x1b]0;taken\x07",
    b"\xff\xfe\x00",
    b"x" * 600_000,
]


def test_hostile_records_are_shown_and_do_nothing(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "hostile")
        produce(client, "hostile", *HOSTILE)
    driver.open("/messages?topic=hostile", "6 records")
    text = driver.text()
    assert "<script>document.title" in text
    assert "{{ 7 * 191 }}" in text
    assert "\\x1b[2J" in text
    assert "0xfffe00" in text
    assert "1337" not in text
    for value in ("<img", "<scr", "xxxx"):
        driver.open(f"/messages?topic=hostile&contains={value.replace('<', '%3C')}", "1 records")
        driver.pick(value)
        driver.see("Value, ")
    driver.see("600,000 bytes in all")
    assert driver.chrome.title == "Messages · Quafka"


def test_records_are_found_and_shown_in_full(driver: Driver, shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "found", 2)
        values = [b'{"order": %d, "lines": [{"sku": "a-%d"}]}' % (n, n) for n in range(300)]
        produce(client, "found", *values)
    driver.open("/messages?topic=found&count=20", "20 records")
    driver.see('{"order": 299')
    driver.type("contains", "a-17", enter=True)
    driver.see("11 records; 300 were looked at")
    driver.pick('"order": 17,')
    driver.see('"sku": "a-17"')
    driver.open("/messages?topic=found&from=offset&at=123&partition=0&count=20", '{"order": 123')
    assert '{"order": 122' not in driver.text()
    driver.open("/messages?topic=found&from=time&at=yesterday", "is not a time")
