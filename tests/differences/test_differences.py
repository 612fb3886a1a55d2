"""Quafka beside Apache Kafka 4.4: every difference has a reason, and every reason is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences.differences import differences
from tests.differences.known import table
from tests.support.java import JAVA_TOOLS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


@pytest.mark.long
@JAVA_TOOLS
def test_every_difference_has_a_reason(tmp_path: Path) -> None:
    found = list(differences(tmp_path))
    assert found, "at least what is different by intention"
    assert [each for each in found if not each.why] == []


def test_the_reasons_are_documented() -> None:
    assert table() in PAGE.read_text(), "copy what `python -m tests.differences --table` prints"
