"""The table of the benchmarks: medians, ratios, and servers that are not measured."""

from __future__ import annotations

import pytest

from tests.bench.kafka import ROWS
from tests.bench.peers import Server
from tests.bench.rows.row import Figures, Row, number, table

FSYNCED, OURS, THEIRS = (
    Server(name, "127.0.0.1:1", ()) for name in ("quafka-fsynced", "quafka", "kafka")
)


def lines(capsys: pytest.CaptureFixture[str], rows: list[Row], *servers: Server) -> list[str]:
    table(rows, servers, seconds=1.0, rounds=3)
    return capsys.readouterr().out.split("\n")[3:-1]


def test_medians_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"quafka-fsynced": (2.0, 8.0, 4.0), "quafka": (1.0, 1.0, 1.0), "kafka": (2.0, 2.0, 2.0)}

    def measure(server: Server, _seconds: float, turn: int) -> Figures:
        return (seen[server.name][turn], 1_234.5)

    row = Row("loads", "one", ("ms", "µs"), measure)
    assert lines(capsys, [row], FSYNCED, OURS, THEIRS) == [
        "| one: ms / µs | 4.00 / 1,234 | 1.00 / 1,234 | 2.00 / 1,234 | 2.00 / 1.00 |"
    ]


def test_one_column_where_the_fsync_makes_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = Row("idle", "one", ("ms",), lambda *_: (10.0,), fsync_matters=False)
    assert lines(capsys, [row], FSYNCED, OURS, THEIRS) == ["| one: ms | 10.0 | – | 10.0 | 1.00 |"]


def test_a_failing_server_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(server: Server) -> None:
        if server is THEIRS:
            raise RuntimeError("no")

    row = Row("loads", "one", ("ms",), lambda *_: (0.5,), prepare)
    assert lines(capsys, [row], OURS, THEIRS) == ["| one: ms | 0.50 | – | – |"]


def test_without_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("loads", "one", ("ms",), lambda *_: (0.5,))
    assert lines(capsys, [row], OURS) == ["| one: ms | 0.50 | – |"]


@pytest.mark.parametrize(("value", "text"), [(0.126, "0.13"), (12.34, "12.3"), (1_234.6, "1,235")])
def test_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_names_of_rows_are_distinct() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
