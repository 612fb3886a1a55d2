"""Errors of transactions as older versions of an API know them.

PRODUCER_FENCED (KIP-360) was INVALID_PRODUCER_EPOCH before, and TRANSACTION_ABORTABLE (KIP-890) was
INVALID_TXN_STATE. Older clients do not know the newer errors, and would end their transaction in
other ways than by aborting it.
"""

from __future__ import annotations

from typing import NamedTuple

from quafka_proto.errors import ErrorCode

NEVER = 0x7FFF
"""No version of an API answers the error."""


class NewErrors(NamedTuple):
    """The versions from which an API answers the newer errors."""

    fenced: int
    abortable: int

    def code(self, code: int, version: int) -> int:
        """The error code for a request of this version."""
        if code == ErrorCode.PRODUCER_FENCED and version < self.fenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code == ErrorCode.TRANSACTION_ABORTABLE and version < self.abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code
