"""Changes users through the broker's control socket: creates the first one, and restores access.

    {"do": "alter-users", "org": 1 or "NAME", "new": true, "users": [
        {"name": NAME, "mechanism": MECHANISM, "credential": null or
            {"salt": HEX, "iterations": N, "stored_key": HEX, "server_key": HEX}}]}

"new" refuses users that exist; a null credential is removed. Answers {"changed": "N"}. A process
that may use the socket may read the log's files, so no further right is required.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from quafka_broker.partitions.errors import StorageError
from quafka_broker.security.security import BrokerSecurity
from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.ops.security import ScramCredential, UserChange

log = logging.getLogger("quafka.broker.security")

ALTER_USERS = "alter-users"
_SECRETS = ("salt", "stored_key", "server_key")


def alter_users_request(org: int | str, changes: Sequence[UserChange], *, new: bool) -> Any:
    """The request of a command."""
    return {
        "do": ALTER_USERS,
        "org": org,
        "new": new,
        "users": [
            {
                "name": change.name,
                "mechanism": change.mechanism,
                "credential": change.credential
                and {
                    "iterations": change.credential.iterations,
                    **{name: getattr(change.credential, name).hex() for name in _SECRETS},
                },
            }
            for change in changes
        ],
    }


async def alter_users(security: BrokerSecurity, request: dict[str, Any]) -> dict[str, str]:
    """Serve a request; the answer has an "error" if the change was not made."""
    try:
        changes = [_change(each) for each in request["users"]]
        org = _org(security, request["org"])
        new = bool(request["new"])
    except (KeyError, TypeError, ValueError):
        return {"error": "the request is malformed"}
    if org is None:
        return {"error": f"there is no org {request['org']!r}"}
    for change in changes:
        if new and change.name in security.table.of(org).users:
            return {"error": f"user {change.name!r} exists already"}
    try:
        refused = await security.alter_users(org, changes)
    except StorageError as e:
        return {"error": str(e)}
    for change, refusal in zip(changes, refused, strict=True):
        if refusal is not None:
            return {"error": f"user {change.name!r}: {refusal.message}"}
        done = "removed from" if change.credential is None else "set for"
        log.info(
            "%s: %s %s user %r of org %d, through the control socket",
            ALTER_USERS, change.mechanism, done, change.name, org,
        )  # fmt: skip
    return {"changed": str(len(changes))}


def _org(security: BrokerSecurity, given: object) -> int | None:
    """An org's id, from its id or its name; None if there is no org of that name."""
    if isinstance(given, str):
        named = security.table.org_named(given)
        return None if named is None else named.org_id
    if not isinstance(given, int) or not 1 <= given <= LAST_ORG:
        raise ValueError(given)
    return given


def _change(fields: dict[str, Any]) -> UserChange:
    name, mechanism = str(fields["name"]), str(fields["mechanism"])
    given = cast("dict[str, Any] | None", fields["credential"])
    if given is None:
        return UserChange(name, mechanism)
    salt, stored_key, server_key = (bytes.fromhex(given[each]) for each in _SECRETS)
    made = ScramCredential(mechanism, salt, int(given["iterations"]), stored_key, server_key)
    return UserChange(name, mechanism, made)
