"""`ssl.principal.mapping.rules`: from a certificate's distinguished name to a client's name. Pure.

The syntax is Kafka's: rules separated by commas, of which the first that matches decides.

- `RULE:pattern/replacement/` and an optional `L` or `U`: the pattern must match the whole name;
  then its matches are replaced, and the result is put in lower or upper case.
- `DEFAULT`: the distinguished name itself.

Patterns are Java's in Kafka and Python's here. They agree except for rare constructs; named groups
are accepted in Java's form, too. As in Java, `\\w`, `\\d`, `\\s` and `(?i)` are about ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"(?P<default>DEFAULT)|RULE:{_PART}/{_PART}/([LU]?)")
_SEPARATOR = re.compile(r"\s*(?:,\s*|$)")
_JAVA_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
RULES = "Kafka's rules: RULE:pattern/replacement/[LU] or DEFAULT, separated by commas"


class NoRuleError(Exception):
    """No rule matches a distinguished name."""


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """One rule; without a pattern it is DEFAULT. `text`: as it was set."""

    text: str
    pattern: re.Pattern[str] | None = field(default=None, compare=False)
    replacement: str = ""
    case: str = ""

    def __str__(self) -> str:
        return self.text

    def apply(self, distinguished_name: str) -> str | None:
        """Return the client's name; None: the rule does not match."""
        if self.pattern is None:
            return distinguished_name
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        name = self.pattern.sub(lambda match: _expand(self.replacement, match), distinguished_name)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


DEFAULT = (PrincipalRule("DEFAULT"),)


def parse_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Read rules. Raises ValueError."""
    rules: list[PrincipalRule] = []
    text = text.strip()
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        end = found and _SEPARATOR.match(text, found.end())
        if found is None or end is None:
            raise ValueError(text[at:])
        rules.append(_rule(found))
        at = end.end()
    return tuple(rules)


def _rule(found: re.Match[str]) -> PrincipalRule:
    if found["default"]:
        return PrincipalRule("DEFAULT")
    pattern, replacement, case = found.group(2, 3, 4)
    try:
        compiled = re.compile(_JAVA_GROUP.sub("(?P<", pattern), re.ASCII)
        _expand_check(replacement, compiled)
    except (re.error, IndexError) as e:
        raise ValueError(found.group()) from e
    return PrincipalRule(found.group(), compiled, replacement, case)


def principal_name(rules: Sequence[PrincipalRule], distinguished_name: str) -> str:
    """Return the name that the first matching rule makes.

    Raises:
        NoRuleError: no rule matches, or the name is empty: the client would be anonymous.
    """
    for rule in rules or DEFAULT:
        name = rule.apply(distinguished_name)
        if name == "":
            raise NoRuleError(f"ssl.principal.mapping.rules make {distinguished_name!r} empty")
        if name is not None:
            return name
    raise NoRuleError(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$\{(?P<name>\w+)\}|\$(?P<number>\d+)", re.DOTALL)


def _expand(replacement: str, match: re.Match[str]) -> str:
    """Fill in the groups: `$1`, `${name}`; a backslash takes the next character as it is."""

    def fill(reference: re.Match[str]) -> str:
        if reference["escaped"] is not None:
            return reference["escaped"]
        if reference["name"] is not None:
            return match[reference["name"]] or ""
        return _numbered(reference, match)

    return _REFERENCE.sub(fill, replacement)


def _numbered(reference: re.Match[str], match: re.Match[str]) -> str:
    """As Java: the longest number that is a group; the digits after it are text. A number without
    a group is text altogether."""
    digits, groups = reference["number"], match.re.groups
    if int(digits[0]) > groups:
        return reference.group()
    size = 1
    while size < len(digits) and int(digits[: size + 1]) <= groups:
        size += 1
    return (match[int(digits[:size])] or "") + digits[size:]


def _expand_check(replacement: str, pattern: re.Pattern[str]) -> None:
    """Raise IndexError if a named group is missing."""
    for reference in _REFERENCE.finditer(replacement):
        if reference["name"] is not None and reference["name"] not in pattern.groupindex:
            raise IndexError(reference["name"])
