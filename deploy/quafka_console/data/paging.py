"""Pages of long lists, searched and cut here: a browser gets only the rows that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
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
) -> PageOf[T]:
    """The page of this number, or the last one, of the items in which the search is found."""
    every = list(items)
    found = [each for each in every if matches(search, *texts(each))] if search.split() else every
    number = min(max(0, number), max(0, (len(found) - 1) // size))
    at = number * size
    return PageOf(found[at : at + size], len(every), len(found), number, size)
