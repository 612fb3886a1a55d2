"""What members say of their subscriptions, also those who say something else."""

from __future__ import annotations

import pytest

from quafka_broker.groups.subscription import subscribed_topics

TWO = b"\x00\x03\x00\x00\x00\x02\x00\x01a\x00\x03b-\x63\xff\xff\xff\xff"


def test_the_topics_are_found_and_what_follows_is_not_looked_at() -> None:
    assert subscribed_topics(TWO) == {"a", "b-c"}
    assert subscribed_topics(b"\x00\x00" + bytes(4)) == set()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        TWO[:5],
        TWO[:9],
        TWO[:12],
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_other_metadata_names_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
