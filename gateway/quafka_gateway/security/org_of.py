"""The org of a client, from its listener and the name that it has authenticated with. Pure.

No other module splits names with an @. How a name is split depends on the name alone, never on the
orgs that exist: if an org is renamed or deleted, or this gateway does not know it, the names of its
users are nobody's, and not those of users of the gateway's own org.

At a listener with an org, every client is of that org, and names are as they come. At any other,
`name@org` names an org by its name; the last @ counts. A token has its org in a claim, so its name
is never split.
"""

from __future__ import annotations

from typing import NamedTuple

from quafka_gateway.security.directory import Directory
from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.org_limits import is_org_name

NO_ORG = 0
"""The org of a client whose org is not known here. Nobody can enter it, and it has no user."""
_DIGITS = len(str(LAST_ORG))


class OrgUser(NamedTuple):
    """A user's name in its org.

    Attributes:
        org_id: `NO_ORG` if the client's org is not known.
        org_name: the name by which the client or its listener has named the org; "" if neither
            has, or by the org's id.
    """

    org_id: int
    name: str
    org_name: str = ""


def split_name(name: str) -> tuple[str, str]:
    """Split `alice@acme` into the user's name and that of its org.

    The org is "" if the text behind the last @ can be no org's name, as in "CN=a@b,O=c".
    """
    user, at, org = name.rpartition("@")
    return (user, org) if at and is_org_name(org) else (name, "")


def org_of(directory: Directory, own_org: int, listener_org: str, name: str) -> OrgUser:
    """The org, and the name there, of a client that has proven a name by password or certificate.

    `listener_org`: the id or name of its listener's org; "" if that has none.
    """
    if listener_org:
        return _named(directory, listener_org, name)
    user, org = split_name(name)
    if not org:
        return OrgUser(own_org, name)
    record = directory.org_named(org)
    if record is None or not user:
        return OrgUser(NO_ORG, name)
    return OrgUser(record.org_id, user, org)


def org_of_token(
    directory: Directory, own_org: int, listener_org: str, claimed_org: str, name: str
) -> OrgUser:
    """As `org_of`, for a client with a token.

    `claimed_org`: the id or name of the org that the token is for; "" if it names none. It must be
    the listener's, if that has an org.
    """
    by_listener = _named(directory, listener_org or str(own_org), name)
    if not claimed_org:
        return by_listener
    claimed = _named(directory, claimed_org, name)
    if listener_org and claimed.org_id != by_listener.org_id:
        return OrgUser(NO_ORG, name)
    return claimed


def org_by_text(directory: Directory, text: str) -> int | None:
    """The id of an org that a setting names by its id or its name; None: it is unknown."""
    if _is_id(text):
        org_id = int(text) if len(text) <= _DIGITS else NO_ORG
        return org_id if NO_ORG < org_id <= LAST_ORG else None
    org = directory.org_named(text)
    return None if org is None else org.org_id


def org_name_in(text: str) -> str:
    """The name in a text that names an org by its id or its name; "" if it is an id."""
    return "" if _is_id(text) else text


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _named(directory: Directory, text: str, name: str) -> OrgUser:
    """A user of the org that a listener or a token names by its id or its name."""
    return OrgUser(org_by_text(directory, text) or NO_ORG, name, org_name_in(text))
