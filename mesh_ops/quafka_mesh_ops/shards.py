"""Which shard of a cluster has what: by a hash that never changes. No I/O.

A shard's name, `shard:3`, stands for the broker that has it now: in route rules, and where brokers
name one another in transactions.
"""

from __future__ import annotations

import re
from enum import Enum

from blake3 import blake3

_NAME = re.compile(r"shard:(0|[1-9][0-9]{0,3})", re.ASCII)


class Hashed(bytes, Enum):
    """What is hashed to shards. The values are part of the hash."""

    TOPIC = b"topic"
    HOME = b"home"
    GROUP = b"group"
    TRANSACTION = b"transaction"


def shard_name(number: int) -> str:
    """The name of a shard."""
    return f"shard:{number}"


def shard_number(name: str) -> int | None:
    """The number in a shard's name; None: it is not one."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def shard_of(what: Hashed, org: int, name: str, shards: int) -> int:
    """The shard that has a name of an org, out of this many shards.

    The name's bytes are hashed with the org's id and the kind, so names that are alike in several
    orgs are spread. The number of shards is fixed when a cluster is created.
    """
    # Clients may send any text as a name, also lone surrogates.
    key = b"\0".join((what.value, org.to_bytes(8, "big"), name.encode(errors="surrogatepass")))
    return int.from_bytes(blake3(key).digest()[:8], "big") % shards
