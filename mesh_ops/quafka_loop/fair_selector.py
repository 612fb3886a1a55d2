"""A selector that reports only a few sockets of each party at a time.

An event loop reads every socket that is ready before it does anything else. So a party with
hundreds of busy connections would delay another one's data until all of them are read. The
sockets of a party have an epoll object of their own, which the loop's has as one of its members
(epoll(7)): however many of them are ready, each poll reports a few, and the kernel keeps the
others in the order in which they became ready.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Container, Hashable, Iterator, Mapping
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from typing import Any

MOST = 8
"""Sockets of one party that a poll reports, if there are several parties."""
_ATTRIBUTE = "_quafka_fair_selector"

Ready = list[tuple[SelectorKey, int]]


class _Party:
    """The sockets of one party."""

    __slots__ = ("_epoll", "fds", "keys", "name")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.fds: set[int] = set()
        self.keys: dict[int, SelectorKey] = {}  # of those that the loop waits for
        self._epoll = select.epoll()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def register(self, key: SelectorKey) -> SelectorKey:
        self._epoll.register(key.fd, _wanted(key.events))
        self.keys[key.fd] = key
        return key

    def modify(self, key: SelectorKey) -> SelectorKey:
        if key.events != self.keys[key.fd].events:
            self._epoll.modify(key.fd, _wanted(key.events))
        self.keys[key.fd] = key
        return key

    def unregister(self, fd: int) -> SelectorKey:
        key = self.keys.pop(fd)
        self._epoll.unregister(fd)
        return key

    def poll(self, most: int) -> Ready:
        """At most this many of the ready sockets."""
        found: Ready = []
        for fd, seen in self._epoll.poll(0, most):
            key = self.keys[fd]
            events = EVENT_WRITE if seen & ~select.EPOLLIN else 0
            if seen & ~select.EPOLLOUT:
                events |= EVENT_READ
            found.append((key, events & key.events))
        return found

    def close(self) -> None:
        self._epoll.close()


class FairSelector(selectors.EpollSelector):
    """The selector of an event loop. Sockets of no party are reported as by any other selector.

    Attributes:
        held_back: parties whose sockets are not reported for now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held_back: Container[Hashable] = ()
        self._parties: dict[Hashable, _Party] = {}
        self._party_of: dict[int, _Party] = {}

    def join(self, fd: int, name: Hashable) -> None:
        """Make a socket one of a party's, until `leave`."""
        if fd in self._party_of:
            return
        party = self._parties.get(name)
        if party is None:
            party = self._parties[name] = _Party(name)
            super().register(party, EVENT_READ, party)
        key = super().get_map().get(fd)
        if key is not None:
            super().unregister(fd)
            party.register(key)
        party.fds.add(fd)
        self._party_of[fd] = party

    def leave(self, fd: int) -> None:
        """Remove a socket from its party. Call this before the socket is closed."""
        party = self._party_of.pop(fd, None)
        if party is None:
            return
        party.fds.discard(fd)
        if fd in party.keys:
            key = party.unregister(fd)
            super().register(key.fileobj, key.events, key.data)
        if not party.fds:
            del self._parties[party.name]
            super().unregister(party)
            party.close()

    # --- selectors.BaseSelector ---------------------------------------------------------------

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        party = self._party_of.get(fileobj) if self._party_of else None
        if party is None:
            return super().register(fileobj, events, data)
        return party.register(SelectorKey(fileobj, fileobj, events, data))

    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        party = self._party_of.get(fileobj) if self._party_of else None
        if party is None:
            return super().modify(fileobj, events, data)
        return party.modify(SelectorKey(fileobj, fileobj, events, data))

    def unregister(self, fileobj: Any) -> SelectorKey:
        party = self._party_of.get(fileobj) if self._party_of else None
        return super().unregister(fileobj) if party is None else party.unregister(fileobj)

    def get_key(self, fileobj: Any) -> SelectorKey:
        party = self._party_of.get(fileobj) if self._party_of else None
        return super().get_map()[fileobj] if party is None else party.keys[fileobj]

    def get_map(self) -> Mapping[Any, SelectorKey]:
        found = super().get_map()
        return _AllKeys(self, found) if self._party_of else found

    def keys_of_parties(self) -> Iterator[Any]:
        """The sockets that belong to a party."""
        for party in self._parties.values():
            yield from party.keys

    def select(self, timeout: float | None = None) -> Ready:
        found = super().select(timeout)
        if not self._parties or not found:
            return found
        ready = [key.data for key, _ in found if type(key.data) is _Party]
        if not ready:
            return found
        of_parties = [self._poll(party) for party in ready if party.name not in self.held_back]
        of_parties.sort(key=len)  # a party with little to do need not wait for the others
        found = [each for each in found if type(each[0].data) is not _Party]
        for each in of_parties:
            found += each
        return found

    def _poll(self, party: _Party) -> Ready:
        return party.poll(MOST if len(self._parties) > 1 else len(party.fds))

    def close(self) -> None:
        for party in self._parties.values():
            party.close()
        self._parties.clear()
        self._party_of.clear()
        super().close()


class _AllKeys(Mapping[Any, SelectorKey]):
    """The sockets of no party, and those of all parties."""

    def __init__(self, selector: FairSelector, others: Mapping[Any, SelectorKey]) -> None:
        self._selector = selector
        self._others = others

    def __getitem__(self, fileobj: Any) -> SelectorKey:
        return self._selector.get_key(fileobj)

    def __iter__(self) -> Iterator[Any]:
        yield from self._others
        yield from self._selector.keys_of_parties()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _wanted(events: int) -> int:
    wanted = select.EPOLLIN if events & EVENT_READ else 0
    return wanted | select.EPOLLOUT if events & EVENT_WRITE else wanted


def attach(loop: asyncio.AbstractEventLoop, selector: FairSelector) -> None:
    """Let `selector_of` find the selector that a loop was made with."""
    setattr(loop, _ATTRIBUTE, selector)


def selector_of(loop: asyncio.AbstractEventLoop) -> FairSelector | None:
    """The loop's selector, if it is a fair one."""
    return getattr(loop, _ATTRIBUTE, None)
