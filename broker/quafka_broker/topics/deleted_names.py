"""The names of topics that were deleted last, of all orgs together. Pure."""

from __future__ import annotations

MOST = 1_000


class DeletedNames:
    """At most `MOST` names. With more, an org that has more than an equal part loses its first."""

    def __init__(self) -> None:
        self._orgs: dict[int, dict[str, None]] = {}
        self._count = 0

    def add(self, org: int, name: str) -> None:
        """Add a name as the last one of its org."""
        self.discard(org, name)
        its = self._orgs.setdefault(org, {})
        its[name] = None
        self._count += 1
        if self._count > MOST:
            if len(its) * len(self._orgs) < self._count:  # another org has more
                org, its = max(self._orgs.items(), key=lambda each: len(each[1]))
            self.discard(org, next(iter(its)))

    def discard(self, org: int, name: str) -> bool:
        """Remove a name; returns whether it was there."""
        its = self._orgs.get(org)
        if its is None or name not in its:
            return False
        del its[name]
        self._count -= 1
        if not its:
            del self._orgs[org]
        return True
