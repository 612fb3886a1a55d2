"""Pages of long lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka_console.data.paging import matches, page_of

NAMES = [f"group-{number:03}" for number in range(120)]


def test_a_page_is_cut_from_what_the_search_finds() -> None:
    page = page_of(NAMES, "GROUP 1", number=1, size=50)
    assert (page.total, page.matching, page.pages, page.number) == (120, 39, 1, 0)
    page = page_of(NAMES, number=2, size=50)
    assert (page.rows[0], len(page.rows), page.pages) == ("group-100", 20, 3)
    assert page_of(NAMES, number=99, size=50).number == 2, "the last page"
    assert page_of(NAMES, number=-1, size=50).number == 0
    empty = page_of(NAMES, "nothing like this")
    assert (empty.rows, empty.matching, empty.pages) == ([], 0, 1)


def test_each_word_must_be_in_some_text() -> None:
    assert matches("alice read", "User:Alice", "READ")
    assert not matches("alice write", "User:Alice", "READ")
    assert matches("", "x")
    assert matches("STRASSE", "straße")


@given(st.lists(st.text(max_size=3), max_size=30), st.text(max_size=3), st.integers(1, 7))
def test_the_pages_are_the_list(items: list[str], search: str, size: int) -> None:
    pages = page_of(items, search, size=size).pages
    found = [
        row
        for number in range(pages)
        for row in page_of(items, search, number=number, size=size).rows
    ]
    assert found == [each for each in items if matches(search, each)]
