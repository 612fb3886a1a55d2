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
