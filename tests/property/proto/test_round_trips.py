"""Encoded messages decode to themselves; any other bytes to a message or Malformed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from quafka_proto import codec
from quafka_proto.codec import decode, decode_in_steps, encode, encode_in_steps
from quafka_proto.errors import Malformed, UnsupportedVersion
from quafka_proto.headers import decode_request_header
from quafka_proto.message import Message
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.property.proto.messages import CASES, messages
from tests.support.suites import examples, share

T = TypeVar("T")
FEW = examples(8, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("message", "version"), CASES)
def test_round_trip(message: type[Message], version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_LONG", 2)  # so that nested lists are encoded in steps, too
    monkeypatch.setattr(codec, "_PIECE", 50)

    @FEW
    @given(messages(message, version))
    def holds(value: Message) -> None:
        data = b"".join(encode(value, version))
        assert decode(message, version, data) == value
        assert b"".join(run(encode_in_steps(value, version))) == data
        assert run(decode_in_steps(message, version, data)) == (value, len(data))

    holds()


def run(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def in_steps(message: type[Message], version: int, data: bytes) -> Message:
    """As `decode`, which it must agree with."""
    found, at = run(decode_in_steps(message, version, data))
    if at != len(data):
        raise Malformed("more")
    return found


@pytest.mark.parametrize(("message", "version"), CASES)
def test_every_truncation_and_any_more_is_malformed(message: type[Message], version: int) -> None:
    chance = random.Random(f"{message.__name__}{version}")
    data = b"".join(encode(example(message, version, chance), version))
    for size in range(len(data)):
        with pytest.raises(Malformed):
            decode(message, version, data[:size])
    with pytest.raises(Malformed, match="followed by 1 bytes"):
        decode(message, version, data + b"\0")


@pytest.mark.parametrize(("message", "version"), CASES)
def test_damaged_bytes_give_a_message_or_malformed(message: type[Message], version: int) -> None:
    chance = random.Random(f"{message.__name__}{version}")
    for _ in range(4):
        data = b"".join(encode(example(message, version, chance), version))
        for _ in range(share(40)):
            bad = damaged(data, chance)
            assert outcome(in_steps, message, version, bad) == outcome(
                decode, message, version, bad
            )


def outcome(read: Any, message: type[Message], version: int, data: bytes) -> bytes | None:
    """The decoded message as bytes, as nan is not equal to itself; None: it is malformed."""
    try:
        return b"".join(encode(read(message, version, data), version))
    except Malformed:
        return None


def test_a_long_request_is_decoded_in_many_steps() -> None:
    topics = [MetadataRequestTopic(name=f"t{i}") for i in range(1_000)]
    data = b"".join(encode(MetadataRequest(topics=topics), 13))
    steps = decode_in_steps(MetadataRequest, 13, data)
    assert sum(1 for _ in steps) == 1_000 // 32


def test_a_struct_has_a_bounded_number_of_tagged_fields() -> None:
    many = b"".join(bytes((100, 0)) for _ in range(1_001))  # number 100, of no bytes
    body = b"".join(encode(MetadataRequest(topics=[]), 13))
    assert body[-1] == 0
    few = body[:-1] + b"\xe8\x07" + many[:-2]
    assert decode(MetadataRequest, 13, few) == MetadataRequest(topics=[])
    with pytest.raises(Malformed, match="too many tagged fields"):
        decode(MetadataRequest, 13, body[:-1] + b"\xe9\x07" + many)


@examples(300)
@given(st.binary(max_size=60), st.sampled_from(CASES))
def test_any_bytes_give_a_message_or_malformed(
    data: bytes, case: tuple[type[Message], int]
) -> None:
    with contextlib.suppress(Malformed):
        decode(*case, data)


@examples(300)
@given(st.binary(max_size=40), st.sampled_from(CASES))
def test_any_bytes_give_a_header_or_an_error(data: bytes, case: tuple[type[Message], int]) -> None:
    message, version = case
    known = message.api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    for frame in (data, known + data):
        with contextlib.suppress(Malformed, UnsupportedVersion):
            header, at = decode_request_header(frame)
            assert 10 <= at <= len(frame)
            assert header.client_id is None or isinstance(header.client_id, str)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with some changed, cut out or put in."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        action = chance.randrange(4)
        if action == 0:
            out[at : at + 1] = bytes(
                [chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))]
            )
        elif action == 1:
            del out[at : at + chance.randint(1, 8)]
        elif action == 2:
            out[at:at] = chance.randbytes(chance.randint(1, 8))
        else:
            out[at : at + 4] = chance.choice(
                (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x0f")
            )
    return bytes(out)


def example(owner: type[Any], version: int, chance: random.Random) -> Any:
    """A message with items in every array, for much to damage."""
    flexible = version in owner.flexible if hasattr(owner, "flexible") else True
    values = {
        name: _filled(field, version, chance)
        for name, field in owner.FIELDS.items()
        if version in field.versions and (field.tag is None or flexible)
    }
    return owner(**values)


def _filled(field: Any, version: int, chance: random.Random) -> Any:
    if field.kind == "array":
        return [_filled(field.element, version, chance) for _ in range(2)]
    if field.kind == "struct":
        return example(field.element, version, chance)
    simple = {"?": True, "16s": chance.randbytes(16), "string": "name", "records": b"records"}
    simple |= {"bytes": b"bytes", "d": 1.5}
    return simple.get(field.kind, chance.randrange(100))
