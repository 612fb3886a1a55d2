"""Descriptions of Kafka's messages: typed, slotted classes, each declared once.

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)

    class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
        topics: list[FetchTopic] = array(FetchTopic)

In a version without a field, decoding sets the field's default and encoding leaves it out. Version
ranges are written as in Kafka's protocol documents: "3", "0-4", "12+". A field with a `tag` is a
tagged field (KIP-482) in the flexible versions of its range. `nullable` is the range of versions in
which the value may be null. `quafka_proto.codec` compiles descriptions into functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, cast, dataclass_transform

Buffer = bytes | bytearray | memoryview

_LAST = 32767
_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `high` < `low`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "3", "0-4" or "12+"."""
        if text.endswith("+"):
            return cls(int(text[:-1]), _LAST)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


_ALL = Versions(0, _LAST)
_NONE = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field's description.

    Attributes:
        kind: a fixed-width struct code such as "i", or "string", "bytes", "records", "array",
            "struct".
        tag: the tag of a tagged field, otherwise None.
        element: of an array: the item's Field; of a struct: the Struct class.
        secret: whether reprs, and so logs, omit the value.
    """

    kind: str
    default: Any
    versions: Versions = _ALL
    nullable: Versions = _NONE
    tag: int | None = None
    element: Any = None
    secret: bool = False

    def fresh_default(self) -> Any:
        """The default; a new object if it is mutable."""
        if self.default is not _UNSET:
            return self.default
        return [] if self.kind == "array" else self.element()


def _field(
    kind: str,
    versions: str | None,
    default: Any,
    nullable: str | None = None,
    tag: int | None = None,
    element: Any = None,
    secret: bool = False,
) -> Any:
    return Field(
        kind,
        default,
        Versions.parse(versions) if versions else _ALL,
        Versions.parse(nullable) if nullable else _NONE,
        tag,
        element,
        secret,
    )


def boolean(versions: str | None = None, *, default: bool = False, tag: int | None = None) -> Any:
    """BOOLEAN."""
    return _field("?", versions, default, tag=tag)


def int8(versions: str | None = None, *, default: int = 0, tag: int | None = None) -> Any:
    """INT8."""
    return _field("b", versions, default, tag=tag)


def int16(versions: str | None = None, *, default: int = 0, tag: int | None = None) -> Any:
    """INT16."""
    return _field("h", versions, default, tag=tag)


def int32(versions: str | None = None, *, default: int = 0, tag: int | None = None) -> Any:
    """INT32."""
    return _field("i", versions, default, tag=tag)


def int64(versions: str | None = None, *, default: int = 0, tag: int | None = None) -> Any:
    """INT64."""
    return _field("q", versions, default, tag=tag)


def uint16(versions: str | None = None, *, default: int = 0, tag: int | None = None) -> Any:
    """UINT16."""
    return _field("H", versions, default, tag=tag)


def float64(versions: str | None = None, *, default: float = 0.0, tag: int | None = None) -> Any:
    """FLOAT64."""
    return _field("d", versions, default, tag=tag)


def uuid(versions: str | None = None, *, tag: int | None = None) -> Any:
    """UUID, as its 16 bytes; all zeros: none."""
    return _field("16s", versions, bytes(16), tag=tag)


def string(
    versions: str | None = None,
    *,
    default: str | None = "",
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """STRING or NULLABLE_STRING, compact in flexible versions."""
    return _field("string", versions, default, nullable, tag)


def binary(
    versions: str | None = None,
    *,
    default: bytes | None = b"",
    nullable: str | None = None,
    tag: int | None = None,
    secret: bool = False,
) -> Any:
    """BYTES or NULLABLE_BYTES, compact in flexible versions. Decoded as a copy."""
    return _field("bytes", versions, default, nullable, tag, secret=secret)


def records(versions: str | None = None, *, nullable: str | None = "0+") -> Any:
    """RECORDS, which may be null except for share groups.

    Decoded as a memoryview of the frame, or None; encoded from one buffer or a list of buffers,
    which are passed on by reference.
    """
    return _field("records", versions, None if nullable else b"", nullable)


def struct(
    element: type[Struct],
    versions: str | None = None,
    *,
    default: None = _UNSET,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """A nested struct. If it is nullable, `default=None` makes null its default."""
    return _field("struct", versions, default, nullable, tag, element)


def array(
    element: Any,
    versions: str | None = None,
    *,
    default: Any = _UNSET,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """ARRAY of a Struct class, or of a field such as `int32()`."""
    item = element if isinstance(element, Field) else struct(element)
    return _field("array", versions, default, nullable, tag, item)


@dataclass_transform()
class _Description(type):
    """Creates slotted classes from field descriptions."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _Description:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        inherited: dict[str, Field] = {}
        for base in bases:
            inherited |= cast("dict[str, Field]", getattr(base, "FIELDS", {}))
        body["FIELDS"] = inherited | fields
        if fields:
            body["__init__"] = _make_init_on_first_use
            body["_values"] = attrgetter(*body["FIELDS"])
        return super().__new__(cls, name, bases, body, **options)


