"""The formats of log lines."""

from __future__ import annotations

import json
import logging
import os
from contextvars import copy_context

import pytest

from quafka import logs
from quafka_loop.log_context import CURRENT
from quafka_telemetry.tracing import TraceContext, trace_fields


def logged(capsys: pytest.CaptureFixture[str], form: str, message: str, *args: object) -> str:
    logs.configure("info", form)
    logging.getLogger("quafka.mesh").info(message, *args)
    return capsys.readouterr().err


def test_a_console_line_has_time_level_name_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    line = logged(capsys, "console", "peer %s refused", "ab")
    assert line.split(maxsplit=1)[1] == "info     mesh: peer ab refused\n"


@pytest.mark.parametrize(
    "hostile", ["a\nb", "a\r\x1b[31mb", "a\x9b2Jb", "a\u2028b", "a\x00b", "a\u202eb"]
)
def test_nobody_can_forge_a_line_or_colours(
    capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    line = logged(capsys, "console", "client %s", hostile)
    assert line.endswith("b\n")
    assert line[:-1].isprintable()


def test_letters_of_every_language_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(capsys, "console", "topic żółw-日本").endswith("topic żółw-日本\n")


def test_a_json_line_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    line = logged(capsys, "json", "a\n%s", "b")
    found = json.loads(line)
    assert line.count("\n") == 1
    assert found["time"].endswith("+00:00")
    del found["time"]
    assert found == {"level": "info", "logger": "quafka.mesh", "message": "a\nb"}


class Served:
    """A request in progress."""

    party = 1

    def log_fields(self) -> dict[str, str]:
        return {"request_id": "7-42", **trace_fields(TraceContext(0xAB, 0xC))}


def test_lines_about_a_request_name_it_and_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def serve(form: str) -> str:
        CURRENT.set(Served())
        return logged(capsys, form, "slow")

    line = copy_context().run(serve, "console")
    ids = f"request_id=7-42 trace_id={'0' * 30}ab span_id={'0' * 15}c"
    assert line.endswith(f"slow [{ids}]\n")
    found = json.loads(copy_context().run(serve, "json"))
    assert found["request_id"] == "7-42"
    assert (int(found["trace_id"], 16), int(found["span_id"], 16)) == (0xAB, 0xC)
    assert "request_id" not in logged(capsys, "console", "nobody's")


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_is_kept(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure("info", form)
    try:
        os.stat("/disk/gone")  # noqa: PTH116
    except OSError:
        logging.getLogger("quafka").exception("cannot go on")
    shown = capsys.readouterr().err
    assert "FileNotFoundError" in shown
    assert "test_logs.py" in shown


def test_the_level_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "console")
    logging.getLogger("quafka").info("chat")
    assert capsys.readouterr().err == ""
