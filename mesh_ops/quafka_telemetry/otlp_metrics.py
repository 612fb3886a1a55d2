"""Metrics pushed by OTLP: the families of `/metrics`, passed to the SDK's exporter.

The event loop reads one family at a time; a thread encodes and sends them. A slow or unavailable
collector delays no request: one export runs at a time, and the numbers are cumulative, so the next
export makes up for missed ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from quafka_loop import clock, threads
from quafka_telemetry.metrics import Family, FamilyKind, Histogram, Metrics
from quafka_telemetry.otlp_environment import has_collector, speaks_grpc

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricExportResult, MetricsData
    from opentelemetry.sdk.resources import Resource

logger = logging.getLogger("quafka.metrics")

_LAST_SECONDS = 2.0
_MAX_INTERVAL_MS = 86_400_000
_UNITS = {"_seconds": "s", "_bytes": "By"}
_NOT_KEPT = cast(float, None)
"""The exporter leaves out minimum and maximum; the SDK's type does not allow for it."""

T = TypeVar("T")


class _Exporter(Protocol):
    """The methods used of the SDK's exporters. Both block."""

    def export(self, metrics_data: MetricsData) -> MetricExportResult: ...

    def shutdown(self) -> None: ...


def push_from_environment(service_name: str, metrics: Metrics) -> MetricsPush | None:
    """Make the push that the standard `OTEL_*` variables ask for, if any.

    Without `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._METRICS_ENDPOINT`) nothing is pushed.

    Raises:
        ValueError: a variable has a value that is not allowed; the message names both.
    """
    env = os.environ
    wanted = env.get("OTEL_METRICS_EXPORTER") or "otlp"
    if wanted not in ("otlp", "none", "prometheus"):
        raise ValueError(f"OTEL_METRICS_EXPORTER={wanted!r}: allowed are otlp, prometheus and none")
    if not has_collector(env, "METRICS") or wanted != "otlp":  # Prometheus is always served
        return None
    _refuse_delta(env)
    interval = _interval(env)
    from quafka_telemetry.resource import process_resource

    return MetricsPush(_exporter(env), process_resource(service_name, env), metrics, interval)


class MetricsPush:
    """Sends a program's metrics every `interval` seconds, and once at its end."""

    def __init__(
        self, exporter: _Exporter, resource: Resource, metrics: Metrics, interval: float
    ) -> None:
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._exporter = exporter
        self._resource = resource
        self._scope = InstrumentationScope("quafka")
        self._metrics = metrics
        self._interval = interval
        self._started = clock.time_ns()
        self._failing = False
        self._task: asyncio.Task[None] | None = None
        # The SDK logs every failed export; one line per outage is enough.
        logging.getLogger(type(exporter).__module__).addFilter(lambda _: not self._failing)

    def start(self) -> None:
        """Start pushing."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_log_mistake)

    async def close(self) -> None:
        """Push the last metrics, within a few seconds, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._push()
        except TimeoutError:
            logger.warning("the last metrics were not sent within %d s", _LAST_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await _in_thread(self._exporter.shutdown)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._interval
        while True:
            await asyncio.sleep(due - loop.time())
            await self._push()
            due += self._interval
            missed = (loop.time() - due) // self._interval + 1
            due += max(0.0, missed) * self._interval

    async def _push(self) -> None:
        try:
            data = self._data(await self._read())
        except Exception:  # a collector's bug must not end the pushes
            logger.exception("no metrics are pushed: some cannot be read")
            return
        sent = await _in_thread(lambda: self._send(data))
        if not sent and not self._failing:
            logger.warning(
                "the collector does not accept metrics; OTEL_METRICS_EXPORTER=none disables them"
            )
        self._failing = not sent

    async def _read(self) -> list[Metric]:
        now = clock.time_ns()
        metrics: list[Metric] = []
        for family in await self._metrics.read():
            metrics += _metric(family, self._started, now)
            await asyncio.sleep(0)
        return metrics

    def _data(self, metrics: list[Metric]) -> MetricsData:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

        scope = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _send(self, data: MetricsData) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        try:
            return self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception:  # an exporter's bug must not end the pushes
            if not self._failing:
                logger.exception("metrics cannot be exported")
            return False


def _metric(family: Family, started: int, now: int) -> Iterator[Metric]:
    """Yield the family in OTLP's form; nothing without samples."""
    from opentelemetry.sdk.metrics import export

    samples = [(dict(zip(family.labels, v, strict=True)), x) for v, x in family.samples]
    if not samples:
        return
    data: export.Histogram | export.Sum | export.Gauge
    cumulative = export.AggregationTemporality.CUMULATIVE
    if family.kind is FamilyKind.HISTOGRAM:
        data = export.Histogram(
            [
                export.HistogramDataPoint(
                    labels, started, now, sum(counts), value.sum, counts, value.bounds,
                    _NOT_KEPT, _NOT_KEPT,
                )
                for labels, value in samples
                if isinstance(value, Histogram)
                for counts in (list(value.counts),)
            ],
            cumulative,
        )  # fmt: skip
    else:
        points = [
            export.NumberDataPoint(labels, started, now, value)
            for labels, value in samples
            if not isinstance(value, Histogram)
        ]
        is_counter = family.kind is FamilyKind.COUNTER
        data = (
            export.Sum(points, cumulative, is_monotonic=True)
            if is_counter
            else export.Gauge(points)
        )
    unit = next((unit for end, unit in _UNITS.items() if family.name.endswith(end)), "")
    yield export.Metric(family.name, family.help, unit, data)


async def _in_thread(job: Callable[[], T]) -> T:
    """Run a long job in a daemon thread, which does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T) -> None:
        if not done.done():
            done.set_result(result)

    def run() -> None:
        result = job()
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result)

    threads.Thread(target=run, name="metrics-push", daemon=True).start()
    return await done


def _exporter(env: Mapping[str, str]) -> _Exporter:
    if speaks_grpc(env, "METRICS"):
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as GrpcMetricExporter,
        )

        return GrpcMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()


def _refuse_delta(env: Mapping[str, str]) -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    if (env.get(name) or "cumulative").lower() != "cumulative":
        raise ValueError(f"{name}={env[name]!r}: allowed is cumulative")


def _interval(env: Mapping[str, str]) -> float:
    text = env.get("OTEL_METRIC_EXPORT_INTERVAL") or "60000"
    if not text.isdecimal() or not 0 < int(text) <= _MAX_INTERVAL_MS:
        raise ValueError(
            f"OTEL_METRIC_EXPORT_INTERVAL={text!r}: allowed is 1 to {_MAX_INTERVAL_MS}"
        )
    return int(text) / 1000


def _log_mistake(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the push of metrics has ended", exc_info=task.exception())
