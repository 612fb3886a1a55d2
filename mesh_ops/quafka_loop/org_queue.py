"""What waits for a turn: in its order within an org, and orgs one after the other. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, KeysView
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class OrgQueue(Generic[T]):
    """The items that wait, by org. An org with thousands delays another one's first by one."""

    def __init__(self) -> None:
        self._orgs: OrderedDict[int, dict[T, None]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._orgs)

    def add(self, org: int, item: T) -> None:
        """Add an item as the last one of its org."""
        its = self._orgs.get(org)
        if its is None:
            its = self._orgs[org] = {}
        its[item] = None

    @property
    def orgs(self) -> KeysView[int]:
        """The orgs of which anything waits, in the order of their turns."""
        return self._orgs.keys()

    def pop(self, org: int | None = None) -> T:
        """Remove and return the first item of this org; None: of the one whose turn it is.

        Raises:
            KeyError: there is none.
        """
        if org is None:
            org = next(iter(self._orgs), -1)
        its = self._orgs.pop(org)
        item = next(iter(its))
        del its[item]
        if its:
            self._orgs[org] = its
        return item

    def rotate(self) -> T:
        """Return the first item of the org whose turn it is, which ends; the item stays.

        Raises:
            KeyError: there is none.
        """
        org = next(iter(self._orgs), -1)
        its = self._orgs[org]
        self._orgs.move_to_end(org)
        return next(iter(its))

    def remove(self, org: int, item: T) -> None:
        """Remove an item, if it waits."""
        its = self._orgs.get(org)
        if its is not None:
            its.pop(item, None)
            if not its:
                del self._orgs[org]

    def clear(self) -> None:
        """Remove all items."""
        self._orgs.clear()
