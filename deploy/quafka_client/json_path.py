"""Conditions on JSON values: `order.id=7`, `items[0].sku~abc and amount>100`.

    conditions  condition ("and" condition)*
    condition   path [operator literal]         without an operator: the path exists
    path        ["$"] step*                     `$` alone is the whole value
    step        name, ."name", [number]         a dot between names
    name        letters, digits, _ - @ $, or a JSON string
    operator    = != ~ !~ < <= > >=             ~ contains
    literal     a JSON string, or what stands up to the next space

A literal without quotes that is a number, true, false or null is equal to that JSON value, and to
a string of the same characters. `!=` and `!~` hold where the path exists. The order is that of
numbers if such a literal is one: for numbers, and for strings that are numbers. Otherwise it is
that of strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, NoReturn, cast

from quafka_client.errors import ClientError
from quafka_client.filters import FilteredRecord, Wanted

MOST_JSON = 1 << 20
"""Bytes of a value. Larger ones match no condition: the interpreter is held while one is parsed."""
_MOST_TEXT = 1_000
_OPERATORS = ("!=", "!~", "<=", ">=", "=", "~", "<", ">")
_NAME = re.compile(r"[\w@$-]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_INDEX = re.compile(r"\[(\d{1,9})\]")
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"\S+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,4})?")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_MISSING = object()
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class PathError(ClientError):
    """A condition cannot be read; the sentence names the place."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `operator`: "": the path exists. `quoted`: the literal is a string only."""

    path: Sequence[str | int]
    operator: str = ""
    literal: str = ""
    quoted: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a JSON value fulfils it."""
        found = _at(value, self.path)
        if found is _MISSING:
            return False
        if self.operator in _ORDER:
            return self._is_ordered(found)
        if self.operator.endswith("="):
            return self._equals(found) != (self.operator == "!=")
        if self.operator.endswith("~"):
            return (self.literal in _text(found)) != (self.operator == "!~")
        return True

    def _equals(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.literal
        if self.quoted:
            return False
        if self.literal in _WORDS:
            return found is _WORDS[self.literal]
        number = _number(self.literal)
        return _is_number(found) and number is not None and found == number

    def _is_ordered(self, found: Any) -> bool:
        compare = _ORDER[self.operator]
        number = None if self.quoted else _number(self.literal)
        if number is not None:
            there = _number(found) if isinstance(found, str) else found
            return _is_number(there) and compare(there, number)
        return isinstance(found, str) and compare(found, self.literal)


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return _MISSING
            value = cast("dict[str, Any]", value)[step]
        else:
            if not isinstance(value, list) or step >= len(cast("list[Any]", value)):
                return _MISSING
            value = cast("list[Any]", value)[step]
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(text: str) -> int | float | None:
    # Python refuses to read numbers with more than 4,300 digits.
    found = _NUMBER.fullmatch(text) if len(text) <= _MOST_TEXT else None
    if found is None:
        return None
    return float(text) if found[1] or found[2] else int(text)


def _text(value: Any) -> str:
    """What `~` searches: a string, or the JSON of a number, true, false or null."""
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)


def parse(text: str) -> Sequence[Condition]:
    """The conditions that a text has. Raises PathError."""
    return _Parser(text).conditions()


def parse_path(text: str) -> Sequence[str | int]:
    """A path alone, as in `order.id`. Raises PathError."""
    return _Parser(text, "the path").only_path()


def value_at(value: Any, path: Sequence[str | int]) -> Any:
    """What is at a path of a JSON value. Raises LookupError: there is nothing."""
    found = _at(value, path)
    if found is _MISSING:
        raise LookupError(path)
    return found


class _Parser:
    """Reads conditions from left to right."""

    def __init__(self, text: str, what: str = "the value filter") -> None:
        self._text, self._what, self._place = text, what, 0

    def only_path(self) -> Sequence[str | int]:
        path = self._path()
        if self._place < len(self._text):
            self._fail("expected a dot, a number in brackets, or the end")
        return path

    def conditions(self) -> Sequence[Condition]:
        if len(self._text) > _MOST_TEXT:
            raise PathError(f"a value filter has at most {_MOST_TEXT:,} characters")
        found = [self._condition()]
        while self._place < len(self._text):
            if self._take(_BARE) != "and":
                self._fail("expected `and`, or the end; quote a text that has spaces")
            self._take(_SPACE)
            found.append(self._condition())
        return found

    def _condition(self) -> Condition:
        self._take(_SPACE)
        path = self._path()
        self._take(_SPACE)
        operator = next((each for each in _OPERATORS if self._next(each)), "")
        if not operator:
            return Condition(path)
        if operator.endswith("=") and self._peek() == "=" and operator not in _ORDER:
            self._fail(f'there is no `{operator}=`: write `{operator}`, or "=…" for such a text')
        self._take(_SPACE)
        if self._peek() == '"':
            literal, quoted = self._string(), True
        else:
            literal, quoted = self._take(_BARE), False
        if not literal and not quoted:
            self._fail(f'expected a value after `{operator}`; an empty text is ""')
        self._take(_SPACE)
        return Condition(path, operator, literal, quoted)

    def _path(self) -> Sequence[str | int]:
        path: list[str | int] = []
        if self._peek() != "[":
            name = self._name()
            if name != "$":
                path.append(name)
        while True:
            if self._next("."):
                path.append(self._name())
            elif self._peek() == "[":
                found = _INDEX.match(self._text, self._place)
                if found is None:
                    self._fail("expected a number in brackets, as in items[0]")
                path.append(int(found[1]))
                self._place = found.end()
            else:
                return path

    def _name(self) -> str:
        if self._peek() == '"':
            return self._string()
        name = self._take(_NAME)
        if not name:
            self._fail("expected a field's name, as in order.id; quote one with other characters")
        return name

    def _string(self) -> str:
        began = self._place
        try:
            return str(json.loads(self._take(_STRING)))
        except ValueError:
            self._place = began
            self._fail("expected a string in double quotes, with JSON's escapes")

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _next(self, token: str) -> bool:
        if not self._text.startswith(token, self._place):
            return False
        self._place += len(token)
        return True

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._place)
        if found is None:
            return ""
        self._place = found.end()
        return found[0]

    def _fail(self, what: str) -> NoReturn:
        raise PathError(f"{self._what}, character {self._place + 1}: {what}")


def fulfilling(
    conditions: Sequence[Condition], json_of: Callable[[bytes], Any] = json.loads
) -> Wanted:
    """Whether a record's value fulfils all conditions.

    `json_of`: the JSON of a value; raises ValueError or RecursionError if it has none.
    """

    def wanted(record: FilteredRecord) -> bool:
        data = record.value
        if data is None or len(data) > MOST_JSON:
            return False
        try:
            value = json_of(data)
        except (ValueError, RecursionError):
            return False
        return all(each.holds(value) for each in conditions)

    return wanted
