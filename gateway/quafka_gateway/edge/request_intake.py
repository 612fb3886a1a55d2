"""The bytes that one client sends, cut into requests, counted and timed. Pure."""

from __future__ import annotations

from collections import deque

from quafka_gateway.edge.framing import RequestFramer
from quafka_gateway.edge.progress import RequiredProgress
from quafka_gateway.memory import HeldRequests


class RequestIntake:
    """Turns bytes into request frames; `frames` are whole and not yet decoded.

    Once a request has begun to arrive, it must keep arriving while the client is read from
    (`RequiredProgress`).
    """

    def __init__(self, limit: int, held: HeldRequests, progress: RequiredProgress) -> None:
        self._limit = limit
        self._held = held
        self._progress = progress
        self._framer = RequestFramer(limit)
        self.frames: deque[bytes] = deque()

    def feed(self, data: bytes, now: float) -> None:
        """Add the bytes that arrived. Raises Malformed."""
        framer = self._framer
        before = framer.partial
        frames = framer.feed(data)
        for frame in frames:
            self._held.hold(len(frame), now)
        self.frames.extend(frames)
        if not before and not framer.partial:
            return
        is_new = bool(frames) or not before
        if is_new:
            self._progress.begin(now)
        else:
            self._progress.add(len(data), now)
        self._held.hold_partial(framer.partial, now, is_new=is_new)

    def reading_resumed(self, now: float) -> None:
        """Restart the timing of the unfinished request: the client was not read from."""
        self._progress.begin(now)

    def stalled(self, now: float) -> bool:
        """Whether a request has begun to arrive, and has stopped or arrives too slowly."""
        return bool(self._framer.partial) and self._progress.is_late(now)

    def drop_frames(self, now: float) -> None:
        """Drop the requests that were not decoded."""
        while self.frames:
            self._held.release(len(self.frames.popleft()), now)

    def connection_lost(self, now: float) -> None:
        """Drop the unfinished request and those that were not decoded."""
        self._framer = RequestFramer(self._limit)
        self._held.connection_lost()
        self.drop_frames(now)
