"""Addresses of views: each view's state is in its query."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from nicegui import ui

from quafka_console.session import Query


def link(path: str, **query: str | int) -> str:
    """An address within the console; empty values are left out."""
    return link_of(path, query)


def link_of(path: str, query: Mapping[str, str | int]) -> str:
    """As `link`; `query` may have any names."""
    chosen = {name: value for name, value in query.items() if value not in ("", 0)}
    return path + ("?" + urlencode(chosen) if chosen else "")


def record_path(topic: str, partition: int, offset: int) -> str:
    """The address of the path of a record."""
    return link("/record", topic=topic, partition=str(partition), offset=str(offset))


def page_of(query: Query) -> int:
    """The number of the page of a list, from 0."""
    number = query.get("page", "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else 0


def keep(address: str) -> None:
    """Put an address into the browser's address bar, without loading it."""
    ui.navigate.history.replace(address)
