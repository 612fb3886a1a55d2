"""Records as a person types them, and copies of records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.errors import ClientError
from quafka_client.partitioner import murmur2, partition_of
from quafka_console.data.messages.records import KeptBytes, ReadRecord, kept
from quafka_console.data.messages.writing import TypedBytes, TypedRecord, copied
from quafka_proto.record_codec import Record

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
NAMES = st.text(max_size=6) | st.sampled_from(["a=b", " a", "{", '{"name": "x"}', "a\nb", "", "\r"])


def test_what_is_typed_becomes_a_record() -> None:
    typed = TypedRecord(
        TypedBytes("6b", "hex"),
        TypedBytes(" /w\n== ", "base64"),
        'source=web\n\nempty=\nnull\n a=b=c \n{"name": "x=y", "value": "1\\n2"}\n'
        '{"name": "n"}\n{"name": "b", "base64": "/w=="}',
        " 3 ",
    )
    assert typed.record(7) == Record(
        0, 7, b"k", b"\xff",
        [("source", b"web"), ("empty", b""), ("null", None), ("a", b"b=c"), ("x=y", b"1\n2"),
         ("n", None), ("b", b"\xff")],
    )  # fmt: skip
    assert typed.chosen() == 3
    assert TypedRecord().chosen() is None
    assert TypedRecord(value=TypedBytes("ignored", "null")).record(0) == Record(
        0, 0, None, None, []
    )


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (TypedRecord(TypedBytes("6", "hex")), "the key is not hex"),
        (TypedRecord(value=TypedBytes("!", "base64")), "the value is not base64"),
        (TypedRecord(value=TypedBytes("\ud800")), "the value is not text"),
        (TypedRecord(headers="\ud800=1"), "the name of header 1 is not text"),
        (TypedRecord(headers='a=1\n{"name": 1}'), "header 2 is not {"),
        (TypedRecord(headers='{"value": "1"}'), "header 1 is not {"),
        (TypedRecord(headers='{"name": "a", "valu": "1"}'), "other fields"),
        (TypedRecord(headers="{"), "header 1 is not JSON"),
        (TypedRecord(headers='{"name": "a", "base64": "1"}'), "value of header 1 is not base64"),
        (TypedRecord(headers='{"a":' * 5_000), "header 1 is not JSON"),
    ],
)
def test_what_cannot_be_a_record_is_refused_with_a_sentence(
    typed: TypedRecord, sentence: str
) -> None:
    with pytest.raises(ClientError) as found:
        typed.record(0)
    assert sentence in str(found.value)


@pytest.mark.parametrize("partition", ["-1", "x", "1" * 10, "٣"])
def test_a_partition_is_a_number(partition: str) -> None:
    with pytest.raises(ClientError, match="is not a partition"):
        TypedRecord(partition=partition).chosen()


@given(BYTES, BYTES, st.lists(st.tuples(NAMES, BYTES), max_size=4))
def test_a_copy_is_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    its = [(name, kept(data)) for name, data in headers]
    typed = copied(ReadRecord(2, 7, 1_000, kept(key), kept(value), its, len(its)))
    assert typed is not None
    assert typed.record(5) == Record(0, 5, key, value, headers)
    assert typed.chosen() == 2


def test_what_is_cut_cannot_be_copied() -> None:
    cut = KeptBytes(b"x", 2)
    assert copied(ReadRecord(0, 0, 0, None, cut, ())) is None
    assert copied(ReadRecord(0, 0, 0, None, None, [("h", cut)], 1)) is None
    assert copied(ReadRecord(0, 0, 0, None, None, [("h", None)], 2)) is None
    assert copied(ReadRecord(0, 0, 0, None, None, (), mark="COMMIT")) is None


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b"21", -973932308), (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536), (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971), (b"abc", 479470107),
    ],
)  # fmt: skip
def test_the_hash_is_that_of_kafka(key: bytes, number: int) -> None:
    """The vectors of Kafka's UtilsTest.testMurmur2."""
    assert murmur2(key) == number & 0xFFFFFFFF
    assert partition_of(key, 7) == (number & 0x7FFFFFFF) % 7
