"""Who may do what, by Kafka's rules (StandardAuthorizer): deny wins, and what no rule allows is
denied.

The rules of an org are kept as an index (`acl_index`), which follows the directory. Connections of
one principal from one host share a `ClientAccess`, which remembers its decisions until a rule of
the org changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from quafka_gateway.config import parse_super_users
from quafka_gateway.security.acl_index import EVERY_OPERATION, AclIndex, whose_rules
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.org_of import org_by_text, split_name
from quafka_gateway.security.principal import Principal
from quafka_mesh_ops.ops.security import SecurityChange
from quafka_proto.acl_kinds import Operation, ResourceKind

log = logging.getLogger("quafka.gateway.security")

_generations = count(1)
_MOST_DECISIONS = 2_048
"""Decisions that one access remembers for each kind of resource; some 200 KB."""


class NeededRight(NamedTuple):
    """An operation on a kind of resource, as an API needs it. `bit`: the operation's."""

    resource: int
    operation: int
    bit: int

    def __str__(self) -> str:
        return f"{Operation(self.operation).name} {ResourceKind(self.resource).name}"


def right(operation: Operation, resource: ResourceKind) -> NeededRight:
    """Make a right, with plain numbers: enumerations are slow to hash."""
    return NeededRight(int(resource), int(operation), 1 << operation)


class ClientAccess:
    """What one principal may do from one host.

    Attributes:
        generation: changes whenever earlier decisions may be wrong; no two accesses share one.
        is_super: whether no rule restricts the principal in its org.
    """

    __slots__ = (
        "__weakref__", "_any", "_authorizer", "_decided", "_host", "_rules", "_whose",
        "generation", "is_super", "org_id", "principal",
    )  # fmt: skip

    def __init__(
        self, authorizer: Authorizer, rules: OrgRules, principal: Principal, host: str
    ) -> None:
        self.principal = principal
        self.org_id = rules.org_id
        self.generation = next(_generations)
        self._authorizer = authorizer
        self._rules = rules
        self._host = host
        self._whose = whose_rules(str(principal), host)
        self._decided: list[dict[str, int]] = [{} for _ in ResourceKind]
        self._any: dict[NeededRight, bool] = {}
        self.is_super = authorizer.is_super(self.org_id, principal)

    def operations(self, kind: int, name: str) -> int:
        """The operations allowed on a resource, as bits."""
        decided = self._decided[kind]
        found = decided.get(name)
        if found is None:
            if len(decided) >= _MOST_DECISIONS:
                decided.clear()
            found = decided[name] = self.decide(kind, name)
        return found

    def decide(self, kind: int, name: str) -> int:
        """As `operations`, without keeping the decision."""
        if self.is_super:
            return EVERY_OPERATION
        authorizer = self._authorizer
        if not authorizer.directory.complete:
            return 0  # there may be rules that are not here yet
        default = EVERY_OPERATION if authorizer.allows_everyone else 0
        return self._rules.index.operations(self._whose, kind, name, default)

    def allows(self, right: NeededRight, name: str) -> bool:
        """Whether the right is given on the resource with this name."""
        return self.operations(right.resource, name) & right.bit != 0

    def allows_once(self, right: NeededRight, name: str) -> bool:
        """As `allows`, without keeping the decision: for long lists of resources."""
        return self.decide(right.resource, name) & right.bit != 0

    def allows_any(self, right: NeededRight) -> bool:
        """Whether the right is given on any resource that may exist."""
        found = self._any.get(right)
        if found is None:
            found = self._any[right] = self._decide_any(right)
        return found

    def until_changed(self) -> Callable[[], bool]:
        """Return a check of whether all decisions made by now still hold."""
        generation = self.generation
        return lambda: self.generation == generation

    def forget(self) -> None:
        """The rules have changed."""
        self.generation = next(_generations)
        for decided in self._decided:
            decided.clear()
        self._any.clear()
        self.is_super = self._authorizer.is_super(self.org_id, self.principal)

    def _decide_any(self, right: NeededRight) -> bool:
        # A name that has no rules of its own, as Kafka asks for: it also finds super users.
        if self.decide(right.resource, "hardcode") & right.bit:
            return True
        if not self._authorizer.directory.complete:
            return False
        return self._rules.index.allows_any(self._whose, right.resource, right.operation)


