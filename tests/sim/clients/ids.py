"""Names that are unique in a run, by chance."""

from __future__ import annotations

from random import Random
from uuid import UUID


def new_uuid(random: Random) -> str:
    """A random UUID."""
    return str(UUID(int=random.getrandbits(128), version=4))
