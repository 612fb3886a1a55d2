"""The syntax of RE2's regular expressions (https://github.com/google/re2/wiki/Syntax). Pure.

Not supported: scripts (`\\p{Greek}`; categories such as `\\pL` are), `\\C`, and constructs that RE2
also refuses: backreferences and lookaround. Lazy repetitions are accepted; for whole matches they
are like others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from unicodedata import category

_MAX_DEPTH = 50
_MAX_REPEAT = 1_000  # as RE2

_Ranges = tuple[tuple[str, str], ...]
_DIGITS: _Ranges = (("0", "9"),)
_WORD: _Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: _Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: dict[str, _Ranges] = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_UPPER, _LOWER = ("A", "Z"), ("a", "z")
_NAMED: dict[str, _Ranges] = {
    "alnum": (("0", "9"), _UPPER, _LOWER),
    "alpha": (_UPPER, _LOWER),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": _DIGITS,
    "graph": (("!", "~"),),
    "lower": (_LOWER,),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (_UPPER,),
    "word": _WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CATEGORIES = {
    "C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps",
}  # fmt: skip
"""The general categories: the first letters of their names, each with the second letters."""
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")


class PatternError(ValueError):
    """The pattern is invalid, uses unsupported syntax, or is too large."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """Characters in any of the ranges, of a category, or in any of the sets; or all others.

    Attributes:
        category: the beginning of the names of Unicode's general categories.
        folds: upper and lower case are equal.
    """

    ranges: _Ranges = ()
    negated: bool = False
    category: str = ""
    sets: tuple[CharSet, ...] = ()
    folds: bool = False

    def has(self, char: str) -> bool:
        """Whether the set has a character."""
        found = self._has(char)
        if not found and self.folds:
            found = any(self._has(other) for other in (*char.lower(), *char.upper()))
        return found != self.negated

    def _has(self, char: str) -> bool:
        return (
            any(low <= char <= high for low, high in self.ranges)
            or (self.category != "" and category(char).startswith(self.category))
            or any(each.has(char) for each in self.sets)
        )


class Anchor(Enum):
    """A condition for a place in the text."""

    START = auto()
    END = auto()
    LINE_START = auto()
    LINE_END = auto()
    BOUNDARY = auto()
    """Between a word character and another one, or the end of the text."""
    NO_BOUNDARY = auto()


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part, `least` times or more. `most` None: any number of times."""

    part: Node
    least: int
    most: int | None


Node = CharSet | Anchor | Sequence | Either | Repeat


@dataclass(frozen=True, slots=True)
class _Flags:
    """`i`, `m` and `s`."""

    folds: bool = False
    lines: bool = False
    dot_all: bool = False


def parse(pattern: str) -> Node:
    """The parts of a pattern.

    Raises:
        PatternError: see there.
    """
    return _Parser(pattern).whole()


def is_word(char: str) -> bool:
    """Whether a character is part of a word; "" is none."""
    return char != "" and any(low <= char <= high for low, high in _WORD)


