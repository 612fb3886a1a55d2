"""A bound that orgs share fairly. Pure.

Each org has an equal share, and may use what others leave idle. When all together exceed the bound,
the org that has grown gives way itself if it is above its share; otherwise the largest org does.
So no org loses what it holds within its share to another.
"""

from __future__ import annotations

from collections.abc import Callable


class FairBudget:
    """The bound, and the orgs that hold something of it.

    Attributes:
        limit: the bound of all orgs together.
        held: what all orgs hold.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._holding: dict[OrgShare, None] = {}

    def open(self) -> OrgShare:
        """Return the share of one more org."""
        return OrgShare(self)

    # --- for OrgShare -----------------------------------------------------------------------

    def hold(self, share: OrgShare, size: int) -> None:
        """Count what an org takes; a negative size gives it back."""
        self.held += size
        share.held += size
        if share.held:
            self._holding[share] = None
        else:
            self._holding.pop(share, None)

    def orgs_with(self, share: OrgShare) -> int:
        """How many orgs hold something, counting this one."""
        return len(self._holding) + (share not in self._holding)

    @property
    def largest(self) -> OrgShare:
        """The org that holds the most."""
        return max(self._holding, key=lambda share: share.held)


class OrgShare:
    """What one org holds, in one part or several.

    Attributes:
        budget: what it is a share of.
        held: what the org holds.
    """

    def __init__(self, budget: FairBudget) -> None:
        self.budget = budget
        self.held = 0
        self._parts: list[BudgetPart] = []

    def part(self, give_way: Callable[[], None]) -> BudgetPart:
        """Return a new part; `give_way` makes it release something, however little."""
        part = BudgetPart(self, give_way)
        self._parts.append(part)
        return part

    @property
    def size(self) -> int:
        """What the org may hold regardless of others."""
        return max(1, self.budget.limit // self.budget.orgs_with(self))

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self._parts)

    @property
    def largest(self) -> BudgetPart:
        """The part that holds the most."""
        return max(self._parts, key=lambda part: part.held)


class BudgetPart:
    """A part of what one org holds, such as its cache of one broker's records."""

    __slots__ = ("_give_way", "_share", "held")

    def __init__(self, share: OrgShare, give_way: Callable[[], None]) -> None:
        self._share = share
        self._give_way = give_way
        self.held = 0

    @property
    def size(self) -> int:
        """What this part may hold of the org's share."""
        return self._share.size // self._share.parts

    @property
    def limit(self) -> int:
        """The bound of all orgs together."""
        return self._share.budget.limit

    def hold(self, size: int) -> None:
        """Count what is taken; a negative size gives it back."""
        self.held += size
        self._share.budget.hold(self._share, size)

    def fits(self, size: int) -> bool:
        """Whether there is room for this much more."""
        return self._share.budget.held + size <= self._share.budget.limit

    def settle(self) -> None:
        """Have orgs give way until the bound is kept."""
        budget, own = self._share.budget, self._share
        while budget.held > budget.limit:
            (own if own.held > own.size else budget.largest).largest.release()

    def make_room(self, size: int) -> bool:
        """Have larger orgs give way until this much fits, if the org stays within its share.
        Return whether it fits."""
        budget, own = self._share.budget, self._share
        while not self.fits(size):
            if own.held + size > own.size or budget.largest is own:
                return False
            budget.largest.largest.release()
        return True

    def release(self) -> None:
        """Give way."""
        self._give_way()
