"""A model of the bandwidth and delay of a long path.

It follows BBR (draft-cardwell-iccrg-bbr-congestion-control-00).

Random loss on a long path does not mean that the path is full, and a window that halves with every
loss leaves it empty. So the sending rate follows the delivery rate: the best one of the last ten
round trips, probed upward from time to time. Bytes in flight stay below twice the product of that
rate and the shortest round trip, which keeps queues short. Pure.
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
_QUANTUM_SECONDS = 0.002  # the possible delay of an event-loop timer


class _Sent(NamedTuple):
    """The state when a burst was sent. `number`: of its first packet."""

    number: int
    delivered: int
    delivered_at: float
    limited: bool


class BandwidthModel:
    """Bounds the bytes in flight (`window`) and the sending rate (`room`).

    Attributes:
        datagram_size: bytes of a full datagram.
        window: bytes that may be in flight.
        rate: delivered bytes per second; 0 until the first measurement.
        round_trip: the shortest one of the last ten seconds.
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
        """Return the bytes that may be sent now; 0: none before `next_at`."""
        pace = self._pace()
        if now < self._next_at:
            return 0
        self._next_at = max(self._next_at, now - _QUANTUM_SECONDS)
        return max(2 * self.datagram_size, int((now - self._next_at + _QUANTUM_SECONDS) * pace))

    @property
    def next_at(self) -> float:
        """The time at which bytes may be sent again."""
        return self._next_at

    def sent(self, number: int, size: int, now: float, in_flight: int, *, limited: bool) -> None:
        """Record a burst, from packet `number` on; `limited`: there was no more data to send."""
        if in_flight <= size:  # after a pause the delivery clock restarts
            self._delivered_at = now
        if limited:
            self._limited_until = self._delivered + in_flight
        snapshot = _Sent(number, self._delivered, self._delivered_at, self._is_limited)
        self._sent.append(snapshot)
        self._next_at += size / self._pace()

    # --- acknowledgements -------------------------------------------------------------------

    def stalled(self) -> None:
        """Shrink the window to the minimum: nothing was delivered for long."""
        self.window = MIN_PACKETS * self.datagram_size

    def acked(self, number: int, size: int, now: float) -> None:
        """Record the delivery of a packet."""
        self._delivered += size
        self._delivered_at = now
        self._last_acked = max(self._last_acked, number)

    def acks_done(self, now: float, round_trip: float, in_flight: int) -> None:
        """Update the model after the last packet of an ACK."""
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
            self._sent.appendleft(found)  # later packets of the burst are still in flight
        return found

    def _judge(self, snapshot: _Sent, now: float) -> None:
        if snapshot.delivered >= self._round_ends:
            self._round += 1
            self._round_ends = self._delivered
            self._round_over()
        took = now - snapshot.delivered_at
        if took < self.round_trip / 2:
            return  # too short for a measurement
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
        """End the filling phase once three rounds have brought no higher rate."""
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
        """Bytes per second; never less than a few packets per round trip."""
        round_trip = max(self.round_trip, 0.001)
        if self._filling:  # little data so far is no measure of the path
            return self._gain * max(self.rate, self.window / round_trip)
        return max(self._gain * self.rate, MIN_PACKETS * self.datagram_size / round_trip)
