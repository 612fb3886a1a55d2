"""Rules for tests of the authorizer, and a directory that has them."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.security.directory import Directory
from quafka_mesh_ops.ops.security import AclRecord, OrgRecord, SecurityChange, WatchSecurityResp
from quafka_proto.acl_kinds import WILDCARD, Operation, Pattern, Permission, ResourceKind


def acl(
    principal: str,
    operation: Operation,
    kind: ResourceKind,
    name: str,
    *,
    pattern: Pattern = Pattern.LITERAL,
    host: str = WILDCARD,
    permission: Permission = Permission.ALLOW,
    org: int = 1,
) -> AclRecord:
    """A rule, with plain numbers as they come over the mesh."""
    return AclRecord(
        org, int(kind), name, int(pattern), principal, host, int(operation), int(permission)
    )


def directory_with(*rules: AclRecord, orgs: Iterable[OrgRecord] = ()) -> Directory:
    """A complete directory."""
    directory = Directory()
    changes = [SecurityChange(False, org=org) for org in orgs]
    changes += [SecurityChange(False, acl=rule) for rule in rules]
    directory.learn(WatchSecurityResp(b"i", 1, True, False, changes))
    return directory


def change(directory: Directory, rule: AclRecord, *, removed: bool = False) -> None:
    """One rule more, or one less."""
    changes = [SecurityChange(removed, acl=rule)]
    directory.learn(WatchSecurityResp(b"i", directory.version + 1, False, False, changes))
