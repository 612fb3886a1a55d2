"""Access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from quafka_client.cluster import ClientCluster
from quafka_client.errors import check, sentence
from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule, in Kafka's words: TOPIC, orders, LITERAL, User:alice, *, READ, ALLOW."""

    resource_type: str
    resource: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Matches rules. None or ANY: any value. Pattern MATCH: every rule that applies to the name."""

    resource_type: ResourceKind = ResourceKind.ANY
    resource: str | None = None
    pattern: Pattern = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


async def acls(cluster: ClientCluster, filters: Sequence[Filter]) -> list[Acl]:
    """The rules that match any of the filters, each once. Raises ClientError."""
    found: set[Acl] = set()
    for each in filters:
        request = DescribeAclsRequest(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource,
            pattern_type_filter=each.pattern,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        answer = await cluster.call(request, DescribeAclsResponse)
        check(answer.error_code, "ACLs", answer.error_message)
        found.update(
            Acl(
                _name(ResourceKind, resource.resource_type),
                resource.resource_name,
                _name(Pattern, resource.pattern_type),
                rule.principal,
                rule.host,
                _name(Operation, rule.operation),
                _name(Permission, rule.permission_type),
            )
            for resource in answer.resources
            for rule in resource.acls
        )
    return sorted(found)


async def create(cluster: ClientCluster, rules: Sequence[Acl]) -> list[str | None]:
    """Add rules, unless they exist. Returns each one's error, or None. Raises ClientError."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=ResourceKind[rule.resource_type],
                resource_name=rule.resource,
                resource_pattern_type=Pattern[rule.pattern],
                principal=rule.principal,
                host=rule.host,
                operation=Operation[rule.operation],
                permission_type=Permission[rule.permission],
            )
            for rule in rules
        ]
    )
    answer = await cluster.call(request, CreateAclsResponse)
    return [
        sentence(each.error_code, each.error_message) if each.error_code else None
        for each in answer.results
    ]


async def remove(cluster: ClientCluster, filters: Sequence[Filter]) -> list[tuple[Acl, str | None]]:
    """Remove the rules that match any of the filters.

    Returns the rules, each with its error or None. Raises ClientError.
    """
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    found: dict[Acl, str | None] = {}
    for result in (await cluster.call(request, DeleteAclsResponse)).filter_results:
        check(result.error_code, "ACLs", result.error_message)
        for each in result.matching_acls:
            rule = Acl(
                _name(ResourceKind, each.resource_type),
                each.resource_name,
                _name(Pattern, each.pattern_type),
                each.principal,
                each.host,
                _name(Operation, each.operation),
                _name(Permission, each.permission_type),
            )
            code = each.error_code
            found[rule] = sentence(code, each.error_message) if code else None
    return sorted(found.items(), key=lambda item: item[0])


def _name(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)