class _Parser:
    """Reads a pattern by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags = _Flags()
        self._names: set[str] = set()

    def whole(self) -> Node:
        found = self._either()
        if self._at < len(self._text):
            raise PatternError("a parenthesis is closed that was not opened")
        return found

    def _either(self) -> Node:
        options = [self._sequence()]
        while self._takes("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._takes("\\Q"):
                parts += self._quoted()
            else:
                parts += self._atom()
            if not parts:
                continue
            times = self._times()
            if times is not None:
                parts[-1] = Repeat(parts[-1], *times)
                if self._times() is not None:
                    raise PatternError("a repetition is repeated; it needs parentheses")
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        """The characters up to `\\E` or the end."""
        end = self._text.find("\\E", self._at)
        chars = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at += len(chars) + 2 * (end >= 0)
        return [self._chars(((char, char),)) for char in chars]

    def _chars(self, ranges: _Ranges) -> CharSet:
        return CharSet(ranges, folds=self._flags.folds)

    def _atom(self) -> tuple[Node, ...]:
        """One part of a sequence; empty if there are only flags."""
        if self._takes("("):
            return self._group()
        return (self._atom_of(self._next()),)

    def _atom_of(self, char: str) -> Node:
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape_or_anchor()
        if char == ".":
            return (
                CharSet((), negated=True) if self._flags.dot_all else CharSet((("\n", "\n"),), True)
            )
        if char == "^":
            return Anchor.LINE_START if self._flags.lines else Anchor.START
        if char == "$":
            return Anchor.LINE_END if self._flags.lines else Anchor.END
        self._at -= 1
        if self._times() is not None:
            raise PatternError(f"{char} repeats nothing")
        self._at += 1
        return self._chars(((char, char),))

    # --- groups and flags -------------------------------------------------------------------

    def _group(self) -> tuple[Node, ...]:
        flags = self._flags
        if self._takes("?"):
            if self._takes("P<") or self._takes("<"):
                self._name()
            elif not self._set_flags():
                return ()  # flags for the rest of the group around it
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError("the pattern is nested too deeply")
        found = self._either()
        if not self._takes(")"):
            raise PatternError("a parenthesis is not closed")
        self._depth -= 1
        self._flags = flags
        return (found,)

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end]
        if end < 0 or not name or not all(map(is_word, name)) or name in self._names:
            raise PatternError("a group has no name of its own")
        self._names.add(name)
        self._at = end + 1

    def _set_flags(self) -> bool:
        """Read flags; returns whether a group follows them."""
        on = True
        while True:
            char = self._next()
            if char in ":)":
                return char == ":"
            if char == "-" and on:
                on = False
            elif char == "i":
                self._flags = replace(self._flags, folds=on)
            elif char == "m":
                self._flags = replace(self._flags, lines=on)
            elif char == "s":
                self._flags = replace(self._flags, dot_all=on)
            elif char != "U":  # which matters only for the text that a group matches
                raise PatternError(f"(?{char} is not supported")

    # --- repetition -------------------------------------------------------------------------

    def _times(self) -> tuple[int, int | None] | None:
        """A repetition, if one follows. Laziness does not matter for whole matches."""
        found: tuple[int, int | None] | None = None
        if self._takes("*"):
            found = 0, None
        elif self._takes("+"):
            found = 1, None
        elif self._takes("?"):
            found = 0, 1
        elif self._text[self._at : self._at + 1] == "{":
            found = self._braces()
        if found is not None:
            self._takes("?")
        return found

    def _braces(self) -> tuple[int, int | None] | None:
        """A repetition in braces; other braces are characters."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, self._at + 1)].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        first = _count(least)
        if not comma:
            return first, first
        last = _count(most) if most else None
        if last is not None and last < first:
            raise PatternError("a repetition ends below its beginning")
        return first, last

    # --- characters -------------------------------------------------------------------------

    def _class(self) -> CharSet:
        negated = self._takes("^")
        ranges: list[tuple[str, str]] = []
        sets: list[CharSet] = []
        is_first = True
        while is_first or not self._takes("]"):
            if self._takes("[:"):
                sets.append(self._named_class())
            else:
                char = self._next()
                found = self._escape() if char == "\\" else char
                if isinstance(found, str):
                    ranges.append((found, self._range_end(found)))
                else:
                    sets.append(found)
            is_first = False
        return CharSet(tuple(ranges), negated, "", tuple(sets), self._flags.folds)

    def _named_class(self) -> CharSet:
        negated = self._takes("^")
        end = self._text.find(":]", self._at)
        ranges = _NAMED.get(self._text[self._at : end]) if end >= 0 else None
        if ranges is None:
            raise PatternError("a class of characters has no known name")
        self._at = end + 2
        return CharSet(ranges, negated)

    def _range_end(self, low: str) -> str:
        follows = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at : self._at + 1] != "-" or follows in ("]", ""):
            return low
        self._at += 1
        high = self._next()
        if high == "\\":
            found = self._escape()
            high = found if isinstance(found, str) else ""
        if high < low:
            raise PatternError("a range ends below its beginning")
        return high

    def _escape_or_anchor(self) -> Node:
        for char, anchor in (
            ("A", Anchor.START), ("z", Anchor.END),
            ("b", Anchor.BOUNDARY), ("B", Anchor.NO_BOUNDARY),
        ):  # fmt: skip
            if self._takes(char):
                return anchor
        found = self._escape()
        return self._chars(((found, found),)) if isinstance(found, str) else found

    def _escape(self) -> CharSet | str:
        """The character, or the set of characters, after a backslash."""
        char = self._next()
        if char.lower() in _CLASSES:
            return CharSet(_CLASSES[char.lower()], negated=char.isupper())
        if char in "pP":
            return self._category(negated=char == "P")
        if char == "x":
            return self._hex()
        if char in _OCTAL and (char == "0" or self._text[self._at : self._at + 1] in _OCTAL):
            return self._octal(char)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum() or ord(char) > 127:
            raise PatternError(f"the escape \\{char} is not supported")
        return char

    def _category(self, *, negated: bool) -> CharSet:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            return CharSet((), not negated)
        if not name or name[0] not in _CATEGORIES or name[1:] not in ("", *_CATEGORIES[name[0]]):
            raise PatternError(f"the class \\p{{{name}}} is not supported")
        return CharSet((), negated, name, folds=self._flags.folds)

    def _hex(self) -> str:
        if self._takes("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            self._at = end + 1
            is_hex = 0 < len(digits) <= 6 and _HEX.issuperset(digits)
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            is_hex = len(digits) == 2 and _HEX.issuperset(digits)
        if not is_hex or int(digits, 16) > 0x10FFFF:
            raise PatternError("\\x needs two hex digits, or the number of a character in braces")
        return chr(int(digits, 16))

    def _octal(self, first: str) -> str:
        digits = first
        while len(digits) < 3 and self._text[self._at : self._at + 1] in _OCTAL:
            digits += self._next()
        return chr(int(digits, 8))

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, text: str) -> bool:
        """Pass this text, if it is next."""
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _count(text: str) -> int:
    if len(text) > 4 or int(text) > _MAX_REPEAT:
        raise PatternError(f"a repetition of more than {_MAX_REPEAT}")
    return int(text)
