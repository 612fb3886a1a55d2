"""Ops on orgs, users, ACLs and quotas, 0x70 to 0x75: records of the cluster's security broker.

Every gateway keeps a copy of these records for the orgs that it may serve (`WatchSecurity`), so no
request of a client waits for a lookup. Changes go to the broker as ops, each of one org, and their
answers name the version from which on a copy includes them.

Resource types, pattern types, operations and permissions are Kafka's numbers (KIP-140, KIP-290).
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData

# --- records ----------------------------------------------------------------------------------


@wire_struct
class OrgRecord(WireStruct):
    """An org. `state`: "active", "suspended" (no client may log in) or "deleting"."""

    org_id: int
    name: str
    state: str
    limits: list[OrgLimit]


@wire_struct
class ScramCredential(WireStruct):
    """What a server keeps of a password (RFC 5802, section 3). `mechanism`: "SCRAM-SHA-256"."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


@wire_struct
class UserRecord(WireStruct):
    """A user of an org. Two orgs may have users of the same name."""

    org_id: int
    name: str
    credentials: list[ScramCredential]


@wire_struct
class AclRecord(WireStruct):
    """One rule: a principal ("User:alice") from a host ("*": any) on what matches a pattern."""

    org_id: int
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@wire_struct
class QuotaRecord(WireStruct):
    """All quotas of one entity of an org; no values: none is left."""

    org_id: int
    entity: list[EntityData]
    values: list[ValueData]


# --- WatchSecurity 0x70 -----------------------------------------------------------------------


@wire_struct
class SecurityChange(WireStruct):
    """One record that was written or removed; exactly one of the four is set."""

    removed: bool
    org: OrgRecord | None = None
    user: UserRecord | None = None
    acl: AclRecord | None = None
    quota: QuotaRecord | None = None


@wire_struct
class WatchSecurityResp(WireStruct):
    """Changes after the version that was asked for, oldest first.

    Attributes:
        incarnation: versions of another incarnation mean nothing. It changes when the broker
            restarts, and when the node may serve other orgs than before.
        version: of the last change here.
        restart: the changes start over: records of the asker that are not among them are gone.
        more: there are further changes already; ask at once.
        began: for the next question: where the broker was when the asker's copy began.
        secret: the cluster's secret, for the credentials that unknown users seem to have; empty
            where it was not asked for or could not be made. Clients never see it.
    """

    incarnation: bytes
    version: int
    restart: bool
    more: bool
    changes: list[SecurityChange]
    began: int = -1
    secret: bytes = b""


@wire_struct
class WatchSecurity(Op[WatchSecurityResp]):
    """Wait for changes of the orgs that the node may serve.

    `version` -1: from the beginning. The broker parks the op for up to `max_wait_ms`, and answers
    at once when a record of these orgs, or the node's rights, have changed. `began`: of the last
    answer. `wants_secret`: the answer is to have the cluster's secret.
    """

    code = OpCode.WATCH_SECURITY
    reads = True
    waits_for_news = True
    parks = True
    incarnation: bytes
    version: int
    max_wait_ms: int
    began: int = -1
    wants_secret: bool = False


# --- AlterUsers 0x71 --------------------------------------------------------------------------


@wire_struct
class UserChange(WireStruct):
    """Set or remove a user's credential of one mechanism; the last one removes the user."""

    name: str
    mechanism: str
    credential: ScramCredential | None = None


@wire_struct
class ChangedResp(WireStruct):
    """One Kafka error code per change, in the order of the op; 0: durable.

    `version`: a copy of this version, and incarnation, includes the changes. `messages`: the reason
    of each error, as many as codes; or none.
    """

    error_codes: list[int]
    version: int
    incarnation: bytes
    messages: list[str]


@wire_struct
class AlterUsers(Op[ChangedResp]):
    """Change users of the envelope's org."""

    code = OpCode.ALTER_USERS
    changes: list[UserChange]


# --- CreateAcls 0x72, DeleteAcls 0x73 ---------------------------------------------------------


@wire_struct
class CreateAcls(Op[ChangedResp]):
    """Add rules to the envelope's org."""

    code = OpCode.CREATE_ACLS
    acls: list[AclRecord]


@wire_struct
class AclFilter(WireStruct):
    """Matches rules; None, ANY (1) match all, the pattern type MATCH (2) as in KIP-290."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


@wire_struct
class DeletedAcls(WireStruct):
    """The rules that one filter has removed."""

    error_code: int
    acls: list[AclRecord]


@wire_struct
class DeleteAclsResp(WireStruct):
    """One result per filter. `version`, `incarnation`: as in ChangedResp."""

    results: list[DeletedAcls]
    version: int
    incarnation: bytes


@wire_struct
class DeleteAcls(Op[DeleteAclsResp]):
    """Remove the envelope's org's rules that match any of the filters."""

    code = OpCode.DELETE_ACLS
    filters: list[AclFilter]


# --- AlterQuotas 0x74 -------------------------------------------------------------------------


@wire_struct
class QuotaChange(WireStruct):
    """Values to set for an entity, and keys to remove."""

    entity: list[EntityData]
    values: list[ValueData]
    removed: list[str]


@wire_struct
class AlterQuotas(Op[ChangedResp]):
    """Change quotas of the envelope's org."""

    code = OpCode.ALTER_QUOTAS
    changes: list[QuotaChange]


# --- AlterOrg 0x75 ----------------------------------------------------------------------------


@wire_struct
class AlterOrgResp(WireStruct):
    """A Kafka error code; 0: the org is durable. `version`, `incarnation`: as in ChangedResp."""

    error_code: int
    org: OrgRecord | None
    version: int
    incarnation: bytes
    error_message: str = ""


@wire_struct
class AlterOrg(Op[AlterOrgResp]):
    """Create an org, or change its state and limits; the state "deleting" ends all that it has.

    Each broker holds the org to its limits, and frees what it has of a deleted one, so the op goes
    to all brokers of a cluster.

    Attributes:
        org_id: 0 with `create` takes a free id, from 1,000 on.
        name: empty: as before.
        limits: all of them; None: as before.
        create: the org must not exist; otherwise it must, unless it is being deleted.
        copy: the record as the security broker has it, whatever this broker has.
    """

    code = OpCode.ALTER_ORG
    org_id: int
    name: str
    state: str
    limits: list[OrgLimit] | None
    create: bool = False
    copy: bool = False


ALL: tuple[type[AnyOp], ...] = (
    WatchSecurity, AlterUsers, CreateAcls, DeleteAcls, AlterQuotas, AlterOrg,
)  # fmt: skip
