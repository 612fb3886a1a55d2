"""The formats of log lines: console and JSON. Both include the fields of the current request."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from quafka_loop.log_context import log_fields

# A log record is one line even if a client's name contains line feeds or terminal escapes, and
# terminals show it in its order even if the name contains marks for the direction of text.
_LINES = (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*_LINES, *_DIRECTIONS)}


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        name = record.name.removeprefix("quafka.")
        message = record.getMessage().translate(_CONTROL)
        line = f"{at} {record.levelname.lower():8} {name}: {message}"
        about = " ".join(f"{key}={value}" for key, value in log_fields().items())
        if about:
            line += f" [{about}]"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **log_fields(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(level: str, form: str) -> None:
    """Log to standard error in a format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Console())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # One line per batch that a collector refuses, instead of one per attempt.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)


@contextmanager
def broker_logs_from(level: int) -> Generator[None]:
    """Hide the broker's log lines below a level from the user of a command."""
    log = logging.getLogger("quafka.broker")
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)
