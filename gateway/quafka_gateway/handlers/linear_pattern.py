"""Regular expressions whose matching takes time in proportion to the text (RE2's promise). Pure.

Clients may send any pattern, and Python's `re` can take for ever over a few dozen characters. This
is the common part of RE2's syntax (https://github.com/google/re2/wiki/Syntax): characters and
escapes, classes, groups, alternation, repetition, and the anchors of the whole text. Flags, word
boundaries and Unicode classes are refused. A pattern matches whole texts, as in Kafka's filters.

A pattern becomes a nondeterministic automaton (Thompson 1968), which follows all alternatives at
once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

_MAX_STEPS = 4_000
"""Steps of an automaton, repetitions expanded. Bounds the time for each character of a text."""
_MAX_DEPTH = 50
_MAX_REPEAT = 1_000  # as RE2

_DIGITS = (("0", "9"),)
_WORD = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class PatternError(ValueError):
    """The pattern is not one, or uses what is not supported, or is too large."""


@dataclass(frozen=True, slots=True)
class _Chars:
    """One character: in any of the ranges, or in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The beginning of the text, or its end."""

    at_end: bool


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Either:
    options: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    """`most` None: any number of times."""

    part: _Node
    least: int
    most: int | None


_Node = _Chars | _Anchor | _Sequence | _Either | _Repeat


@dataclass(slots=True)
class _Step:
    """A step of the automaton: what it needs, and where it leads to."""

    needs: _Chars | _Anchor | None
    to: list[int] = field(default_factory=list[int])


class LinearPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile it.

        Raises:
            PatternError: see there.
        """
        self._steps: list[_Step] = []
        self._emitted = 0
        self._end = self._step(None)
        self._start = self._emit(_Parser(pattern).whole(), self._end)

    def matches(self, text: str) -> Generator[None, None, bool]:
        """Whether the whole text matches. Yields after each character."""
        current = self._reached([self._start], at_start=True, at_end=not text)
        for at, char in enumerate(text):
            following: list[int] = []
            for number in current:
                needs = self._steps[number].needs
                if isinstance(needs, _Chars) and needs.has(char):
                    following += self._steps[number].to
            yield
            if not following:
                return False
            current = self._reached(following, at_start=False, at_end=at + 1 == len(text))
        return self._end in current

    def _reached(self, numbers: list[int], *, at_start: bool, at_end: bool) -> set[int]:
        """The steps that these lead to without a character."""
        found: set[int] = set()
        while numbers:
            number = numbers.pop()
            if number in found:
                continue
            found.add(number)
            needs = self._steps[number].needs
            if needs is None or (
                isinstance(needs, _Anchor) and (at_end if needs.at_end else at_start)
            ):
                numbers += self._steps[number].to
        return found

    def _step(self, needs: _Chars | _Anchor | None, *to: int) -> int:
        self._steps.append(_Step(needs, list(to)))
        return len(self._steps) - 1

    def _emit(self, node: _Node, after: int) -> int:
        """Add the steps of a node that lead to the step `after`; returns the first of them."""
        self._emitted += 1
        if self._emitted > _MAX_STEPS:
            raise PatternError("the pattern is too large")
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                after = self._emit(part, after)
            return after
        if isinstance(node, _Either):
            return self._step(None, *[self._emit(option, after) for option in node.options])
        if isinstance(node, _Repeat):
            return self._emit_repeat(node, after)
        return self._step(node, after)

    def _emit_repeat(self, node: _Repeat, after: int) -> int:
        if node.most is None:
            loop = self._step(None, after)
            self._steps[loop].to.append(self._emit(node.part, loop))
            first = loop
        else:
            first = after
            for _ in range(node.most - node.least):
                first = self._step(None, after, self._emit(node.part, first))
        for _ in range(node.least):
            first = self._emit(node.part, first)
        return first


class _Parser:
    """Reads a pattern by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def whole(self) -> _Node:
        found = self._either()
        if self._at < len(self._text):
            raise PatternError("a parenthesis is closed that was not opened")
        return found

    def _either(self) -> _Node:
        options = [self._sequence()]
        while self._takes("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Either(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._atom()
            while (times := self._times()) is not None:
                part = _Repeat(part, *times)
            parts.append(part)
        return _Sequence(tuple(parts))

    def _atom(self) -> _Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char == ".":
            return _Chars((("\n", "\n"),), negated=True)
        if char in "^$":
            return _Anchor(char == "$")
        if char in "*+?":
            raise PatternError(f"{char} repeats nothing")
        return _Chars(((char, char),))

    def _group(self) -> _Node:
        if self._takes("?") and not self._takes(":"):
            raise PatternError("flags and named groups are not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError("the pattern is nested too deeply")
        found = self._either()
        if not self._takes(")"):
            raise PatternError("a parenthesis is not closed")
        self._depth -= 1
        return found

    def _times(self) -> tuple[int, int | None] | None:
        """A repetition, if one follows. Whether it is lazy does not matter for whole matches."""
        found: tuple[int, int | None] | None = None
        if self._takes("*"):
            found = 0, None
        elif self._takes("+"):
            found = 1, None
        elif self._takes("?"):
            found = 0, 1
        elif self._takes("{"):
            found = self._braces()
        if found is not None:
            self._takes("?")
        return found

    def _braces(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at : end].partition(",")
        if end < 0 or not _is_count(least) or not (_is_count(most) or not most):
            raise PatternError("{ does not begin a repetition")
        self._at = end + 1
        if not comma:
            return int(least), int(least)
        if most and int(most) < int(least):
            raise PatternError("a repetition ends below its beginning")
        return int(least), int(most) if most else None

    def _class(self) -> _Node:
        negated = self._takes("^")
        ranges: list[tuple[str, str]] = []
        while not self._takes("]") or not ranges:
            low = "]" if not ranges and self._text[self._at - 1] == "]" else self._next()
            if low == "[" and self._text[self._at : self._at + 1] == ":":
                raise PatternError("named classes are not supported")
            if low == "\\":
                escaped = self._escape()
                if escaped.negated or len(escaped.ranges) != 1 or escaped.ranges == _DIGITS:
                    if escaped.negated:
                        raise PatternError("a negated class within a class is not supported")
                    ranges += escaped.ranges
                    continue
                low = escaped.ranges[0][0]
            ranges.append((low, self._range_end(low)))
        return _Chars(tuple(ranges), negated)

    def _range_end(self, low: str) -> str:
        if self._text[self._at : self._at + 1] != "-" or self._text[self._at + 1 :][:1] in (
            "]",
            "",
        ):
            return low
        self._at += 1
        high = self._next()
        if high == "\\":
            ranges = self._escape().ranges
            high = ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else ""
        if high < low:
            raise PatternError("a range ends below its beginning")
        return high

    def _escape(self) -> _Chars:
        char = self._next()
        if char.lower() in _CLASSES:
            return _Chars(_CLASSES[char.lower()], negated=char.isupper())
        char = _CONTROLS.get(char, char)
        if char == "x":
            char = self._hex()
        elif char.isalnum():
            raise PatternError(f"the escape \\{char} is not supported")
        return _Chars(((char, char),))

    def _hex(self) -> str:
        digits = self._text[self._at : self._at + 2]
        self._at += 2
        if len(digits) != 2 or not all(each in "0123456789abcdefABCDEF" for each in digits):
            raise PatternError("\\x needs two hex digits")
        return chr(int(digits, 16))

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, char: str) -> bool:
        """Pass this character, if it is next."""
        found = self._text[self._at : self._at + 1] == char
        self._at += found
        return found


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= _MAX_REPEAT
