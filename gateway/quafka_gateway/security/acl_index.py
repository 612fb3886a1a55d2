"""The rules of one org, arranged for decisions. Pure.

A decision is about all operations on a resource at once: a set of bits, 1 << Operation. It looks at
the rules of the client alone: of its principal and of "User:*", each from its host and from "*".
For these, the rules of a name are found by the name itself, by "*", and by each of the lengths that
their prefixes have: a decision costs some of these lengths, however many rules there are.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from quafka_mesh_ops.ops.security import AclRecord
from quafka_proto.acl_kinds import (
    EVERYONE,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)

EVERY_OPERATION = sum(1 << op for op in Operation if op > Operation.ALL)
_KINDS = len(ResourceKind)
_ALL_OPERATIONS, _LAST_OPERATION = int(Operation.ALL), int(Operation.TWO_PHASE_COMMIT)
_ALL = 1 << Operation.ALL
_DESCRIBE = 1 << Operation.DESCRIBE
_IMPLY_DESCRIBE = sum(
    1 << op for op in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
)
_DESCRIBE_CONFIGS = 1 << Operation.DESCRIBE_CONFIGS
_ALTER_CONFIGS = 1 << Operation.ALTER_CONFIGS
# Plain numbers: an org may have thousands of rules, and enumerations are slow to compare.
_LITERAL, _PREFIXED = int(Pattern.LITERAL), int(Pattern.PREFIXED)
_ALLOW, _DENY = int(Permission.ALLOW), int(Permission.DENY)
Who = tuple[str, str]
"""The principal and the host of rules."""


class _Operations:
    """The operations that rules of one pattern allow and deny."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = self.denied = 0


class _Patterns:
    """The rules for one kind of resource: by name, and by prefix."""

    __slots__ = ("_lengths", "_of_length", "by_name", "by_prefix")

    def __init__(self) -> None:
        self.by_name: dict[str, _Operations] = {}
        self.by_prefix: dict[str, _Operations] = {}
        self._lengths: list[int] = []  # of prefixes, in order
        self._of_length: dict[int, int] = {}  # how many prefixes have it

    def matching(self, name: str) -> Iterator[_Operations]:
        """Yield the operations of the rules that match a name."""
        found = self.by_name.get(name)
        if found is not None:
            yield found
        found = self.by_name.get(WILDCARD) if name != WILDCARD else None
        if found is not None:
            yield found
        if self._lengths:
            yield from self.prefixes_of(name)

    def prefixes_of(self, name: str) -> Iterator[_Operations]:
        """Yield the operations of the rules for prefixes of a name."""
        size = len(name)
        for length in self._lengths:
            if length > size:
                return
            found = self.by_prefix.get(name[:length])
            if found is not None:
                yield found

    def change(self, rule: AclRecord, *, add: bool) -> bool:
        """Add or remove a rule; return whether that changes anything."""
        is_prefix, name = rule.pattern_type == _PREFIXED, rule.resource_name
        patterns = self.by_prefix if is_prefix else self.by_name
        found = patterns.get(name)
        if found is None:
            if not add:
                return False
            found = patterns[name] = _Operations()
            if is_prefix:
                self._count(len(name), 1)
        bit, before = 1 << rule.operation, (found.allowed, found.denied)
        if rule.permission_type == _ALLOW:
            found.allowed = found.allowed | bit if add else found.allowed & ~bit
        else:
            found.denied = found.denied | bit if add else found.denied & ~bit
        if not (found.allowed or found.denied):
            del patterns[name]
            if is_prefix:
                self._count(len(name), -1)
        return before != (found.allowed, found.denied)

    def _count(self, length: int, more: int) -> None:
        count = self._of_length.get(length, 0) + more
        if not count:
            del self._of_length[length]
            self._lengths.remove(length)
            return
        if count == more:
            insort(self._lengths, length)
        self._of_length[length] = count