def _make_init_on_first_use(self: Struct, *args: Any, **named: Any) -> None:
    """Replaced by the class's `__init__` on first use: compiling all would delay every start."""
    for owner in type(self).__mro__:
        if owner.__dict__.get("__init__") is _make_init_on_first_use:
            owner.__init__ = _make_init(owner.FIELDS)  # type: ignore[attr-defined, misc]
            break
    self.__init__(*args, **named)  # type: ignore[misc]


def _make_init(fields: dict[str, Field]) -> Any:
    """An `__init__` with a parameter for every field, in the order of declaration."""
    scope: dict[str, Any] = {"_UNSET": _UNSET}
    parameters: list[str] = []
    lines: list[str] = []
    for name, field in fields.items():
        scope[f"_{name}"] = field.default
        parameters.append(f"{name}=_{name}")
        if field.default is _UNSET:
            scope[f"_new_{name}"] = field.element
            fresh = "[]" if field.kind == "array" else f"_new_{name}()"
            lines.append(f"    self.{name} = {fresh} if {name} is _UNSET else {name}")
        else:
            lines.append(f"    self.{name} = {name}")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines)
    exec(source, scope)  # noqa: S102 - the source has only our own field names
    return scope["__init__"]


class Struct(metaclass=_Description):
    """A part of a message. Two are equal if all fields are equal."""

    FIELDS: ClassVar[dict[str, Field]]
    _values: ClassVar[Any] = staticmethod(type)  # without fields, structs of one type are equal

    def __init__(self, **fields: Any) -> None:
        if fields:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(fields))!r}")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return bool(self._values(self) == self._values(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'<secret>' if field.secret else _short(getattr(self, name))}"
            for name, field in self.FIELDS.items()
            if getattr(self, name) != field.fresh_default()
        )
        return f"{type(self).__name__}({shown})"


class Encoded:
    """The encoded items of an array of structs, instead of the array.

    Only for encoding, and not in a tagged field. `buffers` have `count` adjacent items, encoded for
    the message's version.
    """

    __slots__ = ("buffers", "count")

    def __init__(self, count: int, buffers: list[Buffer]) -> None:
        self.count = count
        self.buffers = buffers


@cache
def lists_of_structs(kind: type[Struct]) -> tuple[tuple[str, type[Struct]], ...]:
    """The fields that are lists of structs, with the class of their structs."""
    return tuple(
        (name, field.element.element)
        for name, field in kind.FIELDS.items()
        if field.kind == "array" and field.element.kind == "struct"
    )


def _short(value: Any) -> str:
    """A repr that is short enough for a log line: long bytes are replaced by their size."""
    if type(value) in (bytes, bytearray, memoryview) and len(value) > 32:
        return f"<{len(value)} bytes>"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, cast('list[Any]', value)))}]"
    return repr(value)


class Message(Struct):
    """A request or response body.

    Attributes:
        api_key: the API key.
        versions: the described versions.
        flexible: the versions with compact types and tagged fields (KIP-482).
        item_limit: the maximum number of array items and tagged fields in a decoded message: an
            item of three bytes in a frame can take a hundred times as much memory.
    """

    api_key: ClassVar[int]
    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]
    item_limit: ClassVar[int]

    def __init_subclass__(
        cls, key: int | None = None, versions: str = "", flexible: str | None = None
    ) -> None:
        super().__init_subclass__()
        taken = _TAKEN & cls.FIELDS.keys()
        if taken:
            raise TypeError(f"{cls.__name__} must not have a field called {taken.pop()!r}")
        if key is None:
            return
        cls.api_key = key
        cls.versions = Versions.parse(versions)
        cls.flexible = Versions.parse(flexible) if flexible else _NONE


_TAKEN = {"api_key", "versions", "flexible", "item_limit"}


class Request(Message):
    """A request body. `REQUESTS` lists all imported ones by API key."""

    item_limit = 250_000

    def __init_subclass__(
        cls, key: int | None = None, versions: str = "", flexible: str | None = None
    ) -> None:
        super().__init_subclass__(key, versions, flexible)
        if key is not None:
            REQUESTS[key] = cls


class Response(Message):
    """A response body. `RESPONSES` lists all imported ones by API key."""

    item_limit = 4_000_000

    def __init_subclass__(
        cls, key: int | None = None, versions: str = "", flexible: str | None = None
    ) -> None:
        super().__init_subclass__(key, versions, flexible)
        if key is not None:
            RESPONSES[key] = cls


REQUESTS: dict[int, type[Request]] = {}
RESPONSES: dict[int, type[Response]] = {}
