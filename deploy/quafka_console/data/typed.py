"""What people type, or have in an address. Pure."""

from __future__ import annotations

from quafka_client.errors import ClientError

_DIGITS = 18
"""Of the largest numbers: 64 bits hold them."""


def whole_number(text: str, what: str, digits: int = _DIGITS) -> int:
    """A number of at most so many digits, without a sign. `what` it shall be, as in "an offset".

    Raises ClientError.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise ClientError(f"{text!r} is not {what}: a whole number")
    return int(text)
