"""Classes from descriptions: construction, comparison, repr."""

from __future__ import annotations

import pytest

from quafka_proto.message import Request, Struct, Versions, array, int32, records, string
from quafka_proto.schema.delegation_tokens import DescribedDelegationToken
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from quafka_proto.schema.sasl import SaslAuthenticateRequest
from quafka_proto.schema.scram import ScramCredentialUpsertion


class Item(Struct):
    name: str = string()
    amount: int = int32(default=7)


class Box(Struct):
    items: list[Item] = array(Item)


class Nothing(Struct):
    pass


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", (3,), (2, 4)), ("2-4", (2, 3, 4), (1, 5)), ("12+", (12, 32767), (11,))],
)
def test_versions(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_fields_have_defaults_and_take_values_by_name_or_position() -> None:
    assert (Item().name, Item().amount) == ("", 7)
    assert Item("a", amount=2) == Item(name="a", amount=2)


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Box(), Box()
    first.items.append(Item())
    assert second.items == []


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError):
        Item(colour=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Nothing(colour=1)
    with pytest.raises(AttributeError):
        Item().colour = 1  # type: ignore[attr-defined]


def test_secrets_are_not_shown() -> None:
    assert (
        repr(SaslAuthenticateRequest(b"password")) == "SaslAuthenticateRequest(auth_bytes=<secret>)"
    )
    token = DescribedDelegationToken(token_id="id", hmac=b"key")
    assert repr([token]) == "[DescribedDelegationToken(token_id='id', hmac=<secret>)]"
    user = ScramCredentialUpsertion(name="ann", salt=b"salt", salted_password=b"password")
    assert repr(user) == (
        "ScramCredentialUpsertion(name='ann', salt=<secret>, salted_password=<secret>)"
    )


def test_equal_where_type_and_fields_are() -> None:
    assert Item("a") == Item("a")
    assert Item("a") != Item("b")
    assert Item() != Box()
    assert Nothing() == Nothing()
    assert PartitionData(records=b"abc") == PartitionData(records=memoryview(b"abc"))


def test_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Item())


def test_shown_without_defaults() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    assert repr(request) == (
        "FetchRequest(topics=[FetchTopic(topic='t', partitions=[FetchPartition(partition=3)])])"
    )


def test_record_bytes_are_shown_by_their_size() -> None:
    assert repr(PartitionData(records=bytes(100))) == "PartitionData(records=<100 bytes>)"
    shown = repr(PartitionData(records=[bytes(100), memoryview(bytes(50))]))
    assert shown == "PartitionData(records=[<100 bytes>, <50 bytes>])"


def test_a_message_field_may_be_called_key_but_not_as_the_description_is() -> None:
    class Find(Request):
        key: str = string()

    assert Find(key="group").key == "group"
    with pytest.raises(TypeError, match="'versions'"):

        class Wrong(Request):
            versions: str = string()  # type: ignore[assignment,misc]


def test_records_are_null_unless_given() -> None:
    assert PartitionData().records is None
    assert records().default is None
