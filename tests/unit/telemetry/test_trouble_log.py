"""Trouble that passes by itself is no warning; trouble that stays is one."""

from __future__ import annotations

import logging

import pytest

from quafka_telemetry.trouble_log import PATIENCE_SECONDS, TroubleLog

NAME = "quafka.test.trouble"


@pytest.fixture
def trouble(caplog: pytest.LogCaptureFixture) -> TroubleLog:
    caplog.set_level(logging.INFO, NAME)
    return TroubleLog(logging.getLogger(NAME))


def test_it_becomes_a_warning_when_it_lasts(
    trouble: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (100.0, 101.0, 100.0 + PATIENCE_SECONDS, 120.0):
        trouble.note("away", now, passing=True)
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "away"),
        ("WARNING", "away"),
    ]


def test_the_end_of_trouble_is_the_end_of_its_time(
    trouble: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (0.0, 100.0):
        trouble.note("away", now, passing=True)
        trouble.over()
    assert [each.levelname for each in caplog.records] == ["INFO", "INFO"]


def test_what_will_not_pass_is_a_warning_at_once(
    trouble: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    trouble.note("drained", 0.0, passing=True)
    trouble.note("refused", 0.1, passing=False)
    trouble.note("refused", 0.2, passing=False)
    trouble.note("drained", 0.3, passing=True)
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "drained"),
        ("WARNING", "refused"),
        ("INFO", "drained"),
    ]
