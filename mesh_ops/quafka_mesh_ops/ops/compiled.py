"""Functions that write and read one type of op, compiled from its fields on first use.

Most of the mesh's share of a small op is the work on its fields. The compiled functions handle the
usual values without a call per field, and leave all others to `forms.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, get_args, get_origin

from quafka_mesh_ops.ops.base import AnyStruct, Buffer
from quafka_mesh_ops.ops.forms import BUFFERS, LONG, Form, form_of, is_struct, read_each

_BYTES_PER_ITEM = 256  # an object with a few numbers, and its reference in the list


@dataclass(frozen=True, slots=True)
class Compiled:
    """The functions of one type.

    Attributes:
        write: returns the values of a struct.
        read: makes a struct of values. Raises ProtocolError.
        is_long: whether a struct has lists so long that it must be written in steps.
        weight: estimates the bytes of memory of a struct's lists, besides their contents.
    """

    write: Callable[[Any], list[Any]]
    read: Callable[[Any], Any]
    is_long: Callable[[Any], bool]
    weight: Callable[[Any], int]


class _Table(dict[type[Any], Compiled]):
    def __missing__(self, struct_type: type[AnyStruct]) -> Compiled:
        compiled = self[struct_type] = _compile(form_of(struct_type))
        return compiled


COMPILED = _Table()
"""The functions of every type, compiled on first use: compiling all delays every start."""


def _compile(form: Form) -> Compiled:
    source = _Source(form)
    return Compiled(source.write(), source.read(), source.is_long(), source.weight())


class _Source:
    """The source of the functions of one type."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._scope: dict[str, Any] = {
            "struct_type": form.struct_type, "read_all": form.read, "read_each": read_each,
            "BUFFERS": BUFFERS,
        }  # fmt: skip

    def write(self) -> Callable[[Any], list[Any]]:
        values = _written_struct(self._form, "struct", 0)
        return self._made(f"def made(struct):\n return {values}")

    def is_long(self) -> Callable[[Any], bool]:
        checks: list[str] = []
        for place, kind in self._form.listed.items():
            name = f"struct.{self._form.names[place]}"
            long = f"len({name}) >= {LONG}"
            if form_of(kind).may_be_long:
                long += f" or any(map({self._name('is_long', COMPILED[kind].is_long)}, {name}))"
            checks.append(f"{name} and ({long})")
        for place, kind in self._form.nested.items():
            name = f"struct.{self._form.names[place]}"
            checks.append(f"{name} and {self._name('is_long', COMPILED[kind].is_long)}({name})")
        return self._made(f"def made(struct):\n return bool({' or '.join(checks) or False})")

    def weight(self) -> Callable[[Any], int]:
        lengths: list[str] = []
        for name, hint in zip(self._form.names, self._form.hints, strict=True):
            value = f"len(struct.{name})"
            if get_origin(hint) is list:
                lengths.append(value)
            elif any(get_origin(arg) is list for arg in get_args(hint)):
                lengths.append(f"({value} if struct.{name} else 0)")
        total = f"{_BYTES_PER_ITEM} * ({' + '.join(lengths)})" if lengths else "0"
        return self._made(f"def made(struct):\n return {total}")

    def read(self) -> Callable[[Any], Any]:
        """Values that are not exactly as declared, also if they are only fewer or more, are left to
        `Form.read`, which knows the errors."""
        places = range(len(self._form.names))
        names = ", ".join(f"v{place}" for place in places)
        checks: list[str] = [f"len(values) == {len(places)}"]
        lines: list[str] = []
        for place in places:
            hint, value = self._form.hints[place], f"v{place}"
            optional = _present(hint)
            check = self._check(hint if optional is None else optional, value)
            checks.append(check if optional is None else f"({value} is None or {check})")
            lines += self._conversion(hint if optional is None else optional, value, place)
        unpacked = f"  {names}, = values\n" if names else ""
        return self._made(
            "def made(values):\n"
            f" if type(values) is list and {checks[0]}:\n"
            f"{unpacked}"
            f"  if {' and '.join(checks[1:]) or True}:\n"
            + "".join(f"   {line}\n" for line in lines)
            + f"   return struct_type({', '.join(f'v{each}' for each in self._form.places)})\n"
            " return read_all(values)"
        )

    def _check(self, hint: Any, value: str) -> str:
        """The condition under which the value can be converted by `_conversion`."""
        if hint is Buffer:
            return f"type({value}) in BUFFERS"
        if get_origin(hint) is list:
            return f"type({value}) is list"
        if is_struct(hint):
            return f"{value} is not None"  # its own reader checks the rest
        return f"type({value}) is {hint.__name__}"

    def _conversion(self, hint: Any, value: str, place: int) -> list[str]:
        if get_origin(hint) is list:
            (item,) = get_args(hint)
            if item is Buffer:
                return [f"for each in {value}:", " if type(each) not in BUFFERS:",
                        "  return read_all(values)"]  # fmt: skip
            if is_struct(item):
                read = self._name("read", COMPILED[item].read)
                return [f"if {value}: {value} = read_each({read}, {value})"]
            read = self._name("read", self._form.readers[place])
            return [f"if {value}: {value} = {read}({value})"]
        if is_struct(hint):
            read = self._name("read", COMPILED[hint].read)
            return [f"if {value} is not None: {value} = {read}({value})"]
        return []

    def _name(self, stem: str, value: Any) -> str:
        """Add `value` to the scope. Returns its name there."""
        name = f"{stem}{len(self._scope)}"
        self._scope[name] = value
        return name

    def _made(self, text: str) -> Callable[[Any], Any]:
        exec(text, self._scope)  # noqa: S102 - built from our own declarations
        return cast("Callable[[Any], Any]", self._scope.pop("made"))


def _present(hint: Any) -> Any:
    """The type of an optional field's value, if it has one; None for other fields."""
    args = get_args(hint)
    if type(None) not in args:
        return None
    (present,) = [arg for arg in args if arg is not type(None)]
    return present


def _written_struct(form: Form, struct: str, depth: int) -> str:
    fields = zip(form.names, form.hints, strict=True)
    return f"[{', '.join(_written(hint, f'{struct}.{name}', depth) for name, hint in fields)}]"


def _written(hint: Any, value: str, depth: int) -> str:
    """The expression for the wire form of a value."""
    present = _present(hint)
    if present is not None:
        written = _written(present, value, depth)
        return value if written == value else f"(None if {value} is None else {written})"
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        each = f"i{depth}"
        written = _written(item, each, depth + 1)
        return value if written == each else f"[{written} for {each} in {value}]"
    if is_struct(hint):
        return _written_struct(form_of(hint), value, depth)
    return value
