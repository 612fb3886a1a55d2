"""Help of the programs in two lengths, which follow from the settings' declarations."""

from __future__ import annotations

import re

import pytest

from quafka.cli import main
from quafka.flags import TOPICS, topic_of
from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import declared, flag

_FLAG = re.compile(r"^  (--[a-z0-9-]+)", re.MULTILINE)
_NO_SETTING = ["--config", "--help-all"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert not shown.err
    return shown.out


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("command", [(), ("config",)])
@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_help_shows_what_most_people_use_and_where_the_rest_is(
    capsys: pytest.CaptureFixture[str], program: str, command: tuple[str, ...], asked: str
) -> None:
    shown = printed(capsys, *command, program, asked)
    known = declared(PROGRAMS[program])
    briefs = [flag(name) for name in known if known[name].brief]
    assert sorted(_FLAG.findall(shown)) == sorted([*briefs, "--config"])
    assert min(10, len(known) // 2) <= len(briefs) <= 19
    lines = shown.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100, "one line each"
    said = f"{len(briefs)} of {len(known)} settings; quafka {' '.join((*command, program))}"
    assert lines[-1] == f"{said} --help-all shows all of them"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("command", [(), ("config",)])
def test_help_all_shows_every_flag_once_by_topic(
    capsys: pytest.CaptureFixture[str], program: str, command: tuple[str, ...]
) -> None:
    shown = printed(capsys, *command, program, "--help-all")
    by_topic: dict[str, list[str]] = {}
    topic = ""
    for line in shown.splitlines():
        if re.fullmatch(r"\S.*:", line):
            topic = line[:-1]
        by_topic.setdefault(topic, []).extend(_FLAG.findall(line))
    assert by_topic.pop("options") == _NO_SETTING
    expected: dict[str, list[str]] = {}
    for name in declared(PROGRAMS[program]):
        expected.setdefault(topic_of(name), []).append(flag(name))
    by_topic.pop("")
    assert by_topic == expected
    assert list(by_topic) == [topic for topic in TOPICS if topic in expected]


def test_an_unknown_flag_leads_to_the_help_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    for command, last in (
        ("up --store-timout-ms 3s", "see quafka up --help-all"),
        ("config broker --store-timout-ms 3s", "see quafka config broker --help-all"),
        ("topics list --jsn", "see quafka topics list --help"),
    ):
        with pytest.raises(SystemExit):
            main(command.split())
        assert capsys.readouterr().err.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("field", "topic"),
    [
        ("listen", "Kafka clients"),
        ("listener_org", "security"),
        ("wal_fsync", "log"),
        ("wal_object_bytes", "object store"),
        ("log_level", "operations and telemetry"),
        ("group_share_max_size", "share groups"),
        ("connections_max_idle_ms", "Kafka clients"),
        ("connections_max_reauth_ms", "security"),
    ],
)
def test_the_longest_beginning_of_a_name_decides(field: str, topic: str) -> None:
    assert topic_of(field) == topic


def test_every_beginning_is_needed() -> None:
    """Without it, a setting has another topic or none: the table has no dead entries."""
    names = list(known_to_any())
    for topic, starts in TOPICS.items():
        for start in starts:
            decided = [name for name in names if name.startswith(start)]
            assert any(topic_of(name) == topic for name in decided), start


def test_a_setting_without_a_topic_is_an_error() -> None:
    with pytest.raises(ValueError, match="no topic for zebra_ms"):
        topic_of("zebra_ms")
