"""Progress lines: what they say, and that only terminals get them."""

from __future__ import annotations

import io

import pytest

from quafka.progress import BYTES, RECORDS, ProgressLine, line
from quafka_loop import clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("unit", "done", "of", "seconds", "shown"),
    [
        (BYTES, 250_000_000, 1_000_000_000, 5.0,
         "w [#####...............]  25%  250.0 MB of 1.0 GB  50.0 MB/s  15s left"),
        (RECORDS, 500, 1_000, 2.0,
         "w [##########..........]  50%  500 of 1,000 records  250/s  2.0s left"),
        (BYTES, 0, 10, 3.0, "w [....................]   0%  0 B of 10 B  0 B/s"),
        (RECORDS, 12, 10, 1.0, "w [####################] 100%  12 of 10 records  12/s  0s left"),
    ],
)  # fmt: skip
def test_a_line(unit: str, done: int, of: int, seconds: float, shown: str) -> None:
    assert line("w", unit, done, of, seconds, 80) == shown


def test_a_narrow_terminal_gets_no_bar() -> None:
    shown = "w  50%  500 of 1,000 records  250/s  2.0s left"
    assert line("w", RECORDS, 500, 1_000, 2.0, 60) == shown
    assert line("w", RECORDS, 500, 1_000, 2.0, 10) == shown[:10]


def test_a_terminal_gets_a_line_after_a_second_and_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", out := Terminal())
    progress = ProgressLine("copying")
    progress.show(1, 10)
    assert not out.getvalue(), "short work has no line"
    clock.sleep(2.0)
    progress.show(5, 10)
    assert out.getvalue().startswith("\rcopying [##########..........]  50%")
    progress.end()
    assert out.getvalue().endswith("\r\x1b[K")


def test_elsewhere_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", out := io.StringIO())
    progress = ProgressLine("copying")
    clock.sleep(2.0)
    progress.show(5, 10)
    progress.end()
    assert not out.getvalue()
