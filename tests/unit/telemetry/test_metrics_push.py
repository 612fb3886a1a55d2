"""Metrics pushed by OTLP: errors on the sending side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from quafka_telemetry.metrics import Family, Metrics, gauge
from quafka_telemetry.otlp_metrics import MetricsPush
from quafka_telemetry.resource import process_resource


class Exporter:
    """Accepts every export."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.taken = asyncio.Event()

    def export(self, metrics_data: MetricsData) -> MetricExportResult:
        self.loop.call_soon_threadsafe(self.taken.set)
        return MetricExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


async def test_a_collector_that_fails_once_does_not_end_the_push(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = iter(range(1_000_000))

    def collect() -> Iterator[Family]:
        if not next(calls):
            raise RuntimeError("the log is being closed")
        yield gauge("one", "One", 1)

    metrics = Metrics()
    metrics.add(collect)
    exporter = Exporter()
    push = MetricsPush(exporter, process_resource("test", {}), metrics, 0.01)
    push.start()
    async with asyncio.timeout(5):
        await exporter.taken.wait()
    await push.close()
    assert "the log is being closed" in caplog.text
