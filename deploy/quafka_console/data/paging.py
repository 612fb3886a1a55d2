"""Pages of long lists, searched and cut here: a browser gets only the rows that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
PAGE_ROWS = 50
"""The rows of a page."""


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """A page of a list. `total`: the list's length; `matching`: that of what the search finds.

    `number`: the page's, from 0.
    """

    rows: Sequence[T]
    total: int
    matching: int
    number: int = 0
    size: int = PAGE_ROWS

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return max(1, -(-self.matching // self.size))

    def with_rows(self, rows: Sequence[U]) -> PageOf[U]:
        """The same page, of what is known of each of its rows."""
        return PageOf(rows, self.total, self.matching, self.number, self.size)


def matches(search: str, *texts: str) -> bool:
    """Whether each word of a search is in one of the texts, regardless of case."""
    every = [text.casefold() for text in texts]
    return all(any(word in text for text in every) for word in search.casefold().split())


def page_of(
    items: Iterable[T],
    search: str = "",
    texts: Callable[[T], Iterable[str]] = lambda item: (str(item),),
    number: int = 0,
    size: int = PAGE_ROWS,
    total: int | None = None,
) -> PageOf[T]:
    """The page of this number, or the last one, of the items in which the search is found.

    `total`: the length of the list that the items were chosen from; None: they are all.
    """
    every = list(items)
    found = [each for each in every if matches(search, *texts(each))] if search.split() else every
    number = min(max(0, number), max(0, (len(found) - 1) // size))
    at = number * size
    total = len(every) if total is None else total
    return PageOf(found[at : at + size], total, len(found), number, size)
