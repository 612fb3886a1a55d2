"""Java's .properties files and Kafka's sasl.jaas.config. Pure.

`${env:NAME}`, `${file:PATH}` (a whole file), `${file:PATH:KEY}` (a key of a properties file, as
Kafka's FileConfigProvider reads it) and `${dir:PATH:FILE}` (a file of a folder, as Kafka's
DirectoryConfigProvider does) refer to values that are stored elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REFERENCE = re.compile(r"\$\{(env|file|dir):([^}:]+)(?::([^}]*))?\}")
# A login configuration is read by Java's StreamTokenizer, which knows comments and C's escapes.
_SPACE = r"(?:\s|//[^\r\n]*|/\*(?:[^*]|\*(?!/))*\*/)"
_OPTION = re.compile(
    rf"{_SPACE}*([A-Za-z_][\w.]*){_SPACE}*={_SPACE}*"
    r"(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|([^\s;\"']+))"
)
_HEAD = re.compile(
    rf"{_SPACE}*([\w.$]+){_SPACE}+(?:required|requisite|sufficient|optional)(?=[\s;/])",
    re.IGNORECASE,
)
_END = re.compile(rf"{_SPACE}*;{_SPACE}*")
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {**_ESCAPES, "a": "\a", "b": "\b", "v": "\v"}


def parse(text: str) -> dict[str, str]:
    """The keys and values of a .properties file; a later one of a key wins."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None  # it matches every text
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """The lines without comments and blank ones; a backslash at the end continues a line."""
    joined = ""
    going_on = False
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not going_on and (not line or line[0] in "#!"):
            continue
        odd = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if odd else line
        going_on = odd
        if not odd:
            yield joined
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, text)


def expand(value: str, environment: Mapping[str, str], read: Callable[[str], str]) -> str:
    """The value with its references replaced. Replacements are not expanded again.

    Raises:
        ValueError: a variable is not set, or a file has no such key.
        OSError: a file cannot be read.
    """

    def replacement(match: re.Match[str]) -> str:
        kind, name, key = match[1], match[2], match[3]
        if kind == "env":
            if key is not None or name not in environment:
                raise ValueError(f"the variable {name} is not set")
            return environment[name]
        if kind == "dir":
            if not key:
                raise ValueError(f"a file of the folder {name} is not named")
            return read(f"{name}/{key}").rstrip("\r\n")
        if key is None:
            return read(name).rstrip("\r\n")
        values = parse(read(name))
        if key not in values:
            raise ValueError(f"{name} has no key {key}")
        return values[key]

    return _REFERENCE.sub(replacement, value)


def files_of(value: str) -> list[str]:
    """The files that have a part of the value; "" is the one that the value itself stands in."""
    found = [
        f"{name}/{key}" if kind == "dir" else name
        for kind, name, key in _REFERENCE.findall(value)
        if kind != "env"
    ]
    return found + ([""] if _REFERENCE.sub("", value).strip() else [])


class Jaas(NamedTuple):
    """A login module, by the last part of its name, and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> Jaas:
    """Parse `MODULE required NAME="VALUE" ...;`.

    Raises:
        ValueError: the text has another form. The message has no values, which are secrets.
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("it begins with a login module and `required`")
    options: dict[str, str] = {}
    at = head.end()
    while (option := _OPTION.match(text, at)) is not None:
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else _JAAS_ESCAPE.sub(_escaped, quoted)
        at = option.end()
    if _END.fullmatch(text, at) is None:
        after = f" after {list(options)[-1]}" if options else ""
        raise ValueError(f'its options are NAME="VALUE", and it ends in ";"{after}')
    return Jaas(head[1].rpartition(".")[2], options)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)
