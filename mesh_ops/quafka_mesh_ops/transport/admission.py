"""Admits handshakes of unknown peers, a bounded number at a time. Pure.

A handshake costs milliseconds and memory, and the sender of a first packet is easily forged. So
admission has three kinds of slots, and traffic that fills one kind cannot take another:

- for senders with an unproven address: few at a time and per second. Without a free slot the sender
  gets a Retry (retry.py), which costs microseconds and no memory.
- for senders with a proven address: a bounded number at a time from each address.
- for senders with a proven address from which an allowed node connected recently. Only nodes at the
  same address can take these.

Answers that need no slot (Retry, version negotiation, resets) are bounded per second.
"""

from __future__ import annotations

import socket
from collections import Counter, OrderedDict
from enum import Enum

from quafka_mesh_ops.transport.udp import Address

MAX_UNPROVEN, UNPROVEN_A_SECOND, UNPROVEN_AT_ONCE = 16, 16.0, 32.0
MAX_PROVEN, MAX_PROVEN_OF_ADDRESS = 48, 8
MAX_KNOWN = 64
ANSWERS_A_SECOND, ANSWERS_AT_ONCE = 5_000.0, 1_000.0
"""An answer costs about 20 microseconds."""
KNOWN_SECONDS = 86_400.0
_MAX_KNOWN_ADDRESSES = 1_024

_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 address on an IPv6 socket (RFC 4291 section 2.5.5.2)

Host = bytes
"""An IPv4 address, or the first 64 bits of an IPv6 address, which belong to one host or site."""


def host_of(address: Address) -> Host:
    """Return the host that an address counts for."""
    if len(address) == 2:
        return socket.inet_pton(socket.AF_INET, address[0])
    packed = socket.inet_pton(socket.AF_INET6, str(address[0]).partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


class SlotKind(Enum):
    """The kinds of slots."""

    UNPROVEN = "unproven"
    PROVEN = "proven"
    KNOWN = "known"


class Bucket:
    """A token bucket: an average rate per second, and a burst."""

    def __init__(self, a_second: float, at_once: float) -> None:
        self._a_second = a_second
        self._at_once = at_once
        self._left = at_once
        self._at = 0.0

    def spend(self, now: float) -> bool:
        """Spend a token; False if none is left."""
        self._left = min(self._at_once, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class SlotAdmission:
    """The slots of one listener. Times are in seconds, of any monotonic clock."""

    def __init__(self) -> None:
        self._used: Counter[SlotKind] = Counter()
        self._by_host: Counter[Host] = Counter()
        self._known: OrderedDict[Host, float] = OrderedDict()
        self._unproven = Bucket(UNPROVEN_A_SECOND, UNPROVEN_AT_ONCE)
        self._answers = Bucket(ANSWERS_A_SECOND, ANSWERS_AT_ONCE)

    @property
    def handshakes(self) -> int:
        """The number of slots in use."""
        return self._used.total()

    def admit(self, host: Host, *, proven: bool, now: float) -> SlotKind | None:
        """Take a slot for a handshake; None if none is free.

        An unproven sender may then be sent a Retry.
        """
        if not proven:
            free = self._used[SlotKind.UNPROVEN] < MAX_UNPROVEN and self._unproven.spend(now)
            return self._take(SlotKind.UNPROVEN, host) if free else None
        if self._is_known(host, now) and self._used[SlotKind.KNOWN] < MAX_KNOWN:
            return self._take(SlotKind.KNOWN, host)
        if self._used[SlotKind.PROVEN] < MAX_PROVEN and self._by_host[host] < MAX_PROVEN_OF_ADDRESS:
            return self._take(SlotKind.PROVEN, host)
        return None

    def release(self, kind: SlotKind, host: Host) -> None:
        """Release a slot."""
        self._used[kind] -= 1
        if kind is SlotKind.PROVEN:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def may_answer(self, host: Host, now: float) -> bool:
        """Whether a packet may be answered without a slot; always for known addresses."""
        return self._is_known(host, now) or self._answers.spend(now)

    def remember(self, host: Host, now: float) -> None:
        """Record that an allowed node has connected from this host."""
        self._known[host] = now + KNOWN_SECONDS
        self._known.move_to_end(host)
        if len(self._known) > _MAX_KNOWN_ADDRESSES:
            self._known.popitem(last=False)

    def _take(self, kind: SlotKind, host: Host) -> SlotKind:
        self._used[kind] += 1
        if kind is SlotKind.PROVEN:
            self._by_host[host] += 1
        return kind

    def _is_known(self, host: Host, now: float) -> bool:
        return self._known.get(host, 0.0) > now
