"""The bound on pages that no browser opens."""

from __future__ import annotations

from collections.abc import Callable

from quafka_console.unopened import UnopenedPages


class Sent:
    """A page as NiceGUI keeps it."""

    def __init__(self, number: int) -> None:
        self.id = str(number)
        self.opened: list[Callable[[], None]] = []
        self.given_up: list[Callable[[], None]] = []
        self.deleted = 0

    def on_connect(self, handler: Callable[[], None]) -> None:
        self.opened.append(handler)

    def on_delete(self, handler: Callable[[], None]) -> None:
        self.given_up.append(handler)

    def delete(self) -> None:
        self.deleted += 1
        for each in self.given_up:
            each()


def test_of_too_many_the_oldest_is_given_up() -> None:
    pages = UnopenedPages(3)
    sent = [Sent(number) for number in range(5)]
    for each in sent:
        pages.add(each)
    assert [each.deleted for each in sent] == [1, 1, 0, 0, 0]


def test_pages_that_are_open_do_not_count() -> None:
    pages = UnopenedPages(2)
    opened, pruned, *others = (Sent(number) for number in range(5))
    pages.add(opened)
    opened.opened[0]()
    pages.add(pruned)
    pruned.delete()
    for each in others:
        pages.add(each)
    assert [each.deleted for each in (opened, pruned, *others)] == [0, 1, 1, 0, 0]
    opened.opened[0]()  # a browser that connects again
