"""The setting `sources.redis.allowed`: what the topics of an org may name of Redis. Pure.

    [ORG@]host:port[/DB][?auth=REFERENCE&stream=NAME]

Nothing is allowed that no entry grants. An entry joins an address with a secret, so that no secret
goes to a server that it is not for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.settings import join_address, split_address

SETTING = "sources.redis.allowed"
OWN_ORG = 1
"""The org of an entry that names none: the default of `org.id`."""
VARIABLE_PREFIX = "QUAFKA_REDIS_"
LONGEST_NAME = 512
"""Bytes of a stream's name."""
_ANY = "*"
_ORG = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_SECRET = re.compile(rf"(file:|env:{VARIABLE_PREFIX})[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_LONGEST_SECRET_NAME = 64
_DB = re.compile(r"[0-9]{1,6}", re.ASCII)
_LAST_DB = 1 << 16


@dataclass(frozen=True, slots=True)
class Grant:
    """One entry.

    Attributes:
        db: the only database that topics may name; None: any.
        auth: the secret that they must name, "" for none; None: none, or any that no entry names.
        stream: the only stream that they may name, or the beginning of its name with a * behind;
            None: any.
    """

    org: int
    address: str
    db: int | None = None
    auth: str | None = ""
    stream: str | None = None

    def __str__(self) -> str:
        org = "" if self.auth is None else f"{self.org}@"
        db = "" if self.db is None else f"/{self.db}"
        options = [f"auth={self.auth}"] if self.auth else []
        if self.stream is not None:
            options.append(f"stream={quote(self.stream, safe=':*{}/')}")
        query = f"?{'&'.join(options)}" if options else ""
        return f"{org}{self.address}{db}{query}"

    def covers(self, address: str, db: int, stream: str) -> bool:
        """Whether the address, database and stream are among those that the entry allows."""
        return address == self.address and self.db in (None, db) and self._covers_stream(stream)

    def _covers_stream(self, stream: str) -> bool:
        if self.stream is None or self.stream == stream:
            return True
        return self.stream.endswith(_ANY) and stream.startswith(self.stream.removesuffix(_ANY))


def parse_grants(text: str) -> tuple[Grant, ...]:
    """Parse entries that are separated by commas.

    Raises:
        ValueError: a part is no entry.
    """
    return tuple(_parse(part) for part in map(str.strip, text.split(",")) if part)


def _parse(text: str) -> Grant:
    where, mark, query = text.partition("?")
    org, at, where = where.rpartition("@")
    address, slash, db = where.partition("/")
    host, port = split_address(address)
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    options = dict(pairs)
    if len(options) < len(pairs) or bool(mark) != bool(options):
        raise ValueError(text)
    auth, stream = options.pop("auth", None), options.pop("stream", None)
    if (
        options
        or not port
        or (at and (_ORG.fullmatch(org) is None or int(org) > LAST_ORG))
        or (slash and not is_db(db))
        or (auth is not None and not is_secret(auth))
        or (stream is not None and not is_stream(stream))
    ):
        raise ValueError(text)
    return Grant(
        int(org) if at else OWN_ORG,
        join_address(host.lower(), port),
        int(db) if slash else None,
        "" if at and auth is None else auth,
        stream,
    )


def overlap(grants: Sequence[Grant]) -> str:
    """Return which entry opens another org's streams to its topics; "": none.

    Where orgs share an address, the entries of all but org 1 must name a database, a stream, or a
    secret of their own. To share a stream, two orgs name it.
    """
    for grant in grants:
        others = [
            each for each in grants if each.org != grant.org and each.address == grant.address
        ]
        alone = bool(grant.auth) and all(each.auth != grant.auth for each in others)
        restricted = alone or grant.db is not None or grant.stream is not None
        if others and grant.org != OWN_ORG and not restricted:
            return (
                f"{SETTING}: {grant} opens all streams at {grant.address} to org {grant.org}, and "
                f"{others[0]} is of another org: add /DB, ?stream=NAME, ?stream=BEGINNING* or a "
                "secret of its own"
            )
    return ""


# --- what settings and topics name alike -----------------------------------------------------


def is_secret(text: str) -> bool:
    """Whether it refers to a file or a variable of the broker with a secret."""
    _, _, name = text.partition(":")
    return (
        _SECRET.fullmatch(text) is not None
        and len(name) <= _LONGEST_SECRET_NAME
        and ".." not in name
    )


def is_db(text: str) -> bool:
    """Whether it is the number of a database."""
    return _DB.fullmatch(text) is not None and int(text) <= _LAST_DB


def is_stream(name: str) -> bool:
    """Whether a stream may have this name."""
    return 0 < len(name.encode(errors="replace")) <= LONGEST_NAME and name.isprintable()
