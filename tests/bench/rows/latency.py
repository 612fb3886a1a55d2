"""From produce() to the consumer's poll, with linger 0, by librdkafka."""

from __future__ import annotations

from functools import partial

from tests.bench.clients import end_to_end
from tests.bench.consumer import Process
from tests.bench.peers import Server
from tests.bench.rows.backlog import backlog
from tests.bench.rows.row import OURS, THEIRS, Figures, Row

_UNITS = ("p50 ms", "p99 ms")
_LEAST_SECONDS = 5.0
"""The first second of a run warms up."""
_BACKLOG_MB = 400


def _steady(per_second: int, server: Server, seconds: float, turn: int) -> Figures:
    topic = f"latency-{per_second}-{turn}"
    return end_to_end(server.bootstrap, topic, per_second, max(seconds, _LEAST_SECONDS))


def _beside(server: Server, seconds: float, turn: int) -> Figures:
    reader = Process("raw", server.bootstrap, "beside", _BACKLOG_MB * 1_000, 0)
    try:
        reader.go()
        topic = f"latency-beside-{turn}"
        return end_to_end(server.bootstrap, topic, 1_000, max(seconds, _LEAST_SECONDS))
    finally:
        reader.stop()


ROWS = (
    *(
        Row("latency", f"produce to consume at {rate:,}/s", _UNITS, partial(_steady, rate))
        for rate in (100, 1_000, 5_000)
    ),
    Row(
        "latency", "produce to consume at 1,000/s beside a catch-up", _UNITS, _beside,
        partial(backlog, topic="beside", mb=_BACKLOG_MB), servers=(*OURS, THEIRS, "tansu"),
    ),
)  # fmt: skip
