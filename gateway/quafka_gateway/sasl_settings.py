"""The settings about SASL whose values are more than numbers. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)


def parse_mechanisms(text: str) -> tuple[str, ...]:
    """Read "PLAIN,SCRAM-SHA-512".

    Raises:
        ValueError: there is none, one is unknown, or one is there twice.
    """
    found = parse_words(text)
    if not found or len(set(found)) != len(found) or not set(found) <= set(MECHANISMS):
        raise ValueError(text)
    return found


def parse_words(text: str) -> tuple[str, ...]:
    """Read texts that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_word(text: str) -> str:
    """Check that a text is not empty. Raises ValueError."""
    if not text:
        raise ValueError(text)
    return text


def parse_keys_url(text: str) -> str:
    """Check the URL of a set of keys, or nothing. Raises ValueError.

    Keys that come over plain HTTP would be anybody's.
    """
    parts = urlsplit(text)
    if text and not (
        (parts.scheme == "https" and parts.hostname and not parts.username)
        or (parts.scheme == "file" and not parts.netloc and parts.path)
    ):
        raise ValueError(text)
    return text
