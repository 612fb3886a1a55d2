"""Who may do what, and how much of it: users, ACLs and quotas."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_client import acls, quotas, users
from quafka_client.acls import Acl
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.quotas import EntityQuotas
from quafka_client.users import User
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of
from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind


@dataclass(frozen=True, slots=True)
class AccessQuery:
    """A view of a list of users, rules or quotas."""

    search: str = ""
    number: int = 0
    size: int = PAGE_ROWS


async def user_page(cluster: ClientCluster, query: AccessQuery) -> PageOf[User]:
    """Users with SCRAM credentials, by name. Raises ClientError."""
    found = await users.users(cluster)
    return page_of(found, query.search, lambda each: (each.user,), query.number, query.size)


async def acl_page(cluster: ClientCluster, query: AccessQuery) -> PageOf[Acl]:
    """Rules, by resource. Raises ClientError."""
    found = await acls.acls(cluster, [acls.Filter()])
    return page_of(found, query.search, _texts, query.number, query.size)


def _texts(rule: Acl) -> tuple[str, ...]:
    return (
        rule.resource_type, rule.resource, rule.pattern, rule.principal, rule.host, rule.operation,
        rule.permission,
    )  # fmt: skip


async def quota_page(cluster: ClientCluster, query: AccessQuery) -> PageOf[EntityQuotas]:
    """Quotas of users, client ids and addresses. Raises ClientError."""
    found = await quotas.quotas(cluster, ())
    return page_of(
        found,
        query.search,
        lambda each: (quotas.text_of(each.entity), *each.quotas),
        query.number,
        query.size,
    )


def described(rule: Acl) -> str:
    """A rule in words: "User:alice from * may READ topic orders (LITERAL)"."""
    may = "may" if rule.permission == "ALLOW" else "may not"
    kind = rule.resource_type.lower().replace("_", " ")
    return (
        f"{rule.principal} from {rule.host} {may} {rule.operation} {kind} {rule.resource} "
        f"({rule.pattern})"
    )


async def add_rule(cluster: ClientCluster, rule: Acl) -> None:
    """Add a rule. Raises ClientError."""
    (error,) = await acls.create(cluster, [rule])
    if error:
        raise ClientError(error)


async def remove_rule(cluster: ClientCluster, rule: Acl) -> None:
    """Remove exactly this rule. Raises ClientError."""
    removed = await acls.remove(
        cluster,
        [
            acls.Filter(
                ResourceKind[rule.resource_type],
                rule.resource,
                Pattern[rule.pattern],
                rule.principal,
                rule.host,
                Operation[rule.operation],
                Permission[rule.permission],
            )
        ],
    )
    if not removed:
        raise ClientError("the rule does not exist any more")
    for _, error in removed:
        if error:
            raise ClientError(error)


async def remove_user(cluster: ClientCluster, user: User) -> None:
    """Remove all credentials of a user, which can then not log in. Raises ClientError."""
    await users.remove(cluster, user.user, [each.mechanism for each in user.credentials])
