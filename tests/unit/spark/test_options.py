"""Values of options that are refused, as by Kafka's source, and options that are ignored."""

from __future__ import annotations

import pytest

from pyspark_quafka.errors import QuafkaOptionError
from pyspark_quafka.options import read_options


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("assign", '{"orders": "01"}', '"01" is not a list'),
        ("assign", '{"orders": [0.7]}', "0.7 is not a whole number"),
        ("assign", "3", r'JSON as in {"orders": \[0, 1\]} \(3 is not an object'),
        ("assign", "orders:0", "JSON as in"),
        ("subscribePattern", " ", "it is empty"),
        ("startingOffsets", "latest", "allowed is earliest or JSON as in"),
        ("startingOffsets", '{"orders": {"0": -1, "1": 0}}', "-1 for orders-0 is not an offset"),
        ("startingOffsets", '{"orders": {"0": 1.5, "1": 0}}', "1.5 is not a whole number"),
        ("startingOffsets", '{"orders": {"0": true, "1": 0}}', "true is not a whole number"),
        ("startingOffsets", '{"orders": [0, 1]}', r"\[0, 1\] is not an object"),
        ("startingOffsets", '{"orders": {"0": 1, "0": 5, "1": 0}}', "has a duplicate name"),
        ("endingOffsets", "earliest", "allowed is latest or JSON as in"),
        ("endingOffsets", '{"orders": {"0": -2, "1": 0}}', "-2 for orders-0 is not an offset"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": -1, "1": 0}}', "-1 for .* is not a time"),
    ],
)
def test_what_kafka_s_source_refuses_is_refused(option: str, value: str, told: str) -> None:
    given = {"path": "x", option: value}
    if option not in ("assign", "subscribePattern"):
        given["subscribe"] = "orders"
    with pytest.raises(QuafkaOptionError, match=told):
        read_options(given)


def test_what_only_streams_use_is_ignored_in_batches_as_by_kafka_s_source() -> None:
    given = {"path": "x", "subscribe": "orders", "maxOffsetsPerTrigger": "5"}
    assert read_options(given).starting.bound == "earliest"
