"""The rights that APIs need, and how handlers ask for them.

An API declares its rights (`Api.access`), and its handler asks for each with `RequestContext.may`
or with a helper of this module. A test checks that both agree, and that docs/security.md lists
them.

"Authorized operations" are bits of AclOperation. If the request does not ask for them, they are
AUTHORIZED_OPERATIONS_UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from quafka_gateway.cluster.catalog import NamedTopic
from quafka_gateway.context import RequestContext
from quafka_gateway.security.authorizer import NeededRight, right
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.topics import TopicDescription
from quafka_proto.acl_kinds import CLUSTER_NAME, Operation, ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.metadata import AUTHORIZED_OPERATIONS_UNKNOWN
from quafka_telemetry.tracing import TraceContext

AUTHORIZER_DISABLED = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER = "no authorizer is configured"
"""The error of the ACL APIs."""
DENIED = "the authorizer does not allow it"

READ_TOPIC = right(Operation.READ, ResourceKind.TOPIC)
WRITE_TOPIC = right(Operation.WRITE, ResourceKind.TOPIC)
CREATE_TOPIC = right(Operation.CREATE, ResourceKind.TOPIC)
DELETE_TOPIC = right(Operation.DELETE, ResourceKind.TOPIC)
ALTER_TOPIC = right(Operation.ALTER, ResourceKind.TOPIC)
DESCRIBE_TOPIC = right(Operation.DESCRIBE, ResourceKind.TOPIC)
DESCRIBE_TOPIC_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC)
ALTER_TOPIC_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceKind.TOPIC)
READ_GROUP = right(Operation.READ, ResourceKind.GROUP)
DELETE_GROUP = right(Operation.DELETE, ResourceKind.GROUP)
DESCRIBE_GROUP = right(Operation.DESCRIBE, ResourceKind.GROUP)
DESCRIBE_GROUP_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceKind.GROUP)
ALTER_GROUP_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceKind.GROUP)
WRITE_TRANSACTION = right(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTION = right(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
CLUSTER_ACTION = right(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
CREATE_CLUSTER = right(Operation.CREATE, ResourceKind.CLUSTER)
DELETE_CLUSTER = right(Operation.DELETE, ResourceKind.CLUSTER)
ALTER_CLUSTER = right(Operation.ALTER, ResourceKind.CLUSTER)
DESCRIBE_CLUSTER = right(Operation.DESCRIBE, ResourceKind.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = right(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
ALTER_CLUSTER_CONFIGS = right(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER)
IDEMPOTENT_WRITE = right(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)

_NAMES_PER_SLICE = 500
_NO_ID = bytes(16)
_NOBODY: frozenset[str] = frozenset()


def rule_changes(context: RequestContext) -> Callable[[], bool]:
    """Return a check of whether the client's rules have changed since this call or the last check.

    What a handler decided before is void then: a right may be revoked while its op is parked.
    """
    access = context.access
    if access is None:
        return lambda: False
    generation = access.generation

    def changed() -> bool:
        nonlocal generation
        before, generation = generation, access.generation
        return generation != before

    return changed


def may_on_cluster(right: NeededRight, context: RequestContext) -> bool:
    """Whether the client has a right on the cluster, which is its org."""
    return context.may(right, CLUSTER_NAME)


def may_on_all_orgs(right: NeededRight, context: RequestContext) -> bool:
    """Whether the client may do what concerns all orgs: its org must be this gateway's own."""
    return context.sees_all_orgs and may_on_cluster(right, context)


async def denied(
    names: Iterable[str], right: NeededRight, context: RequestContext
) -> Collection[str]:
    """Return those of the names on which the client does not have a right."""
    access = context.access
    if access is None:
        return _NOBODY
    found: set[str] = set()
    asked = set[str]()
    slices = Slices(_NAMES_PER_SLICE)
    for name in names:
        if name not in asked:
            asked.add(name)
            if not access.allows(right, name):
                found.add(name)
        await slices.done()
    return found


async def visible(
    topics: list[TopicDescription], context: RequestContext
) -> list[TopicDescription]:
    """Return those of a long list of topics that the client may describe."""
    access = context.access
    if access is None:
        return topics
    found: list[TopicDescription] = []
    slices = Slices(_NAMES_PER_SLICE)
    for topic in topics:
        if access.allows_once(DESCRIBE_TOPIC, topic.topic):
            found.append(topic)
        await slices.done()
    return found


async def refusals(
    topics: Iterable[NamedTopic],
    right: NeededRight,
    context: RequestContext,
    trace: TraceContext | None,
) -> Mapping[NamedTopic, int]:
    """Return the error code of each topic, named by name or by id, that the client may not use.

    The name of a topic's id is looked up once. An unknown id is refused, too: the topic might be
    created in the meantime.
    """
    access = context.access
    if access is None:
        return {}
    asked = list(dict.fromkeys(topics))
    ids = [topic_id for name, topic_id in asked if not name]
    by_id = await context.tenant.names.find(ids, trace) if ids else {}
    errors: dict[NamedTopic, int] = {}
    slices = Slices(_NAMES_PER_SLICE)
    for topic in asked:
        name, code = topic[0], 0
        if not name:
            name, code = by_id[topic[1]]
        if not code and not access.allows(right, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if code:
            errors[topic] = code
        await slices.done()
    return errors


# --- authorized operations ------------------------------------------------------------------


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC = _bits(
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
_GROUP = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)  # fmt: skip
_CLUSTER = _bits(
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
)  # fmt: skip


def topic_operations(name: str, context: RequestContext, *, requested: bool) -> int:
    """Return the operations allowed on a topic."""
    return _operations(_TOPIC, ResourceKind.TOPIC, name, context, requested)


def group_operations(name: str, context: RequestContext, *, requested: bool) -> int:
    """Return the operations allowed on a group."""
    return _operations(_GROUP, ResourceKind.GROUP, name, context, requested)


def cluster_operations(context: RequestContext, *, requested: bool) -> int:
    """Return the operations allowed on the cluster: none for a client that may not describe it."""
    if requested and not may_on_cluster(DESCRIBE_CLUSTER, context):
        return 0
    return _operations(_CLUSTER, ResourceKind.CLUSTER, CLUSTER_NAME, context, requested)


def _operations(
    known: int, kind: ResourceKind, name: str, context: RequestContext, requested: bool
) -> int:
    if not requested:
        return AUTHORIZED_OPERATIONS_UNKNOWN
    access = context.access
    return known if access is None else known & access.decide(kind, name)
