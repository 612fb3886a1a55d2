"""Reading by librdkafka, and by a plain socket that looks at nothing but batch headers.

Hot: a topic that fits every cache, read again and again. Catch-up: a topic that nobody has read
yet. Quafka's answers cross two processes and an encrypted connection; Kafka's are plain, from one
process. A catch-up over TLS from both stands beside it.
"""

from __future__ import annotations

from functools import cache, partial

from tests.bench.consumer import read_together
from tests.bench.peers import Server
from tests.bench.rows.backlog import backlog
from tests.bench.rows.row import OURS, THEIRS, Figures, Row

_HOT_MB, _COLD_MB = 300, 250
_KINDS = {"librdkafka": "librdkafka", "raw": "a plain socket"}
_UNITS = ("MB/s", "CPU s/GB", "its clients' CPU s/GB")


@cache
def _prepare_hot(server: Server) -> None:
    backlog(server, "hot", _HOT_MB)
    read_together("raw", server.bootstrap, "hot", _HOT_MB * 1_000, 1, 1)


def _hot(kind: str, consumers: int, server: Server, _seconds: float, _round: int) -> Figures:
    return _read(server, server.bootstrap, kind, "hot", _HOT_MB, consumers)


def _catch_up(kind: str, server: Server, _seconds: float, turn: int) -> Figures:
    topic = f"cold-{kind}-{turn}"
    backlog(server, topic, _COLD_MB)
    return _read(server, server.bootstrap, kind, topic, _COLD_MB, 1)


def _encrypted(kind: str, server: Server, _seconds: float, turn: int) -> Figures:
    topic = f"encrypted-{kind}-{turn}"
    backlog(server, topic, _COLD_MB)
    return _read(server, server.encrypted or server.bootstrap, kind, topic, _COLD_MB, 1)


def _read(server: Server, where: str, kind: str, topic: str, mb: int, consumers: int) -> Figures:
    before = server.cpu_seconds()
    seconds, clients = read_together(kind, where, topic, mb * 1_000, 1, consumers)
    read, ours = mb * consumers, server.cpu_seconds() - before
    return read / seconds, ours / read * 1e3, clients / read * 1e3


_ANYBODY = (*OURS, THEIRS, "tansu")


def _rows_of(kind: str, reader: str) -> tuple[Row, ...]:
    return (
        Row(
            "consume", f"catch-up 1 KB by {reader}", _UNITS, partial(_catch_up, kind),
            fsync_matters=False, servers=_ANYBODY,
        ),
        Row(
            "consume", f"catch-up 1 KB by {reader}, both over TLS", _UNITS,
            partial(_encrypted, kind), fsync_matters=False,
        ),
        Row(
            "consume", f"hot 1 KB by {reader}", _UNITS, partial(_hot, kind, 1), _prepare_hot,
            fsync_matters=False, servers=_ANYBODY,
        ),
        Row(
            "consume", f"hot 1 KB by 8 x {reader}", _UNITS, partial(_hot, kind, 8), _prepare_hot,
            fsync_matters=False, servers=_ANYBODY,
        ),
    )  # fmt: skip


ROWS = tuple(row for kind, reader in _KINDS.items() for row in _rows_of(kind, reader))
