"""The reader's options: the names, values and defaults of Spark's own Kafka source, and ours.

Names are case-insensitive. Options of the Kafka source that mean nothing for a
snapshot (all of `kafka.*`, consumer time-outs, group names) are accepted and ignored, so that a job
moves by changing its format. Any other unknown option is refused, with the nearest known name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from pyspark_quafka.columns import COLUMNS, HEADERS
from pyspark_quafka.errors import QuafkaOptionError

EARLIEST, LATEST = "earliest", "latest"
OLDEST_OFFSET, NEWEST_OFFSET = -2, -1
"""Earliest and latest in JSON."""
_NUMBERS = {EARLIEST: OLDEST_OFFSET, LATEST: NEWEST_OFFSET}
FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
ERROR = "error"

_SUBSCRIBE = ("subscribe", "subscribePattern", "assign")
_OUR_NAMES = ("asOf", "columns", "isolation", "mode", "org", "path")
_KAFKA_NAMES = (
    *_SUBSCRIBE, "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
    "maxOffsetsPerTrigger",
)  # fmt: skip
_IGNORED = (
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "groupIdPrefix", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "asOf")
_TABLE_OPTION = "provider"
"""Spark adds this option when a table is created."""
_NO_TABLES = (
    "there are no options: Spark does not pass those of CREATE TABLE to sources in Python. Use "
    "CREATE TEMPORARY VIEW name USING quafka OPTIONS (path '...', subscribe '...')"
)
_IGNORED_PREFIX, _STORAGE_PREFIX = "kafka.", "s3."
_ISOLATION = "kafka.isolation.level"

PerPartition = dict[str, dict[int, int]]
"""By topic and partition, as `{"orders": {"0": 23}}`."""


@dataclass(frozen=True)
class OptionPosition:
    """Where reading begins or ends, as the options give it: exactly one field is set.

    `bound` is earliest or latest; `timestamp` is for all partitions, in ms.
    """

    bound: str | None = None
    offsets: PerPartition | None = None
    timestamp: int | None = None
    timestamps: PerPartition | None = None


@dataclass(frozen=True)
class Options:
    """All options, validated."""

    path: str
    topics: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    assigned: Mapping[str, tuple[int, ...]] | None
    starting: OptionPosition
    ending: OptionPosition
    no_such_time: str
    min_partitions: int | None
    max_records: int | None
    max_offsets: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    as_of: str
    isolation: str
    mode: str
    org: int
    storage: Mapping[str, str] = field(repr=False)


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> Options:
    """Validate the options of a reader.

    Raises:
        QuafkaOptionError: an option is wrong; the message names it, and what is allowed.
    """
    _check_names(given, _BATCH_ONLY if streaming else ())
    if not given:
        raise QuafkaOptionError(_NO_TABLES)
    got = _Given(given)
    starts = ((EARLIEST, LATEST), LATEST) if streaming else ((EARLIEST,), EARLIEST)
    no_such_time = got.choice("startingOffsetsByTimestampStrategy", (ERROR, LATEST), ERROR)
    return Options(
        path=_absolute(
            got.required("path", "the DEST of `quafka snapshot create`, as in .load(PATH)")
        ),
        **_subscription(got),
        starting=_position(got, "startingOffsets", *starts),
        ending=_position(got, "endingOffsets", (LATEST,), LATEST),
        no_such_time=no_such_time,
        min_partitions=got.positive("minPartitions"),
        max_records=got.positive("maxRecordsPerPartition"),
        max_offsets=got.positive("maxOffsetsPerTrigger"),
        fail_on_data_loss=got.flag("failOnDataLoss", default=True),
        columns=_columns(got),
        as_of=got.text("asOf") or LATEST,
        isolation=got.choice(
            "isolation",
            (READ_UNCOMMITTED, READ_COMMITTED),
            got.choice(_ISOLATION, (READ_UNCOMMITTED, READ_COMMITTED), READ_UNCOMMITTED),
        ),
        mode=got.choice("mode", (FAILFAST, PERMISSIVE), FAILFAST),
        org=got.positive("org") or 1,
        storage={
            name.lower()[len(_STORAGE_PREFIX) :]: value
            for name, value in given.items()
            if name.lower().startswith(_STORAGE_PREFIX)
        },
    )


def _absolute(path: str) -> str:
    """The path as the driver resolves it: executors run in other folders."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())


