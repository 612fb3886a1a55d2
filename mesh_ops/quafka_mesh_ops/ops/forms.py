"""The fields of op types, and how each field's value is checked and converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, cast, get_args, get_origin, get_type_hints

from quafka_loop.garbage import without_gc
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import Buffer, WireStruct

BUFFERS = (bytes, memoryview, bytearray)
"""The types of a Buffer. Which of them it is depends on how the payload was read (by_reference)."""
LONG = 256
"""Items of a list from which on an op is written and read in steps."""
_MANY = 1_000
"""Items of a list from which on it is read without collecting garbage."""

_Read = Callable[[Any], Any]
_SCALARS: dict[object, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    bool: (bool,),
    Buffer: BUFFERS,
}


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of one type, in the order of declaration.

    Attributes:
        readers: check one msgpack value each, and convert it to the declared type.
        listed: the item types of the fields that are lists of structs, by position.
    """

    struct_type: type[WireStruct]
    names: tuple[str, ...]
    hints: tuple[Any, ...]
    readers: tuple[_Read, ...]
    listed: dict[int, type[WireStruct]]

    def read(self, values: object) -> Any:
        """Make a struct of values. Values that follow the known ones are ignored.

        Raises:
            ProtocolError: not an array, too few values, or one of the wrong type.
        """
        items = self.array(values)
        return self.make([read(v) for read, v in zip(self.readers, items, strict=False)])

    def array(self, values: object) -> list[Any]:
        """Return the values of an array. Raises ProtocolError."""
        if not isinstance(values, list):
            raise ProtocolError(f"{self.struct_type.__name__} is not an array")
        return cast("list[Any]", values)

    def make(self, values: list[Any]) -> Any:
        """Make a struct of converted values. Raises ProtocolError if there are too few."""
        try:
            return self.struct_type(*values)
        except TypeError as e:
            raise ProtocolError(f"{self.struct_type.__name__}: {e}") from e


_forms: dict[type[WireStruct], Form] = {}


def form_of(struct_type: type[WireStruct]) -> Form:
    """Return the form of a type."""
    form = _forms.get(struct_type)
    if form is None:
        declared = get_type_hints(struct_type)
        names = tuple(field.name for field in fields(cast(Any, struct_type)))
        hints = tuple(declared[name] for name in names)
        listed = {place: kind for place, hint in enumerate(hints) if (kind := _listed(hint))}
        readers = tuple(_reader(hint, name) for hint, name in zip(hints, names, strict=True))
        form = _forms[struct_type] = Form(struct_type, names, hints, readers, listed)
    return form


def _listed(hint: Any) -> type[WireStruct] | None:
    """Return the item type of a list of structs, which may be optional; None for other types."""
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return item if isinstance(item, type) and issubclass(item, WireStruct) else None
    return next((kind for each in get_args(hint) if (kind := _listed(each)) is not None), None)


def _reader(hint: Any, name: str) -> _Read:
    scalar = _SCALARS.get(hint)
    if scalar is not None:
        return _scalar_reader(scalar, name)
    if hint is bytes:
        return _bytes_reader(name)
    if hint is float:
        return _float_reader(name)
    if get_origin(hint) is list:
        (item_hint,) = get_args(hint)
        if item_hint in (int, str, bool):
            return _plain_list_reader(item_hint, name)
        return _list_reader(_reader(item_hint, name), name)
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return lambda value: form_of(hint).read(value)
    present = [arg for arg in get_args(hint) if arg is not type(None)]
    if len(present) == 1:
        read = _reader(present[0], name)
        return lambda value: None if value is None else read(value)
    raise AssertionError(f"no wire form for {hint} ({name})")


def _scalar_reader(allowed: tuple[type, ...], name: str) -> _Read:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return value

    return read


def _bytes_reader(name: str) -> _Read:
    def read(value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if type(value) not in BUFFERS:
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return bytes(value)

    return read


def _float_reader(name: str) -> _Read:
    def read(value: Any) -> float:
        if type(value) is not float and type(value) is not int:  # a whole number may come as one
            raise ProtocolError(f"{name} has type {type(value).__name__}")
        return float(value)

    return read


def _plain_list_reader(kind: type, name: str) -> _Read:
    """Reads 100,000 numbers in a millisecond."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        items = cast("list[Any]", value)
        for found in set(map(type, items)):
            if found is not kind:
                raise ProtocolError(f"{name} has type {found.__name__}")
        return items

    return read


def _list_reader(read_item: _Read, name: str) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ProtocolError(f"{name} is not an array")
        return read_each(read_item, cast("list[Any]", value))

    return read


def read_each(read: _Read, items: list[Any]) -> list[Any]:
    """Convert every item of a list."""
    if len(items) < _MANY:
        return [read(item) for item in items]
    with without_gc():
        return [read(item) for item in items]
