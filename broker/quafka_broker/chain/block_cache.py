"""Blocks of objects on the local disk: a bounded file that evicts the least recently used.

The cache may be lost at any time: blocks are read again from the store. It begins empty, so that
bytes of an earlier process, or from before a power cut, never pass for an object's.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path

from quafka_loop import file_modes, threads

BLOCK = 256 << 10
"""Bytes of a block; the last block of an object may be shorter."""

Key = tuple[str, int]
"""An object's path, and the number of a block in it."""

_WOULD_WAIT = (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL)


class _Slot:
    """A place in the file while it holds one block. A block that returns gets a new object."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class BlockCache:
    """One file of slots. Thread-safe; a read never waits for a write."""

    def __init__(self, path: Path, capacity: int) -> None:
        """`capacity` in bytes. Raises OSError: the file cannot be made."""
        self._fd = file_modes.open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        # Held while the file is changed, and taken first: if it became smaller during a write and
        # grew again, two blocks would have the same slot.
        self._change = threads.Lock()
        self._lock = threads.Lock()  # of the fields below
        self._most = capacity // BLOCK
        self._slots: OrderedDict[Key, _Slot] = OrderedDict()
        self._free: list[int] = []
        self._used = 0  # slots that the file has

    def close(self) -> None:
        """Release the file."""
        with self._change, self._lock:
            self._most = self._used = 0
            self._slots.clear()
            self._free.clear()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @property
    def held(self) -> int:
        """Bytes of disk space in use."""
        return self._used * BLOCK

    def has(self, key: Key) -> bool:
        """Whether a block is cached."""
        return key in self._slots

    def read(self, key: Key, start: int, size: int, *, wait: bool = True) -> bytearray | None:
        """Read bytes of a block; None if they are not cached or, without `wait`, not in memory."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                return None
            self._slots.move_to_end(key)
        buffer = bytearray(size)
        try:
            at = slot.number * BLOCK + start
            count = os.preadv(self._fd, [buffer], at, 0 if wait else os.RWF_NOWAIT)
        except OSError as e:
            if e.errno not in _WOULD_WAIT:
                self._drop(key, slot)
            return None
        # A slot is written only while no block has it: if the block still has it, nothing was
        # written.
        return buffer if count == size and self._slots.get(key) is slot else None

    def add(self, key: Key, data: bytes | memoryview) -> None:
        """Cache a block in place of the least recently used one. On a full disk, keep fewer."""
        try:
            with self._change:
                self._write(key, data)
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                self.shrink()

    def _write(self, key: Key, data: bytes | memoryview) -> None:
        with self._lock:
            number = self._take_number() if key not in self._slots else None
        if number is None:
            return
        written = 0
        try:
            written = os.pwrite(self._fd, data, number * BLOCK)
        finally:
            with self._lock:
                if written == len(data):
                    self._slots[key] = _Slot(number)
                else:
                    self._free.append(number)

    def resize(self, capacity: int) -> None:
        """Use at most this many bytes from now on."""
        with self._change, self._lock:
            self._most = capacity // BLOCK
            self._cut(self._most)

    def shrink(self) -> bool:
        """Return half of the space to the file system; False if there was none."""
        with self._change, self._lock:
            before = self._used
            self._cut(before // 2)
            return before > 0

    # --- with the locks held -------------------------------------------------------------------

    def _take_number(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._used < self._most:
            self._used += 1
            return self._used - 1
        return self._slots.popitem(last=False)[1].number if self._slots else None

    def _cut(self, slots: int) -> None:
        if slots >= self._used:
            return
        for key in [key for key, slot in self._slots.items() if slot.number >= slots]:
            del self._slots[key]
        self._free = [number for number in self._free if number < slots]
        self._used = slots
        os.ftruncate(self._fd, slots * BLOCK)

    def _drop(self, key: Key, slot: _Slot) -> None:
        with self._lock:
            if self._slots.get(key) is slot:
                del self._slots[key]
                self._free.append(slot.number)
