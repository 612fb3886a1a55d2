"""What `quafka consume` does with records: leaves some out, and prints or counts the others."""

from __future__ import annotations

import argparse
import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from quafka.commands.forms import RecordForm
from quafka.commands.options import UsageError
from quafka.commands.records import ConsoleRecord
from quafka_client import filters, json_path
from quafka_client.errors import ClientError
from quafka_loop import clock

Chosen = Callable[[ConsoleRecord], bool]
_AGAIN_SECONDS = 1.0


def chosen(
    options: argparse.Namespace, key: RecordForm, value: RecordForm, json_of: Callable[[bytes], Any]
) -> Chosen | None:
    """Whether a record passes the filters of the flags; None: there are none.

    `key`, `value`: how they are shown; `json_of`: see `json_path.fulfilling`.

    Raises:
        UsageError: a filter is wrong.
    """
    found: list[Chosen] = []
    if options.key is not None:
        found.append(filters.with_key(options.key))
    found += [filters.with_header(each) for each in options.header]
    if options.where is not None:
        try:
            conditions = json_path.parse(options.where)
        except json_path.PathError as e:
            raise UsageError(f"--where: {e}") from e
        found.append(json_path.fulfilling(conditions, json_of))
    if options.grep is not None:
        found.append(_matching(options.grep, key, value))
    if not found:
        return None
    return lambda record: all(each(record) for each in found)


def _matching(text: str, key: RecordForm, value: RecordForm) -> Chosen:
    try:
        pattern = re.compile(text.encode())
    except re.error as e:
        raise UsageError(f"--grep: {text!r} is not a regular expression: {e}") from e

    def wanted(record: ConsoleRecord) -> bool:
        parts = ((key, record.key), (value, record.value))
        return any(
            pattern.search(form.text(data)) is not None for form, data in parts if data is not None
        )

    return wanted


class RecordView(ABC):
    """Takes the records that are read. `filters`: whether some are left out."""

    def __init__(self, wanted: Chosen | None) -> None:
        self._wanted = wanted
        self.filters = wanted is not None

    def take(self, record: ConsoleRecord) -> bool:
        """Print or count it; return False if it is left out. Raises ClientError."""
        try:
            if self._wanted is not None and not self._wanted(record):
                return False
            self._take(record)
        except ClientError as e:
            where = f"{record.topic!r}, partition {record.partition}, offset {record.offset}"
            raise ClientError(f"topic {where}: {e}") from e
        return True

    @abstractmethod
    def _take(self, record: ConsoleRecord) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Others may not come for a while."""

    def end(self) -> None:  # noqa: B027 - not every view has a last word
        """All records were taken."""


class Printing(RecordView):
    """Prints each record."""

    def __init__(self, wanted: Chosen | None, show: Callable[[ConsoleRecord], bytes]) -> None:
        super().__init__(wanted)
        self._show = show

    def _take(self, record: ConsoleRecord) -> None:
        sys.stdout.buffer.write(self._show(record))

    def flush(self) -> None:
        sys.stdout.buffer.flush()


class Counting(RecordView):
    """Prints how many there were: at the end, or with `follows` every second if they are more."""

    def __init__(self, wanted: Chosen | None, *, as_json: bool, follows: bool) -> None:
        super().__init__(wanted)
        self._as_json, self._follows = as_json, follows
        self._records = Counter[tuple[str, int]]()
        self._bytes = 0
        self._shown, self._shown_at = 0, 0.0

    def _take(self, record: ConsoleRecord) -> None:
        self._records[record.topic, record.partition] += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")

    def flush(self) -> None:
        more = self._records.total() > self._shown
        if self._follows and more and clock.monotonic() - self._shown_at >= _AGAIN_SECONDS:
            self._shown, self._shown_at = self._records.total(), clock.monotonic()
            self.end()

    def end(self) -> None:
        total = self._records.total()
        if not self._as_json:
            print(total, flush=True)
            return
        partitions = [
            {"topic": topic, "partition": number, "records": count}
            for (topic, number), count in sorted(self._records.items())
        ]
        shown = {"records": total, "bytes": self._bytes, "partitions": partitions}
        print(json.dumps(shown), flush=True)
