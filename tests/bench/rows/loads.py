"""Small requests: one alone, many at once, and paced ones."""

from __future__ import annotations

import time
from functools import cache, partial

from tests.bench.load import PARTITIONS, TOPIC, measured
from tests.bench.peers import Server
from tests.bench.rows.row import Figures, Row
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

_PACED, _RATE = 1_000, 2_000
"""Connections of the paced load, and requests a second of them all together."""


@cache
def _prepare(server: Server) -> None:
    with RawClient(server.address, 60) as client:
        create_topic(client, TOPIC, PARTITIONS)
    time.sleep(1)  # Kafka answers before the partitions have a leader


def _alone(server: Server, seconds: float, _round: int) -> Figures:
    load, cpu_us = measured(server, 1, 0, seconds)
    return load.p50, load.p99, cpu_us


def _closed(connections: int, server: Server, seconds: float, _round: int) -> Figures:
    load, cpu_us = measured(server, connections, 0, seconds)
    return load.answered / seconds, cpu_us


def _paced(server: Server, seconds: float, _round: int) -> Figures:
    load, cpu_us = measured(server, _PACED, _RATE, seconds)
    return load.p50, load.p99, cpu_us


_LATENCY = ("p50 ms", "p99 ms", "CPU µs a request")
_RATES = ("requests/s", "CPU µs a request")

ROWS = (
    Row("loads", "one request at a time", _LATENCY, _alone, _prepare),
    Row("loads", "64 connections, one request each", _RATES, partial(_closed, 64), _prepare),
    Row("loads", "400 connections, one request each", _RATES, partial(_closed, 400), _prepare),
    Row("loads", f"{_PACED:,} connections, {_RATE:,} requests/s", _LATENCY, _paced, _prepare),
)
