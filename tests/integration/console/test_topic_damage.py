"""A topic whose records are lost to damage, as operators see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from tests.integration.test_poison_batch import POISON, rot
from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.driver import driven
from tests.support.kafka_calls import create_topic, fetch, produce
from tests.support.raw_client import RawClient


@pytest.mark.needs("chromium", "chromedriver")
@pytest.mark.local_log
def test_lost_records_are_named(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        with RawClient(cluster.address) as client:
            for topic in ("damaged", "whole"):
                create_topic(client, topic)
            for value in (b"before", POISON, b"after"):
                produce(client, "damaged", value)
            produce(client, "whole", b"value")
            rot(cluster.data)
            assert fetch(client, "damaged", 1).error_code == ErrorCode.CORRUPT_MESSAGE
        with console_of(cluster, tmp_path) as (url, _), driven(url, tmp_path / "profile") as driver:
            driver.open(
                "/topic?name=damaged", "the records 1 to 1 of partition 0 are lost to damage"
            )
            driver.see("run `quafka wal repair`")
            driver.open("/topic?name=whole", "No group reads this topic")
            assert "lost to damage" not in driver.text()
            assert driver.errors() == []
