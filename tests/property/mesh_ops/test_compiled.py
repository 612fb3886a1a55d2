"""Compiled readers accept the same values as the general ones, and return equal structs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import AnyStruct
from quafka_mesh_ops.ops.codec import from_wire, is_long, long_parts, to_wire, weight
from quafka_mesh_ops.ops.forms import LONG, form_of
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.payloads import pack, unpack
from tests.unit.mesh_ops.op_fillers import filled

STRUCTS: list[AnyStruct] = [
    each.part
    for op_type in OPS.values()
    for part_type in (op_type, op_type.response)
    for each in filled(part_type, 1, items=2)
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2) | st.binary(max_size=2)
    | st.binary(max_size=2).map(memoryview) | st.floats(allow_nan=False),  # type: ignore[arg-type]
    lambda inner: st.lists(inner, max_size=3),
)  # fmt: skip


def outcome(read: Any, values: Any) -> object:
    try:
        return read(values)
    except ProtocolError:
        return ProtocolError


def mutate(data: st.DataObject, values: list[Any]) -> None:
    """Change a value, at any depth, or how many there are."""
    nested: list[Any] = [value for value in values if isinstance(value, list) and value]
    deeper: bool = bool(nested) and data.draw(st.booleans())
    if deeper:
        mutate(data, data.draw(st.sampled_from(nested)))
        return
    change = data.draw(st.sampled_from(("replace", "drop", "append")))
    if change == "append" or not values:
        values.append(data.draw(VALUES))
    elif change == "drop":
        values.pop()
    else:
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(VALUES)


@given(st.data(), st.sampled_from(STRUCTS), st.integers(0, 3))
def test_mutated_values(data: st.DataObject, struct: AnyStruct, changes: int) -> None:
    values = unpack(pack(to_wire(struct)))
    for _ in range(changes):
        mutate(data, values)
    kind = type(struct)
    found = outcome(lambda wire: from_wire(kind, wire), values)
    assert found == outcome(form_of(kind).read, values)
    if not changes:
        assert found == struct


def test_nil_in_place_of_any_value() -> None:
    for struct in STRUCTS:
        kind = type(struct)
        values: list[Any] = unpack(pack(to_wire(struct)))
        for place in range(len(values)):
            changed = [*values[:place], None, *values[place + 1 :]]
            found = outcome(lambda wire, kind=kind: from_wire(kind, wire), changed)
            assert found == outcome(form_of(kind).read, changed)


@given(VALUES, st.sampled_from(STRUCTS))
def test_any_values(values: Any, struct: AnyStruct) -> None:
    kind = type(struct)
    found = outcome(lambda wire: from_wire(kind, wire), values)
    assert found == outcome(form_of(kind).read, values)


def test_lengths_of_every_struct() -> None:
    for op_type in OPS.values():
        for part_type in (op_type, op_type.response):
            for items in (1, LONG - 1, LONG):
                for struct in [each.part for each in filled(part_type, 1, items=items)]:
                    assert is_long(struct) == bool(long_parts(struct))
                    values = [getattr(struct, name) for name in form_of(type(struct)).names]
                    lists = [value for value in values if isinstance(value, list)]
                    assert weight(struct) == 256 * sum(map(len, lists))
