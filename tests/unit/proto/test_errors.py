"""Error codes are Kafka's, as kio and kafka-python list them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import kafka.errors
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from quafka_proto.errors import ErrorCode

# kafka-python keeps names that Kafka has changed since.
OLDER_NAMES = {
    "UNKNOWN": ErrorCode.UNKNOWN_SERVER_ERROR,
    "NO_ERROR": ErrorCode.NONE,
    "NOT_LEADER_FOR_PARTITION": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "MESSAGE_SIZE_TOO_LARGE": ErrorCode.MESSAGE_TOO_LARGE,
    "INVALID_TOPIC": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "INVALID_REPLICATION_ASSIGNMENT": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
}


def kafka_python_errors() -> Iterator[Any]:
    base: Any = kafka.errors.BrokerResponseError
    for name, value in vars(kafka.errors).items():
        error: Any = value
        if not inspect.isclass(value) or not issubclass(value, base) or error.errno is None:
            continue
        # Neither the older aliases, nor its own with Kafka's code 35.
        if error.__name__ == name and error is not kafka.errors.IncompatibleBrokerVersion:
            yield error


KAFKA_PYTHON = list(kafka_python_errors())


def test_codes_and_names_are_kios() -> None:
    ours = {code.value: code.name for code in ErrorCode}
    theirs = {code.value: code.name.upper() for code in KioErrorCode}
    assert ours == theirs


def test_retriable_is_as_in_kio() -> None:
    wrong = {c.name for c in KioErrorCode if ErrorCode(c.value).retriable != c.retriable}
    assert wrong == set()


def test_codes_and_names_are_kafka_pythons() -> None:
    theirs = {error.errno: error.message for error in KAFKA_PYTHON}
    assert len(theirs) == len(KAFKA_PYTHON) >= 129
    for code, name in theirs.items():
        assert ErrorCode(code) == OLDER_NAMES.get(name) or ErrorCode(code).name == name


def test_retriable_is_as_in_kafka_python() -> None:
    """A corrupt message may have been damaged under way: Kafka's clients send it again."""
    other = {e.errno for e in KAFKA_PYTHON if ErrorCode(e.errno).retriable != e.retriable}
    assert other == {ErrorCode.CORRUPT_MESSAGE}


@pytest.mark.parametrize(
    ("code", "name"), [(0, "NONE"), (-1, "UNKNOWN_SERVER_ERROR"), (4242, "error 4242")]
)
def test_every_code_has_a_name(code: int, name: str) -> None:
    assert ErrorCode.name_of(code) == name
