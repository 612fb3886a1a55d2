"""The authorizer decides as a plain reading of Kafka's rules, whatever rules come and go."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.security.authorizer import Authorizer, right
from quafka_gateway.security.principal import Principal
from quafka_mesh_ops.ops.security import AclRecord
from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from tests.support.acls import acl, change, directory_with

NAMES = st.text("ab*", min_size=1, max_size=4)
PRINCIPALS = ["User:x", "User:y", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
OPERATIONS = [
    Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS, Operation.CREATE,
]  # fmt: skip
IMPLY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
RULES = st.builds(
    acl,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]),
    NAMES,
    pattern=st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    host=st.sampled_from(HOSTS),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def _matches(rule: AclRecord, kind: ResourceKind, name: str) -> bool:
    if rule.resource_type != kind:
        return False
    if rule.pattern_type == Pattern.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")


def _is_about(rule: AclRecord, principal: str, host: str) -> bool:
    return rule.principal in (principal, "User:*") and rule.host in (host, "*")


def _expected(
    rules: Collection[AclRecord],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceKind,
    name: str,
    default: bool,
) -> bool:
    on_it = [rule for rule in rules if _matches(rule, kind, name)]
    if not on_it:
        return default
    mine = [rule for rule in on_it if _is_about(rule, principal, host)]
    denying = {rule.operation for rule in mine if rule.permission_type == Permission.DENY}
    if denying & {operation, Operation.ALL}:
        return False
    allowing = {rule.operation for rule in mine if rule.permission_type == Permission.ALLOW}
    return bool(allowing & {operation, Operation.ALL, *IMPLY.get(operation, ())})


def _expected_any(
    rules: Collection[AclRecord], principal: str, host: str, operation: Operation
) -> bool:
    """By trying every resource that rules could tell apart, with rules of this operation alone."""
    about = [
        rule
        for rule in rules
        if rule.resource_type == ResourceKind.TOPIC
        and _is_about(rule, principal, host)
        and rule.operation in (operation, Operation.ALL)
    ]
    denied = [rule for rule in about if rule.permission_type == Permission.DENY]
    for rule in about:
        if rule.permission_type == Permission.DENY:
            continue
        name, literal = rule.resource_name, rule.pattern_type == Pattern.LITERAL
        is_wild = literal and name == "*"
        if any(d.pattern_type == Pattern.LITERAL and d.resource_name == "*" for d in denied):
            continue
        if is_wild:
            return True
        covered = any(
            name.startswith(d.resource_name)
            if d.pattern_type == Pattern.PREFIXED
            else literal and d.resource_name == name
            for d in denied
        )
        if not covered:
            return True
    return False


@given(
    st.lists(st.tuples(RULES, st.booleans()), max_size=14),
    st.lists(
        st.tuples(NAMES, st.sampled_from(PRINCIPALS[:2]), st.sampled_from(HOSTS[1:])), max_size=4
    ),
    st.booleans(),
)
def test_a_decision_is_what_the_rules_say(
    changes: list[tuple[AclRecord, bool]], questions: list[tuple[str, str, str]], default: bool
) -> None:
    directory = directory_with()
    authorizer = Authorizer(directory, 1, allows_everyone=default)
    # Kept, so that decisions made before a change would be seen.
    kept = [authorizer.access(1, Principal(*who.split(":")), host) for _, who, host in questions]
    rules: dict[AclRecord, None] = {}
    for rule, removed in changes:
        change(directory, rule, removed=removed)
        if removed:
            rules.pop(rule, None)
        else:
            rules[rule] = None
        for (name, who, host), access in zip(questions, kept, strict=True):
            for operation in OPERATIONS[1:]:
                for kind in (ResourceKind.TOPIC, ResourceKind.GROUP):
                    expected = _expected(rules, who, host, operation, kind, name, default)
                    assert access.allows(right(operation, kind), name) == expected
            if not default:
                some = access.allows_any(right(Operation.WRITE, ResourceKind.TOPIC))
                write = Operation.WRITE
                # Kafka asks for a name of no meaning first.
                assert some == (
                    _expected(rules, who, host, write, ResourceKind.TOPIC, "hardcode", False)
                    or _expected_any(rules, who, host, write)
                )