def read_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options name, for a batch or a stream.

    Raises:
        QuafkaOptionError: a column or an option is unknown.
    """
    if _TABLE_OPTION in given:
        raise QuafkaOptionError(_NO_TABLES)
    _check_names(given, ())
    return _columns(_Given(given))


def _check_names(given: Mapping[str, str], refused: tuple[str, ...]) -> None:
    known = {name.lower(): name for name in (*_OUR_NAMES, *_KAFKA_NAMES, *_IGNORED)}
    for name in given:
        lower = name.lower()
        if lower.startswith((_IGNORED_PREFIX, _STORAGE_PREFIX)):
            continue
        if lower not in known:
            near = difflib.get_close_matches(lower, list(known), 1)
            meant = f"; did you mean {known[near[0]]}?" if near else ""
            names = ", ".join((*_OUR_NAMES, *_KAFKA_NAMES))
            raise QuafkaOptionError(f"there is no option {name}{meant} (options: {names})")
        if known[lower] in refused:
            raise QuafkaOptionError(f"{known[lower]} is for batches only")


Value = TypeVar("Value")


class _Given:
    """The given options by case-insensitive names; an empty value counts as given."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def required(self, name: str, what: str) -> str:
        value = self.text(name)
        if not value:
            raise QuafkaOptionError(f"{name} is missing: {what}")
        return value

    def parsed(self, name: str, parse: Callable[[str], Value], allowed: str) -> Value | None:
        """The parsed value; a ValueError from `parse` means that it is wrong."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as e:
            detail = f" ({e})" if isinstance(e, _DetailError) else ""
            raise QuafkaOptionError(f"{name} is {value!r}; allowed is {allowed}{detail}") from e

    def flag(self, name: str, *, default: bool) -> bool:
        found = self.choice(name, ("true", "false"), "true" if default else "false")
        return found == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        by_lower = {value.lower(): value for value in allowed}
        found = self.parsed(
            name, lambda text: _one_of(text.strip().lower(), by_lower), " or ".join(allowed)
        )
        return default if found is None else found

    def positive(self, name: str) -> int | None:
        return self.parsed(name, _positive, "a whole number above 0")


class _DetailError(ValueError):
    """A value is wrong for a reason that belongs in the message."""


def _one_of(text: str, allowed: Mapping[str, str]) -> str:
    if text not in allowed:
        raise ValueError(text)
    return allowed[text]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _subscription(got: _Given) -> dict[str, Any]:
    given = [name for name in _SUBSCRIBE if got.text(name) is not None]
    if len(given) != 1:
        having = f"there are {' and '.join(given)}" if given else "none of them is given"
        raise QuafkaOptionError(f"one of {', '.join(_SUBSCRIBE)} says what to read; {having}")
    return {
        "topics": got.parsed("subscribe", _names, "topics, separated by commas"),
        "pattern": got.parsed("subscribePattern", _pattern, "a regular expression"),
        "assigned": got.parsed("assign", _assigned, 'JSON as in {"orders": [0, 1]}'),
    }


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(text)
    return names


def _pattern(text: str) -> re.Pattern[str]:
    if not text.strip():
        raise _DetailError("it is empty")
    try:
        return re.compile(text)
    except re.error as e:
        raise _DetailError(str(e)) from e


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    return {
        topic: tuple(dict.fromkeys(_whole(number) for number in _list(numbers)))
        for topic, numbers in _object(text).items()
    }


def _columns(got: _Given) -> tuple[str, ...]:
    include_headers = got.flag("includeHeaders", default=False)
    all_columns = tuple(name for name in COLUMNS if include_headers or name != HEADERS)
    text = got.text("columns")
    if text is None:
        return all_columns
    by_lower = {name.lower(): name for name in all_columns}
    wanted = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in by_lower:
            hint = " (headers need includeHeaders=true)" if name == HEADERS else ""
            raise QuafkaOptionError(
                f"columns names {name!r}; allowed are {', '.join(all_columns)}{hint}"
            )
    return tuple(dict.fromkeys(by_lower[name] for name in wanted))


# --- where to begin and to end --------------------------------------------------------------


def _position(got: _Given, option: str, bounds: tuple[str, ...], default: str) -> OptionPosition:
    """The first of: one time, a time per partition, offsets. Kafka's source has the same order."""
    which = option.removesuffix("Offsets")
    timestamp = got.parsed(f"{which}Timestamp", _timestamp, "milliseconds since 1970")
    if timestamp is not None:
        return OptionPosition(timestamp=timestamp)
    timestamps = got.parsed(
        f"{option}ByTimestamp", _timestamps, 'JSON as in {"orders": {"0": 1700000000000}}'
    )
    if timestamps is not None:
        return OptionPosition(timestamps=timestamps)
    allowed = [_NUMBERS[bound] for bound in bounds]
    found = got.parsed(
        option,
        lambda text: _offsets(text, bounds),
        " or ".join((*bounds, f'JSON as in {{"orders": {{"0": 23, "1": {allowed[0]}}}}}')),
    )
    return found or OptionPosition(bound=default)


def _offsets(text: str, bounds: tuple[str, ...]) -> OptionPosition:
    if text.strip().lower() in bounds:
        return OptionPosition(bound=text.strip().lower())
    offsets = _by_partition(text)
    allowed = {_NUMBERS[bound] for bound in bounds}
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset < 0 and offset not in allowed:
                raise _DetailError(f"{offset} for {topic}-{partition} is not an offset here")
    return OptionPosition(offsets=offsets)


def _timestamp(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _timestamps(text: str) -> PerPartition:
    found = _by_partition(text)
    for topic, partitions in found.items():
        for partition, timestamp in partitions.items():
            if timestamp < 0:
                raise _DetailError(f"{timestamp} for {topic}-{partition} is not a time")
    return found


def _by_partition(text: str) -> PerPartition:
    return {
        topic: {int(number): _whole(value) for number, value in _dict(partitions).items()}
        for topic, partitions in _object(text).items()
    }


# --- JSON -----------------------------------------------------------------------------------


def _object(text: str) -> dict[str, object]:
    """A JSON object without duplicate names: the parser would silently use the last value."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _DetailError("it has a duplicate name")
        return found

    return _dict(json.loads(text, object_pairs_hook=once))


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _DetailError(f"{json.dumps(value)} is not an object")
    return cast("dict[str, object]", value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _DetailError(f"{json.dumps(value)} is not a list")
    return cast("list[object]", value)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise _DetailError(f"{json.dumps(value)} is not a whole number")
    return value