class OrgRules:
    """The rules of one org, and the accesses that depend on them."""

    def __init__(self, authorizer: Authorizer, org_id: int) -> None:
        self.org_id = org_id
        self.index = AclIndex()
        self._authorizer = authorizer
        self._accesses: WeakValueDictionary[tuple[Principal, str], ClientAccess] = (
            WeakValueDictionary()
        )
        self.rebuild()

    def access(self, principal: Principal, host: str) -> ClientAccess:
        """What the principal may do from the host."""
        key = (principal, host)
        access = self._accesses.get(key)
        if access is None:
            access = self._accesses[key] = ClientAccess(self._authorizer, self, principal, host)
        return access

    def rebuild(self) -> None:
        """Read all rules again."""
        self.index = AclIndex()
        for rule in self._authorizer.directory.acls(self.org_id):
            self.index.change(rule, add=True)
        self.forget()

    def forget(self) -> None:
        """Let no access use an earlier decision."""
        for access in list(self._accesses.values()):
            access.forget()


class Authorizer:
    """Decides for all orgs that this gateway serves."""

    def __init__(
        self,
        directory: Directory,
        own_org: int,
        super_users: str = "",
        *,
        allows_everyone: bool = False,
    ) -> None:
        """`super_users`: as the setting; `allows_everyone`: if a resource has no rules."""
        self.directory = directory
        self.own_org = own_org
        self.allows_everyone = allows_everyone
        self._super_users = _orgs_by_principal(super_users)
        self._orgs: dict[int, OrgRules] = {}
        directory.listen(self._changed)

    def access(self, org_id: int, principal: Principal, host: str) -> ClientAccess:
        """What a principal of an org may do from a host, an address without a port."""
        rules = self._orgs.get(org_id)
        if rules is None:
            rules = self._orgs[org_id] = OrgRules(self, org_id)
        return rules.access(principal, host)

    def is_super(self, org_id: int, principal: Principal) -> bool:
        """Whether `super.users` names the principal: of this gateway's org by its name alone, of
        any org by name@org with the org's name or id."""
        orgs = self._super_users.get(str(principal), ())
        return any(
            org_id == (org_by_text(self.directory, org) if org else self.own_org) for org in orgs
        )

    def _changed(self, changes: Sequence[SecurityChange] | None) -> None:
        if changes is None:
            self._report_unknown()
            for rules in self._orgs.values():
                rules.rebuild()
            return
        touched: dict[OrgRules, None] = {}
        for change in changes:
            if change.acl is not None:
                its = self._orgs.get(change.acl.org_id)
                if its is not None:
                    its.index.change(change.acl, add=not change.removed)
                    touched[its] = None
            elif change.org is not None:
                touched.update(dict.fromkeys(self._orgs.values()))  # its name may be in super.users
        for rules in touched:
            rules.forget()

    def _report_unknown(self) -> None:
        entries = (
            f"{name}@{org}" for name, orgs in self._super_users.items() for org in orgs if org
        )
        unknown = [
            each for each in entries if org_by_text(self.directory, split_name(each)[1]) is None
        ]
        if unknown:
            log.warning(
                "super.users: this gateway knows no org of these names, so they are nobody's: %s",
                "; ".join(unknown),
            )


def _orgs_by_principal(super_users: str) -> Mapping[str, Sequence[str]]:
    """The orgs, by their names or ids, that each principal is a super user of; "": the own one."""
    orgs: dict[str, list[str]] = {}
    for entry in parse_super_users(super_users):
        principal, org = split_name(entry)
        orgs.setdefault(principal, []).append(org)
    return orgs
