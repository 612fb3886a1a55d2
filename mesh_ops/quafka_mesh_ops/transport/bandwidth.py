"""A model of a long path: what it delivers and how long it takes (after BBR, draft-cardwell-iccrg-
bbr-congestion-control-00).

Random loss on a long path is no sign of a full one, and a window that halves with every loss
leaves such a path empty. So the sending rate follows what has been delivered: the best rate of
the last ten round trips, probed upward now and then; and what is in flight stays below twice the
product of that rate and the shortest round trip, so that queues stay short. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MIN_PACKETS = 4
_STARTUP_GAIN = 2.885  # 2 / ln 2: doubles every round trip
_WINDOW_GAIN = 2.0
_CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_FULL_ROUNDS = 3
_GROWTH = 1.25
_RATE_ROUNDS = 10
_RTT_SECONDS = 10.0
_PROBE_RTT_SECONDS = 0.2
_FIRST_BYTES = 64 << 10
_QUANTUM_SECONDS = 0.002  # what a timer of the event loop may be late by


class _Sent(NamedTuple):
    """The state when a burst left. `number`: of its first packet."""

    number: int
    delivered: int
    delivered_at: float
    limited: bool


class BandwidthModel:
    """Says how much may be in flight (`window`) and how fast it may leave (`room`).

    Attributes:
        datagram_size: bytes of a full datagram.
        window: bytes.
        rate: delivered bytes a second, as far as known; 0 at first.
        round_trip: the shortest of the last ten seconds.
    """

    def __init__(self, datagram_size: int, now: float, round_trip: float) -> None:
        self.datagram_size = datagram_size
        self.round_trip = round_trip
        self._round_trip_at = now
        self.rate = 0.0
        self.window = max(MIN_PACKETS * datagram_size, _FIRST_BYTES)
        self._rates: deque[tuple[int, float]] = deque()  # (round, rate), falling
        self._round = 0
        self._round_ends = 0
        self._gain = _STARTUP_GAIN
        self._filling = True
        self._draining = False
        self._best = 0.0
        self._flat_rounds = 0
        self._cycle = 2
        self._cycle_at = now
        self._probing_until = 0.0
        self._delivered = 0
        self._delivered_at = now
        self._limited_until = 0
        self._sent: deque[_Sent] = deque()
        self._next_at = now
        self._last_acked = -1

    # --- sending ----------------------------------------------------------------------------

    def room(self, now: float) -> int:
        """Bytes that may leave now; 0: not before `next_at`."""
        pace = self._pace()
        if now < self._next_at:
            return 0
        self._next_at = max(self._next_at, now - _QUANTUM_SECONDS)
        return max(2 * self.datagram_size, int((now - self._next_at + _QUANTUM_SECONDS) * pace))

    @property
    def next_at(self) -> float:
        """When there is room again."""
        return self._next_at

    def sent(self, number: int, size: int, now: float, in_flight: int, *, limited: bool) -> None:
        """A burst has left, from packet `number` on; `limited`: there was no more to send."""
        if in_flight <= size:  # after a pause the clock of deliveries begins anew
            self._delivered_at = now
        if limited:
            self._limited_until = self._delivered + in_flight
        snapshot = _Sent(number, self._delivered, self._delivered_at, self._is_limited)
        self._sent.append(snapshot)
        self._next_at += size / self._pace()

    # --- hearing ----------------------------------------------------------------------------

    def stalled(self) -> None:
        """Nothing has arrived for long: begin with little until something does."""
        self.window = MIN_PACKETS * self.datagram_size

    def acked(self, number: int, size: int, now: float) -> None:
        """One packet has arrived."""
        self._delivered += size
        self._delivered_at = now
        self._last_acked = max(self._last_acked, number)

    def acks_done(self, now: float, round_trip: float, in_flight: int) -> None:
        """The last of an ACK's packets was told; judge what it says of the path."""
        if round_trip <= self.round_trip or now - self._round_trip_at > _RTT_SECONDS:
            if round_trip > self.round_trip and not self._probing_until:
                self._probing_until = now + _PROBE_RTT_SECONDS
            self.round_trip = round_trip
            self._round_trip_at = now
        snapshot = self._snapshot_of(self._last_acked)
        if snapshot is not None:
            self._judge(snapshot, now)
        self._advance(now, in_flight)

    def _snapshot_of(self, number: int) -> _Sent | None:
        found = None
        while self._sent and self._sent[0].number <= number:
            found = self._sent.popleft()
        if found is not None:
            self._sent.appendleft(found)  # its later packets are still to come
        return found

    def _judge(self, snapshot: _Sent, now: float) -> None:
        if snapshot.delivered >= self._round_ends:
            self._round += 1
            self._round_ends = self._delivered
            self._round_over()
        took = now - snapshot.delivered_at
        if took < self.round_trip / 2:
            return  # too short to tell anything
        rate = (self._delivered - snapshot.delivered) / took
        if snapshot.limited and rate <= self.rate:
            return
        while self._rates and self._rates[-1][1] <= rate:
            self._rates.pop()
        self._rates.append((self._round, rate))
        while self._rates[0][0] <= self._round - _RATE_ROUNDS:
            self._rates.popleft()
        self.rate = self._rates[0][1]

    def _round_over(self) -> None:
        """While filling: the pipe is full when three rounds have brought no more."""
        if not self._filling or self._is_limited:
            return
        if self.rate >= self._best * _GROWTH:
            self._best = self.rate
            self._flat_rounds = 0
            return
        self._flat_rounds += 1
        if self._flat_rounds >= _FULL_ROUNDS:
            self._filling = False
            self._draining = True
            self._gain = 1 / _STARTUP_GAIN

    def _advance(self, now: float, in_flight: int) -> None:
        product = self.rate * self.round_trip
        if self._draining and in_flight <= product:
            self._draining = False
            self._gain = 1.0
        if not self._filling and not self._draining and now - self._cycle_at > self.round_trip:
            self._cycle = (self._cycle + 1) % len(_CYCLE)
            self._cycle_at = now
            self._gain = _CYCLE[self._cycle]
        least = MIN_PACKETS * self.datagram_size
        if self._probing_until:
            self.window = least
            if now > self._probing_until:
                self._probing_until = 0.0
            return
        if not self.rate:
            return
        gain = _STARTUP_GAIN if self._filling else _WINDOW_GAIN
        window = max(least, int(gain * product) + 2 * self.datagram_size)
        self.window = max(self.window, window) if self._filling else window

    @property
    def _is_limited(self) -> bool:
        return self._delivered < self._limited_until

    def _pace(self) -> float:
        """Bytes a second; never less than a few packets a round trip."""
        round_trip = max(self.round_trip, 0.001)
        if self._filling:  # what little was asked for so far is not what the path can do
            return self._gain * max(self.rate, self.window / round_trip)
        return max(self._gain * self.rate, MIN_PACKETS * self.datagram_size / round_trip)
