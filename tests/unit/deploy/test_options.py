"""The notations of addresses, partitions, positions and times."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable

import pytest

from quafka.cli import main
from quafka.commands import options as flags
from quafka.commands.options import UsageError
from quafka_client.positions import RequestedPosition


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h", [("h", 9092)]),
        ("h:1", [("h", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]", [("::1", 9092)]),
        ("[::1]:3", [("::1", 3)]),
    ],
)
def test_brokers(text: str, found: list[tuple[str, int]]) -> None:
    assert flags.brokers(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", [0]), ("2,0,2", [0, 2]), ("5-7,1", [1, 5, 6, 7]), ("3-3", [3])],
)
def test_partitions(text: str, found: list[int]) -> None:
    assert flags.partitions(text) == found
    assert flags.places(f"t:{text}") == ("t", found)


def test_a_topic_without_partitions_is_all_of_them() -> None:
    assert flags.places("t") == ("t", None)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert flags.timestamp(text) == ms
    for read in (flags.position, flags.start, flags.target):
        assert read(f"@{text}") == RequestedPosition("time", ms)


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        (flags.position, "17", RequestedPosition("offset", 17)),
        (flags.position, "end", RequestedPosition("end")),
        (flags.start, "-5", RequestedPosition("last", 5)),
        (flags.start, "beginning", RequestedPosition("start")),
        (flags.target, "-5", RequestedPosition("shift", -5)),
        (flags.target, "+5", RequestedPosition("shift", 5)),
        (flags.target, "5", RequestedPosition("offset", 5)),
    ],
)
def test_positions(
    read: Callable[[str], RequestedPosition], text: str, found: RequestedPosition
) -> None:
    assert read(text) == found


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (flags.brokers, ""),
        (flags.brokers, "h:x"),
        (flags.brokers, "h:0"),
        (flags.brokers, ":1"),
        (flags.brokers, "::1"),
        (flags.partitions, ""),
        (flags.partitions, "2-1"),
        (flags.partitions, "-1"),
        (flags.partitions, "0-99999999"),
        (flags.places, ":1"),
        (flags.timestamp, "yesterday"),
        (flags.position, "-5"),
        (flags.position, "+5"),
        (flags.position, "9" * 30),
        (flags.start, "+5"),
        (flags.count, "0"),
        (flags.count, "x"),
        (flags.seconds, "0"),
        (flags.seconds, "nan"),
        (flags.seconds, "inf"),
        (flags.pair, "x"),
        (flags.pair, "=x"),
    ],
)
def test_what_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(text)


def test_where_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUAFKA_BROKERS", raising=False)
    none = Namespace(brokers=None)
    assert flags.bootstrap(none) == [("localhost", 9092)]
    monkeypatch.setenv("QUAFKA_BROKERS", "there:7")
    assert flags.bootstrap(none) == [("there", 7)]
    assert flags.bootstrap(Namespace(brokers=[("here", 1)])) == [("here", 1)]
    monkeypatch.setenv("QUAFKA_BROKERS", "there:seven")
    with pytest.raises(UsageError, match="QUAFKA_BROKERS: 'there:seven' is not HOST:PORT"):
        flags.bootstrap(none)


def test_the_variable_is_no_setting_of_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUAFKA_BROKERS", "there:7")
    assert main(["config", "broker"]) == 0
    assert "there" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    ["topics list", "groups describe g", "configs set t a=b", "produce -t t", "consume -t t",
     "doctor"],
)  # fmt: skip
def test_every_client_command_takes_the_same_flags(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--brokers" in shown
    assert "--bootstrap-server" in shown
    assert "--timeout" in shown
    assert "--format" in shown
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--timeout", "soon"])
    assert ended.value.code == 2
    assert "'soon' is not a number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "consume -t \udcff", "consume -t t -g \udcff", "consume -t t --grep \udcff",
        "produce -t t -k \udcff", "produce -t t -K \udcff", "produce -t t -H \udcff=1",
        "mirror --to localhost:1 -t t --name \udcff", "groups describe \udcff",
    ],
)  # fmt: skip
def test_names_that_are_not_utf_8(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(command.split())
    assert end.value.code == 2
    assert r"b'\xff' is not UTF-8" in capsys.readouterr().err
