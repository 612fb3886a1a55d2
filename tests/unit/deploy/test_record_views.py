"""What `quafka consume` leaves out, and how it shows and counts the rest."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from quafka.cli import main
from quafka.commands import declare_records
from quafka.commands.forms import FORMS_BY_NAME, form
from quafka.commands.options import UsageError
from quafka.commands.records import ConsoleRecord, as_line, from_line, template
from quafka.commands.views import Counting, Printing, chosen
from quafka_client.errors import ClientError

RECORD = ConsoleRecord("t", 3, 7, 1_700, b"k1", b'{"id": 7, "name": "\xc3\xb3"}', [("src", b"web")])


def options(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    declare_records.consume(parser)
    return parser.parse_args(["-t", "t", *flags])


def passes(*flags: str, record: ConsoleRecord = RECORD) -> bool:
    raw = form("raw")
    wanted = chosen(options(*flags), raw, raw, json.loads)
    assert wanted is not None
    return wanted(record)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--key", "k"], True),
        (["--key", "=k"], False),
        (["--header", "src"], True),
        (["--header", "src=web", "--header", "src~e"], True),
        (["--header", "src=web", "--header", "other"], False),
        (["--where", "id>=7 and name=ó"], True),
        (["--where", "id>7"], False),
        (["--grep", "^k[0-9]$"], True),
        (["--grep", '"id": 7'], True),
        (["--grep", "ó"], True),
        (["--grep", "web"], False),
        (["--key", "k", "--where", "id=8"], False),
    ],
)
def test_a_record_passes_all_filters(flags: list[str], found: bool) -> None:
    assert passes(*flags) is found


def test_a_tombstone_passes_filters_of_keys_only() -> None:
    tombstone = ConsoleRecord("t", 0, 0, 0, b"k1")
    assert passes("--key", "k1", record=tombstone)
    assert not passes("--where", "$", record=tombstone)
    assert not passes("--grep", "x", record=tombstone)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--where", "id = "], "--where: the value filter, character 6: expected a value"),
        (["--grep", "("], "--grep: '(' is not a regular expression: missing )"),
    ],
)
def test_a_filter_that_is_wrong(flags: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as wrong:
        passes(*flags)
    assert str(wrong.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "data", "text", "fields"),
    [
        ("raw", b"\xff", b"\xff", {"v": None, "v_base64": "/w=="}),
        ("raw", b"x", b"x", {"v": "x"}),
        ("hex", b"\x0a\xff", b"0aff", {"v": None, "v_hex": "0aff"}),
        ("base64", b"x", b"eA==", {"v": None, "v_base64": "eA=="}),
        ("json", b'{"a":\n1}', b'{"a": 1}', {"v": {"a": 1}}),
        ("json", b"x", b'"x"', {"v": "x"}),
        ("json", b'"\\ud800"', b'"\\ud800"', {"v": "\ud800"}),
        ("json", b"NaN", b'"NaN"', {"v": "NaN"}),
        ("json", b"[1e999]", b'"[1e999]"', {"v": "[1e999]"}),
        ("json", b"[1.5]", b"[1.5]", {"v": [1.5]}),
        ("json", b"\xff", b'{"base64": "/w=="}', {"v": None, "v_base64": "/w=="}),
    ],
)
def test_forms(name: str, data: bytes, text: bytes, fields: dict[str, Any]) -> None:
    assert (form(name).text(data), form(name).fields("v", data)) == (text, fields)


def test_half_of_a_surrogate_pair_is_json_but_not_utf_8() -> None:
    line = as_line(ConsoleRecord("t", value=b'"\\ud800"'), value=form("json"))
    assert json.loads(line)["value"] == "\ud800"


def test_every_form_but_json_can_be_read_again_exactly() -> None:
    assert tuple(FORMS_BY_NAME) == declare_records.FORMS
    for name in ("raw", "hex", "base64"):
        record = ConsoleRecord("t", key=b"k", value=b"\x00\xff", headers=[("h", b"\xfe")])
        assert from_line(as_line(record, form(name), form(name)), "t") == record
    spaced = ConsoleRecord("t", value=b'{"a":   1}')
    assert from_line(as_line(spaced, form("json"), form("json")), "t").value == b'{"a": 1}'


def test_sizes_in_a_template_are_those_of_the_record() -> None:
    shown = template("%k %s %K %S", form("hex"), form("base64"))
    assert shown(ConsoleRecord("t", key=b"k", value=b"vv")) == b"6b dnY= 1 2"


def test_what_cannot_be_shown_is_named_by_its_place() -> None:
    def fail(_record: ConsoleRecord) -> bytes:
        raise ClientError("the registry does not have schema 9")

    with pytest.raises(ClientError) as failed:
        Printing(None, fail).take(RECORD)
    assert str(failed.value) == (
        "topic 't', partition 3, offset 7: the registry does not have schema 9"
    )


def test_counts(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = chosen(options("--key", "k"), form("raw"), form("raw"), json.loads)
    for as_json in (False, True):
        counting = Counting(wanted, as_json=as_json, follows=False)
        for partition, key in ((1, b"k1"), (0, b"k2"), (1, b"k3"), (0, b"x")):
            taken = counting.take(ConsoleRecord("t", partition, key=key, value=b"12345"))
            assert taken is (key != b"x")
        counting.flush()
        counting.end()
    text, document = capsys.readouterr().out.splitlines()
    assert text == "3"
    assert json.loads(document) == {
        "records": 3,
        "bytes": 21,
        "partitions": [
            {"topic": "t", "partition": 0, "records": 1},
            {"topic": "t", "partition": 1, "records": 2},
        ],
    }


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("--follow -e", "--follow reads on at the end"),
        ("--until end -g readers", "--until cannot be combined with --group"),
        ("--count -g readers", "--count cannot be combined with --group"),
        ("--registry-user me", "needs --registry URL, or $QUAFKA_REGISTRY"),
        ("--registry http://127.0.0.1 --registry-password-file nowhere", "No such file"),
    ],
)
def test_flags_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, sentence: str
) -> None:
    monkeypatch.delenv("QUAFKA_REGISTRY", raising=False)
    assert main(["consume", "-t", "t", *command.split()]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["ftp://h", "http://", "http://u:hush@h", "http://h:x", "http://h?a"]
)
def test_urls_of_registries_without_secrets(capsys: pytest.CaptureFixture[str], url: str) -> None:
    with pytest.raises(SystemExit):
        main(["consume", "-t", "t", "--registry", url])
    shown = capsys.readouterr().err
    assert "is not http(s)://HOST[:PORT][/PATH]" in shown
    assert "hush" not in shown
