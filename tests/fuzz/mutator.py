"""Changes bytes, cheaply: a few microseconds a change."""

from __future__ import annotations

import random

TOKENS = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",  # the greatest unsigned varint of 32 bits
    b"\xff\xff\xff\xff\xff\x01",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 11,
    bytes(16),
)
"""Lengths, counts and numbers at the edges."""


class Mutator:
    """A stream of damaged inputs, the same for the same seed."""

    def __init__(self, seeds: list[bytes], seed: str) -> None:
        self._seeds = seeds
        self._bits = random.Random(seed).getrandbits

    def next(self) -> bytes:
        """One of the seeds with one to four changes."""
        bits = self._bits
        out = bytearray(self._seeds[bits(32) % len(self._seeds)])
        for _ in range(1 + (bits(4) & 3)):
            self._change(out)
        return bytes(out)

    def _change(self, out: bytearray) -> None:
        bits = self._bits
        drawn = bits(48)
        kind, at, size = drawn & 7, (drawn >> 3 & 0xFFFFF) % (len(out) + 1), drawn >> 24 & 31
        if kind < 2:
            out[at : at + 1] = bytes([drawn >> 40])
        elif kind < 5:
            token = TOKENS[drawn >> 40 & 15]
            out[at : at + (len(token) if kind == 2 else 0)] = token
        elif kind == 5:
            del out[at : at + size]
        elif kind == 6:
            out[at:at] = out[at : at + size]
        else:
            other = self._seeds[bits(32) % len(self._seeds)]
            cut = bits(20) % (len(other) + 1)
            out[at : at + size] = other[cut : cut + size]