class AclIndex:
    """The rules of one org."""

    def __init__(self) -> None:
        self._by_who: dict[Who, list[_Patterns | None]] = {}
        self._rules: dict[tuple[int, int, str], int] = {}  # the number of rules of each pattern
        self._all: list[_Patterns] = [_Patterns() for _ in ResourceKind]  # with any rule

    def change(self, rule: AclRecord, *, add: bool) -> None:
        """Add or remove a rule."""
        if not _is_known(rule):
            return  # of a kind or an operation that no API asks for
        kind = rule.resource_type
        who = (rule.principal, _host(rule.host))
        patterns = self._of(who, kind)
        if patterns is None:
            if not add:
                return
            patterns = _Patterns()
            self._by_who.setdefault(who, [None] * _KINDS)[kind] = patterns
        if not patterns.change(rule, add=add):
            return
        if not (patterns.by_name or patterns.by_prefix):
            kinds = self._by_who[who]
            kinds[kind] = None
            if not any(kinds):
                del self._by_who[who]
        self._count(rule, add=add)

    def operations(self, whose: Sequence[Who], kind: int, name: str, default: int) -> int:
        """The operations that clients may do; `default` if the resource has no rules at all."""
        allowed = denied = 0
        for who in whose:
            patterns = self._of(who, kind)
            if patterns is not None:
                for found in patterns.matching(name):
                    allowed |= found.allowed
                    denied |= found.denied
        if allowed or denied:
            return _expanded(allowed) & ~(EVERY_OPERATION if denied & _ALL else denied)
        if not default or next(self._all[kind].matching(name), None) is not None:
            return 0
        return default

    def allows_any(self, whose: Sequence[Who], kind: int, operation: int) -> bool:
        """Whether some resource may exist on which clients may do an operation.

        Some allowed pattern must not lie within a denied one. Operations imply no others here.
        """
        wanted = (1 << operation) | _ALL
        rules = [its for who in whose if (its := self._of(who, kind)) is not None]
        wild = [found for each in rules if (found := each.by_name.get(WILDCARD)) is not None]
        if any(each.denied & wanted for each in wild):
            return False
        if any(each.allowed & wanted for each in wild):
            return True
        return any(
            found.allowed & wanted and not _is_denied(rules, name, wanted, literal=literal)
            for each in rules
            for literal, patterns in ((True, each.by_name), (False, each.by_prefix))
            for name, found in patterns.items()
        )

    def _of(self, who: Who, kind: int) -> _Patterns | None:
        kinds = self._by_who.get(who)
        return None if kinds is None else kinds[kind]

    def _count(self, rule: AclRecord, *, add: bool) -> None:
        """Keep in `_all` the patterns that have rules, whosever they are."""
        pattern = (rule.resource_type, rule.pattern_type, rule.resource_name)
        count = self._rules.get(pattern, 0) + (1 if add else -1)
        if count:
            self._rules[pattern] = count
        else:
            del self._rules[pattern]
        if count == (1 if add else 0):
            any_rule = AclRecord(
                0, rule.resource_type, rule.resource_name, rule.pattern_type, "", "",
                _ALL_OPERATIONS, _ALLOW,
            )  # fmt: skip
            self._all[rule.resource_type].change(any_rule, add=add)


def whose_rules(principal: str, host: str) -> tuple[Who, ...]:
    """The principals and hosts whose rules concern this client."""
    host = _host(host)
    mine = ((principal, host), (principal, WILDCARD))
    return (*mine, (EVERYONE, host), (EVERYONE, WILDCARD))


def _host(text: str) -> str:
    """An address in one form: IPv6 has many, and Java writes another one than Python."""
    if ":" not in text:
        return text
    try:
        return str(ip_address(text))
    except ValueError:
        return text


def _expanded(allowed: int) -> int:
    """With the operations that these imply. Denied operations imply none."""
    if allowed & _ALL:
        return EVERY_OPERATION
    if allowed & _IMPLY_DESCRIBE:
        allowed |= _DESCRIBE
    return allowed | _DESCRIBE_CONFIGS if allowed & _ALTER_CONFIGS else allowed


def _is_denied(rules: Sequence[_Patterns], name: str, wanted: int, *, literal: bool) -> bool:
    """Whether a denied prefix covers the pattern, or the same literal name is denied."""
    for each in rules:
        found = each.by_name.get(name) if literal else None
        if found is not None and found.denied & wanted:
            return True
        if any(found.denied & wanted for found in each.prefixes_of(name)):
            return True
    return False


def _is_known(rule: AclRecord) -> bool:
    return (
        0 <= rule.resource_type < _KINDS
        and _ALL_OPERATIONS <= rule.operation <= _LAST_OPERATION
        and rule.permission_type in (_ALLOW, _DENY)
        and rule.pattern_type in (_LITERAL, _PREFIXED)
        and rule.resource_name != ""
    )
