"""The org of a client, from its listener and the name that it has authenticated with. Pure.

At a listener with an org, every client is of that org, and names are as they come. At any other,
`name@org` names an org by its name; the last @ counts. A name without an org, or with one that this
gateway does not know, is of the gateway's own org as a whole: it may be an e-mail address.
"""

from __future__ import annotations

from typing import NamedTuple

from quafka_gateway.security.directory import Directory


class OrgUser(NamedTuple):
    """A user's name in its org."""

    org_id: int
    name: str


def org_of(directory: Directory, own_org: int, listener_org: int | None, name: str) -> OrgUser:
    """The org and the name there of a client that has authenticated as `name`.

    `listener_org`: the org of its listener, if that has one.
    """
    if listener_org is not None:
        return OrgUser(listener_org, name)
    user, at, org_name = name.rpartition("@")
    org = directory.org_named(org_name) if at else None
    return OrgUser(own_org, name) if org is None else OrgUser(org.org_id, user)


def org_by_text(directory: Directory, text: str) -> int | None:
    """The id of an org that a setting names by its id or its name; None: it is unknown."""
    if text.isascii() and text.isdecimal():
        return int(text)
    org = directory.org_named(text)
    return None if org is None else org.org_id
