"""Error codes are Kafka's, as kio lists them (it makes its list from Kafka's)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from quafka_proto.errors import ErrorCode


def test_codes_and_names_are_kios() -> None:
    ours = {code.value: code.name for code in ErrorCode}
    theirs = {code.value: code.name.upper() for code in KioErrorCode}
    assert ours == theirs


def test_retriable_is_as_in_kio() -> None:
    wrong = {c.name for c in KioErrorCode if ErrorCode(c.value).retriable != c.retriable}
    assert wrong == set()
