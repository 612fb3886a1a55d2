"""What an object store is asked for and costs, as metrics and on the status page."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.chain.collect import Collected
from quafka_broker.chain.metrics import (
    LocalFigures,
    StoreFigures,
    store_families,
    store_sections,
    sum_of,
)
from quafka_broker.chain.store_disk import DiskFigures
from quafka_objects.costs import Prices
from quafka_objects.errors import ObjectExistsError
from quafka_objects.folder import FolderStore
from quafka_objects.meter import MeteredStore
from quafka_telemetry.metrics import Histogram
from quafka_telemetry.status_page import Facts, PageTable


def test_local_figures_are_sums_over_shards() -> None:
    one = LocalFigures(DiskFigures(1, 20, 300, 4_000), 50_000, Collected(6, 700))
    assert sum_of([]) == LocalFigures()
    total = sum_of([one, one])
    assert total == LocalFigures(DiskFigures(2, 40, 600, 8_000), 100_000, Collected(12, 1_400))
    figures = StoreFigures("s3://b/p", Prices(), local=lambda: total)
    families = {found.name: dict(found.samples) for found in store_families(figures)}
    assert families["quafka_store_uploads_waiting_bytes"] == {(): 40}
    assert families["quafka_store_cache_bytes"] == {("copies",): 600, ("blocks",): 8_000}
    assert families["quafka_store_unneeded_objects"] == {(): 12}


def test_requests_are_counted_and_priced(tmp_path: Path) -> None:
    figures = StoreFigures("s3://b/p", Prices(), lambda: 2_000_000_000)
    store = MeteredStore(FolderStore(tmp_path), figures.meter)
    store.create("a", b"x" * 2_000_000)
    with pytest.raises(ObjectExistsError):
        store.create("a", b"y")
    store.read("a", 0, 10)

    families = {found.name: dict(found.samples) for found in store_families(figures)}
    assert families["quafka_store_requests"]["create",] == 2
    assert families["quafka_store_transferred_bytes"]["get",] == 10
    assert families["quafka_store_refusals"]["create",] == 1
    assert families["quafka_store_dollars_month"]["storage",] == pytest.approx(0.046)
    seconds = families["quafka_store_seconds"]["create",]
    assert isinstance(seconds, Histogram)
    assert seconds.count == 2

    facts, table = store_sections(figures)
    assert isinstance(facts, Facts)
    shown = {name: cell.text for name, cell in facts.facts}
    assert shown["requests since the start"] == "$0.0000"
    assert shown["cache"] == "0 B of 0 B"
    assert shown["prices"] == (
        "$0.005 for 1,000 writes or lists, $0.0004 for 1,000 reads, "
        "$0.023 for a GB stored for a month"
    )
    assert shown["for each GB written to the log"] == "$0.0052"
    assert shown["storage in a month"] == "$0.0460"
    assert isinstance(table, PageTable)
    assert [row[0].text for row in table.rows] == ["create", "get"]


def test_without_traffic_and_prices() -> None:
    facts, _ = store_sections(StoreFigures("s3://b/p", Prices(0, 0, 0)))
    assert isinstance(facts, Facts)
    shown = {name: cell.text for name, cell in facts.facts}
    assert shown["prices"] == "free"
    assert shown["for each GB written to the log"] == "not known before the first MB"
